"""The cluster's demo itself: leaders killed in turn under publishers and a subscriber.

Law: the audit believes nobody's memory. It reads the topic and the subscriber's database when all
is over, and compares them with what was acknowledged.
"""

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from oncemq.cli.cluster.asking import ask_all
from oncemq.cli.cluster.etcd_program import EtcdProgram
from oncemq.cli.cluster.local_cluster import CLUSTER, LocalCluster
from oncemq.cli.cluster.report import ClusterReport, report_of
from oncemq.cli.demo.ledger import DemoLedger
from oncemq.cli.demo.process import Child, ChildFailed
from oncemq.cli.demo.publisher import TIMEOUT, TOPIC, read_board
from oncemq.cli.demo.reading_back import ReadBack, read_back
from oncemq.client.blocking.client import Client
from oncemq.protocol.records import Retention

SERVERS = 3
TURN_SECONDS = 0.02
LOOK_SECONDS = 0.25
DOWN_SECONDS = 4.0  # longer than a lease: another has to take over
CALM_SECONDS = 1.0  # between that all are in sync and the next crash
DEADLINE_SECONDS = 300.0

Say = Callable[[str], object]


@dataclass(frozen=True)
class ClusterDemoPlan:
    """What to do. `doubles` plants a failure: the subscriber writes a message twice."""

    kills: int = 3
    publishers: int = 3
    doubles: bool = False


@dataclass
class ClusterDemoOutcome:
    """What came of it."""

    acknowledged: int
    kills: list[str] = field(default_factory=list[str])  # who was killed, in order
    pauses: list[float] = field(default_factory=list[float])  # without an acknowledged put, each
    read_back: ReadBack | None = None
    seconds: float = 0.0

    @property
    def exactly_once(self) -> bool:
        """Whether every acknowledged message is in the database once, and in order."""
        return self.read_back is not None and self.read_back.is_exactly(self.acknowledged)


class ClusterDemo:
    """One run."""

    def __init__(self, plan: ClusterDemoPlan, directory: Path, etcd: EtcdProgram, say: Say) -> None:
        self._plan, self._directory, self._say = plan, directory, say
        self._cluster = LocalCluster(
            directory / "cluster", SERVERS, etcd, self._restarted, pause=DOWN_SECONDS
        )
        self._address = ",".join(self._cluster.plan.addresses)
        self._clients = directory / "clients"
        self._children: list[Child] = []
        self._boards: dict[str, Path] = {}
        self._deadline = time.monotonic() + DEADLINE_SECONDS

    def run(self) -> ClusterDemoOutcome:
        """All of it; what was started has ended when it returns."""
        started = time.monotonic()
        ledger: DemoLedger | None = None
        try:
            for each in self._cluster.processes:
                each.start()
            leader = self._until_in_sync()
            self._say(f"all in sync after {time.monotonic() - started:.1f} s; {leader} leads")
            ledger = DemoLedger(self._directory / "ledger.db")
            self._begin_clients()
            outcome = ClusterDemoOutcome(0)
            for _ in range(self._plan.kills):
                self._kill_leader(outcome)
            outcome.acknowledged = self._end_publishers()
            self._say(f"{outcome.acknowledged:,} puts were acknowledged; now the audit")
            self._until_all_is_taken(ledger)
            counts = {name: read_board(board).done for name, board in self._boards.items()}
            outcome.read_back = read_back(self._address, ledger, counts)
            outcome.seconds = time.monotonic() - started
            return outcome
        finally:
            for child in self._children:
                child.kill()
            self._cluster.stop()
            if ledger is not None:
                ledger.close()

    def _restarted(self, _words: str) -> None:
        """That a victim is started again is told with its crash."""

    def _begin_clients(self) -> None:
        self._clients.mkdir()
        with Client(self._address, timeout=TIMEOUT) as client:
            client.create_topic(TOPIC, Retention(forever=True))
        arguments = [self._address, str(self._clients), str(self._directory / "ledger.db")]
        arguments += ["doubles"] if self._plan.doubles else []
        module = "oncemq.cli.cluster.demo.subscriber"
        self._children.append(Child("subscriber", ["-m", module, *arguments], self._clients))
        for number in range(1, self._plan.publishers + 1):
            name = f"publisher-{number}"
            self._boards[name] = board = self._clients / f"{name}.board"
            arguments = [self._address, name, str(self._clients), str(board)]
            module = "oncemq.cli.cluster.demo.publisher"
            self._children.append(Child(name, ["-m", module, *arguments], self._clients))
        for child in self._children:
            child.start()
        before = self._acknowledged()
        self._until(lambda: self._acknowledged() > before, "a first put")

    # ------------------------------------------------------------------ crashes

    def _kill_leader(self, outcome: ClusterDemoOutcome) -> None:
        """SIGKILL, and wait until puts go on and all are in sync."""
        self._until_in_sync()
        calm = time.monotonic() + CALM_SECONDS
        self._until(lambda: time.monotonic() >= calm, "a moment")
        leader = self._until_in_sync()
        victim = next(each for each in self._cluster.servers if each.name == leader)
        put = self._acknowledged()
        os.kill(victim.pid, signal.SIGKILL)
        killed = time.monotonic()
        # One answer of the dead leader may have been on its way, for each publisher.
        self._until(lambda: self._acknowledged() > put + self._plan.publishers, "puts that go on")
        pause = time.monotonic() - killed
        outcome.kills.append(leader)
        outcome.pauses.append(pause)
        heir = self._until_led()
        self._say(
            f"kill -9 {leader}, which leads, after {put:,} puts: {heir} leads, puts go on after "
            f"{pause:.1f} s, {leader} is started again"
        )

    def _until_led(self) -> str:
        return self._until_seen(lambda report: report.serving, "a leader").leader

    def _until_in_sync(self) -> str:
        """Who leads then."""
        return self._until_seen(
            lambda report: report.serving and len(report.in_sync) == SERVERS, "all in sync"
        ).leader

    def _until_seen(self, is_so: Callable[[ClusterReport], bool], what: str) -> ClusterReport:
        while True:
            report = report_of(ask_all(self._cluster.plan.addresses), None, cluster=CLUSTER)
            if is_so(report):
                return report
            at = time.monotonic() + LOOK_SECONDS
            self._until(lambda at=at: time.monotonic() >= at, what)

    # ------------------------------------------------------------------ the end

    def _end_publishers(self) -> int:
        """They end after the receipt that they wait for; how many puts were acknowledged."""
        _, *publishers = self._children
        for each in publishers:
            if code := each.stop():
                raise each.failed(f"ended with {code}")
        self._children = self._children[:1]
        return self._acknowledged()

    def _until_all_is_taken(self, ledger: DemoLedger) -> None:
        with Client(self._address, timeout=TIMEOUT) as client:
            end = client.topic(TOPIC).topic.end
        self._until(lambda: ledger.rows >= end, "the subscriber's last row")

    def _acknowledged(self) -> int:
        return sum(read_board(board).done for board in self._boards.values())

    def _until(self, is_so: Callable[[], bool], what: str) -> None:
        """Servers that were killed are started again meanwhile; no client may end."""
        while not is_so():
            self._cluster.tick()
            for child in self._children:
                if not child.running:
                    raise child.failed(f"ended with {child.exit_code}")
            if time.monotonic() > self._deadline:
                raise ChildFailed(f"the demo waited in vain for {what}")
            time.sleep(TURN_SECONDS)
