"""`once cluster dev` and `once cluster demo`: a cluster on one machine, and what it proves."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oncemq.cli.cluster.demo.command import pitch
from oncemq.cli.cluster.demo.run import ClusterDemo, ClusterDemoOutcome, ClusterDemoPlan
from oncemq.cli.cluster.etcd_program import find_etcd
from oncemq.cli.cluster.local_cluster import LocalCluster
from oncemq.cli.demo.reading_back import ReadBack
from tests.e2e.conftest import ONCE, Ran, clean_environment
from tests.e2e.processes import until
from tests.harness.etcd import etcd_program

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

READY_SECONDS = 120.0
END_SECONDS = 60.0


class Dev:
    """`once cluster dev` on a directory, as a person runs it in a terminal of its own."""

    def __init__(self, home: Path, *options: str) -> None:
        self.home = home
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None
        self.facts: dict[str, Any] = {}

    def start(self) -> "Dev":
        out, errors = self.home / "dev.out", self.home / "dev.err"
        with out.open("wb") as stdout, errors.open("ab") as stderr:
            self._process = subprocess.Popen(
                [*ONCE, *self.command(), "--json"],
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                cwd=self.home,
                env=clean_environment(self.home),
            )
        until(lambda: out.read_text() or self._has_ended(), READY_SECONDS, what=errors.read_text())
        assert not self._has_ended(), errors.read_text()
        self.facts = json.loads(out.read_text().splitlines()[0])
        return self

    def command(self) -> list[str]:
        where = ["--dir", str(self.home / "dev"), "--etcd-program", etcd_program()]
        return ["cluster", "dev", *where, *self._options]

    def _has_ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

    @property
    def errors(self) -> str:
        return (self.home / "dev.err").read_text()

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        assert self._process is not None
        if self._process.poll() is None:
            self._process.send_signal(number)
        return self._process.wait(END_SECONDS)

    def once(self, *arguments: str) -> Ran:
        given = {
            "ONCEMQ_SERVER": ",".join(self.facts.get("server", [])),
            "ONCEMQ_ETCD": ",".join(self.facts.get("etcd", [])),
            "ONCEMQ_CLUSTER": self.facts.get("cluster", ""),
        }
        done = subprocess.run(
            [*ONCE, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=clean_environment(self.home, **given),
            cwd=self.home,
            timeout=END_SECONDS,
            check=False,
        )
        return Ran(done.returncode, done.stdout, done.stderr.decode())

    def status(self) -> dict[str, Any]:
        return json.loads(self.once("cluster", "status", "--json").out)


@pytest.fixture
def dev(tmp_path: Path) -> Iterator[Dev]:
    made = Dev(tmp_path)
    made.start()
    try:
        yield made
    finally:
        made.stop()


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_it_comes_up_starts_again_what_ends_and_goes_on_with_its_data(dev: Dev) -> None:
    pids = dev.facts["pids"]
    assert sorted(pids) == ["etcd-1", "etcd-2", "etcd-3", "s1", "s2", "s3"]
    assert dev.once("topic", "create", "orders", "--retain", "forever").code == 0
    assert dev.once("put", "orders", "one").code == 0
    status = dev.status()
    assert status["in_sync"] == ["s1", "s2", "s3"]
    assert status["etcd"] == "there"

    leader = status["leader"]
    os.kill(pids[leader], signal.SIGKILL)
    assert dev.once("put", "orders", "two", "--timeout", "30").code == 0
    until(lambda: f"{leader} ended (SIGKILL), and is started again" in dev.errors)

    def all_in_sync() -> bool:
        status = dev.status()
        return status["serving"] and status["in_sync"] == ["s1", "s2", "s3"]

    until(all_in_sync, READY_SECONDS, what="all in sync again")
    assert dev.once("cluster", "status").code == 0

    other = Dev(dev.home)
    refused = other.once(*other.command())
    assert refused.code == 7
    assert "another `once cluster dev` has" in refused.err

    assert dev.stop(signal.SIGINT) == 0
    assert all(is_gone(pid) for pid in pids.values())
    assert "Traceback" not in dev.errors
    for name in ("s1", "s2", "s3"):
        assert "Traceback" not in (dev.home / "dev" / "logs" / f"{name}.log").read_text()

    dev.start()
    assert dev.once("peek", "orders").text == "one\ntwo\n"

    assert dev.stop() == 0
    refused = Dev(dev.home, "--servers", "2").once(*Dev(dev.home, "--servers", "2").command())
    assert refused.code == 2
    assert "has 3 servers: say --servers 3" in refused.err


def test_a_cluster_of_another_size_says_so_before_it_begins(tmp_path: Path) -> None:
    dev = Dev(tmp_path, "--servers", "1")
    dev.start()
    try:
        status = dev.status()
        assert (status["replicas_max"], status["min_in_sync"]) == (1, 1)
        assert status["wrong"] == []
    finally:
        dev.stop()


def test_whoever_is_killed_leaves_nothing_behind(tmp_path: Path) -> None:
    dev = Dev(tmp_path)
    dev.start()
    pids = dev.facts["pids"].values()
    dev.stop(signal.SIGKILL)
    until(lambda: all(is_gone(pid) for pid in pids), END_SECONDS, what="nobody is left")


def test_an_etcd_that_is_none_is_refused_in_words(tmp_path: Path) -> None:
    dev = Dev(tmp_path)
    refused = dev.once("cluster", "dev", "--dir", "x", "--etcd-program", "/bin/false")
    assert refused.code == 2
    assert "/bin/false does not say that it is etcd; install etcd 3.6.14" in refused.err


# ------------------------------------------------------------------ the demo


def test_a_leader_is_killed_and_every_acknowledged_message_is_there_once(tmp_path: Path) -> None:
    given = ["cluster", "demo", "--kills", "1", "--etcd-program", etcd_program()]
    done = subprocess.run(
        [*ONCE, *given],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env=clean_environment(tmp_path, TMPDIR=str(tmp_path)),
        cwd=tmp_path,
        timeout=200,
        check=False,
    )
    said = done.stderr.decode()
    assert done.returncode == 0, said
    assert "which leads, after" in said
    assert "puts go on after" in said
    assert b"1 leader killed" in done.stdout
    assert done.stdout.endswith(b": exactly once\n")
    assert list(tmp_path.glob("oncemq-cluster-demo-*")) == []


def test_a_subscriber_that_writes_a_message_twice_is_found(tmp_path: Path) -> None:
    said: list[str] = []
    plan = ClusterDemoPlan(kills=0, publishers=1, doubles=True)
    outcome = ClusterDemo(plan, tmp_path, find_etcd(Path(etcd_program())), said.append).run()
    assert not outcome.exactly_once
    assert outcome.read_back is not None
    assert outcome.read_back.duplicates == 1
    assert pitch(outcome).endswith(": NOT exactly once")


@pytest.mark.parametrize(
    "wrong", [{"rows": 9}, {"gaps": 1}, {"duplicates": 1}, {"out_of_order": 1}, {"findings": ["x"]}]
)
def test_anything_wrong_is_not_exactly_once(wrong: dict[str, Any]) -> None:
    right = {"rows": 10, "gaps": 0, "duplicates": 0, "out_of_order": 0, "findings": []}
    assert ClusterDemoOutcome(10, read_back=ReadBack(**right)).exactly_once
    assert not ClusterDemoOutcome(10, read_back=ReadBack(**(right | wrong))).exactly_once


def test_a_plan_goes_on_with_its_ports(tmp_path: Path) -> None:
    etcd = find_etcd(Path(etcd_program()))
    plans = []
    for _ in range(2):
        made = LocalCluster(tmp_path / "dev", 2, etcd, lambda _words: None)
        plans.append(made.plan)
        made.stop()
    assert plans[0] == plans[1]
    assert len(set(plans[0].addresses)) == 2
