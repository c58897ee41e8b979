"""`once cluster dev`."""

import os
import signal
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import click

from oncemq.cli.cluster.asking import ask_all
from oncemq.cli.cluster.etcd_program import EtcdProgram, find_etcd
from oncemq.cli.cluster.findings import findings_of
from oncemq.cli.cluster.local_cluster import CLUSTER, LocalCluster
from oncemq.cli.cluster.report import ClusterReport, report_of
from oncemq.cli.terminal import output
from oncemq.cli.terminal.command import command, setting, settings
from oncemq.cli.terminal.session import CommandSession
from oncemq.config import default_data
from oncemq.errors import OnceMQError

READY_SECONDS = 120.0
ETCD_SECONDS = 20.0  # until its members have a leader
TURN_SECONDS = 0.2
LOOK_SECONDS = 0.5


class NotReady(OnceMQError):
    """The cluster did not come to be in time."""

    code = "not_ready"


@settings(
    setting("etcd_program", "PATH", "The program etcd; else on PATH, else the wheel's."),
)
@command("dev")
@click.option("--dir", "directory", metavar="DIR", help="Its data and logs, kept for next time.")
@click.option("--servers", type=click.IntRange(1, 9), default=3, help="How many servers; 3.")
def dev_command(session: CommandSession, directory: str | None, servers: int) -> None:
    """Run a cluster on this machine, until Ctrl-C or SIGTERM.

    Three members of etcd and three servers, each a process of its own. Prints one line on stdout
    when all are in sync, with the addresses for --server. A process that ends is started again:
    kill one, and see. A second start on DIR goes on with its data.
    """
    etcd = find_etcd(session.config.etcd_program)
    if etcd.warning is not None:
        session.note(f"once: {etcd.warning}")
    home = default_data(os.environ).with_name("oncemq-cluster-dev")
    machine = LocalCluster(Path(directory or home).absolute(), servers, etcd, session.note)
    with until_a_signal() as told_to_stop:
        try:
            run(session, machine, etcd, told_to_stop)
        finally:
            machine.stop()
    if session.json:
        session.emit({"stopped": True})


def run(
    session: CommandSession, machine: LocalCluster, etcd: EtcdProgram, told_to_stop: list[int]
) -> None:
    """From the first process to the signal that ends it."""
    begin(session, machine, told_to_stop)
    if told_to_stop:
        return
    plan, directory = machine.plan, machine.directory
    addresses = ",".join(plan.addresses)
    facts = {
        "ready": True,
        "server": plan.addresses,
        "etcd": plan.etcd_addresses,
        "cluster": CLUSTER,
        "dir": str(directory),
        "pids": {each.name: each.pid for each in machine.processes},
    }
    members = output.counted(len(plan.etcd), "member")
    session.answer(
        facts,
        f"once cluster dev: ready at {addresses}, {output.counted(len(plan.servers), 'server')}, "
        f"{members} of {etcd.shown}, data and logs in {directory}",
    )
    session.flush()
    if not session.json:
        session.note(
            f"once: in another shell: export ONCEMQ_SERVER={addresses} ONCEMQ_CLUSTER={CLUSTER} "
            f"ONCEMQ_ETCD={','.join(plan.etcd_addresses)}\n"
            "once: then: once cluster status; kill one, and look again; Ctrl-C ends all"
        )
    while not told_to_stop:
        machine.tick()
        time.sleep(TURN_SECONDS)


def begin(session: CommandSession, machine: LocalCluster, told_to_stop: list[int]) -> None:
    """Start all of it, and wait until every server is in sync; NotReady: why it is not."""
    for each in machine.etcd:
        each.start()
    if machine.is_new and len(machine.servers) != 3:
        _say_how_many(session, machine)
    for each in machine.servers:
        each.start()
    deadline, look_at = time.monotonic() + READY_SECONDS, 0.0
    report = ClusterReport()
    while not told_to_stop:
        machine.tick()
        if (now := time.monotonic()) >= look_at:
            report = report_of(ask_all(machine.plan.addresses), None, cluster=CLUSTER)
            look_at = time.monotonic() + LOOK_SECONDS
            if report.serving and len(report.in_sync) == len(machine.servers):
                return
        if now >= deadline:
            why = "; ".join(findings_of(report)) or "nothing answers"
            raise NotReady(
                f"the cluster is not ready after {READY_SECONDS:g} s: {why}; logs are in "
                f"{machine.directory / 'logs'}"
            )
        time.sleep(TURN_SECONDS)


def _say_how_many(session: CommandSession, machine: LocalCluster) -> None:
    """A cluster has three replicas where nobody says otherwise before its first server starts."""
    from oncemq.cli.cluster.agreed import Agreed, etcd_at, new_nonce
    from oncemq.cluster.agreement.known_keys import KnownKeys
    from oncemq.coordination.coordinator import Transact
    from oncemq.coordination.values import ClusterConfig, encoded

    count = len(machine.servers)

    def wanted(known: KnownKeys) -> Transact | None:
        if known.config is not None:
            return None
        config = ClusterConfig(nonce=new_nonce(), replicas=count, min_in_sync=count // 2 + 1)
        return Transact({known.keys.config: 0}, {known.keys.config: encoded(config)})

    coordinator = etcd_at(tuple(machine.plan.etcd_addresses))
    with Agreed(CLUSTER, coordinator, patience=ETCD_SECONDS) as agreed:
        agreed.change(wanted)


@contextmanager
def until_a_signal() -> Generator[list[int]]:
    """They are noted, and end nothing by themselves: what was started is ended in order."""
    told: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [
        signal.signal(number, lambda number, _frame: told.append(number)) for number in numbers
    ]
    try:
        yield told
    finally:
        if told and sys.stderr.isatty():
            sys.stderr.write("\n")  # ends the line with the terminal's ^C
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
