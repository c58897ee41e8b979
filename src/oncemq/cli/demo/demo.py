"""The demo itself: a server, publishers and a subscriber, killed at random and started again.

Law: the audit believes nobody's memory. It reads the topic and the subscriber's database when all
is over, and compares them with what was to be put.
"""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from oncemq.cli.demo.ledger import DemoLedger
from oncemq.cli.demo.process import Child, ChildFailed, ServerChild
from oncemq.cli.demo.publisher import TIMEOUT, TOPIC, PublisherBoard, read_board
from oncemq.cli.demo.reading_back import read_back
from oncemq.client.blocking.client import Client
from oncemq.protocol.records import Retention

TURN_SECONDS = 0.02
DEADLINE_SECONDS = 300.0
DOWN_SECONDS_MAX = 0.15  # a victim stays dead for a random part of this


@dataclass(frozen=True)
class DemoPlan:
    """What to do. `forgetful` plants a failure: a subscriber that forgets its cursor."""

    messages: int
    publishers: int
    kills: int
    seed: int
    forgetful: bool = False

    def counts(self) -> dict[str, int]:
        """How many orders each publisher puts."""
        share, rest = divmod(self.messages, self.publishers)
        return {f"publisher-{n + 1}": share + (n < rest) for n in range(self.publishers)}

    def schedule(self) -> list[tuple[int, str]]:
        """After how many messages who is killed: each one once before anyone is twice."""
        chance = random.Random(self.seed)
        names = ["server", "subscriber", *self.counts()]
        victims: list[str] = []
        while len(victims) < self.kills:
            victims += chance.sample(names, len(names))
        first, last = self.messages // 50, self.messages * 9 // 10
        moments = sorted(chance.randint(first, max(first, last)) for _ in range(self.kills))
        return list(zip(moments, victims[: self.kills], strict=True))


@dataclass(slots=True)
class DemoProgress:
    """How far the demo is."""

    put: int = 0
    rows: int = 0
    crashes: int = 0
    victim: str = ""  # who was killed last


@dataclass
class DemoOutcome:
    """What came of it."""

    messages: int
    sends: int = 0
    duplicates_absorbed: int = 0
    redeliveries_dropped: int = 0
    crashes: dict[str, int] = field(default_factory=dict[str, int])
    rows: int = 0
    gaps: int = 0
    duplicates: int = 0
    out_of_order: int = 0
    findings: list[str] = field(default_factory=list[str])
    seconds: float = 0.0

    @property
    def exactly_once(self) -> bool:
        """Whether every message took effect once, and all of it was in order."""
        wrong = self.gaps or self.duplicates or self.out_of_order or self.findings
        return not wrong and self.rows == self.messages


Show = Callable[[DemoProgress], None]
Then = Callable[[DemoOutcome, str], None]


class DemoPublisher(Child):
    """A publisher process; each life has a board of its own."""

    def __init__(self, name: str, address: str, count: int, directory: Path) -> None:
        self.count = count
        self._boards = directory
        super().__init__(
            name,
            ["-m", "oncemq.cli.demo.publisher", address, name, str(count), str(directory)],
            directory,
        )

    @property
    def lives(self) -> list[PublisherBoard]:
        """What each life did."""
        return [read_board(self._board(life)) for life in range(1, self.starts + 1)]

    def _board(self, life: int) -> Path:
        return self._boards / f"{self.name}.board.{life}"

    def _more_arguments(self) -> list[str]:
        return [str(self._board(self.starts))]


class Demo:
    """One run."""

    def __init__(self, plan: DemoPlan, directory: Path) -> None:
        self._plan = plan
        self._chance = random.Random(plan.seed + 1)
        self._server = ServerChild(directory / "server")
        self._directory = directory
        self._ledger_path = directory / "ledger.db"
        self._publishers: list[DemoPublisher] = []
        self._children: dict[str, Child] = {}
        self._down: dict[str, float] = {}  # who is dead, and when it is started again
        self._crashes: dict[str, int] = {}

    def run(self, show: Show, then: Then | None = None) -> DemoOutcome:
        """All of it; `then` is called with what came of it while the server is there still."""
        started = time.monotonic()
        deadline = started + DEADLINE_SECONDS
        ledger: DemoLedger | None = None
        try:
            self._begin()
            ledger = DemoLedger(self._ledger_path)
            self._work(ledger, show, deadline)
            self._settle(ledger, show, deadline)
            outcome = self._audit(ledger)
            outcome.seconds = time.monotonic() - started
            if then is not None:
                then(outcome, self._server.address)
        finally:
            for child in (*self._children.values(), self._server):
                child.kill()
            if ledger is not None:
                ledger.close()
        return outcome

    def _begin(self) -> None:
        self._server.begin()
        address = self._server.address
        with Client(address, timeout=TIMEOUT) as client:
            client.create_topic(TOPIC, Retention(forever=True))
        clients = self._directory / "clients"
        clients.mkdir()
        arguments = [
            "-m", "oncemq.cli.demo.subscriber", address, str(clients), str(self._ledger_path)
        ]  # fmt: skip
        arguments += ["forgetful"] if self._plan.forgetful else []
        for name, count in self._plan.counts().items():
            self._publishers.append(DemoPublisher(name, address, count, clients))
        subscriber = Child("subscriber", arguments, clients)
        self._children = {each.name: each for each in (subscriber, *self._publishers)}
        for child in self._children.values():
            child.start()
        self._children["server"] = self._server

    def _work(self, ledger: DemoLedger, show: Show, deadline: float) -> None:
        """Until every publisher is through: kill by the schedule, start again."""
        schedule = self._plan.schedule()
        progress = DemoProgress()
        while schedule or any(publisher.exit_code != 0 for publisher in self._publishers):
            self._check(deadline)
            progress.put = sum(max(life.done for life in each.lives) for each in self._publishers)
            progress.rows = ledger.rows
            # Not before the subscriber has begun: to kill one that did nothing yet shows nothing.
            while schedule and progress.put >= schedule[0][0] and progress.rows and self._able():
                progress.victim = self._kill(schedule.pop(0)[1])
                progress.crashes += 1
                show(progress)
            show(progress)
            time.sleep(TURN_SECONDS)

    def _settle(self, ledger: DemoLedger, show: Show, deadline: float) -> None:
        """Until the subscriber has everything that is stored."""
        crashes = sum(self._crashes.values())
        while self._down:
            self._check(deadline)
            time.sleep(TURN_SECONDS)
        with Client(self._server.address, timeout=TIMEOUT) as client:
            end = client.topic(TOPIC).topic.end
        while ledger.cursor < end:
            self._check(deadline)
            show(DemoProgress(self._plan.messages, ledger.rows, crashes))
            time.sleep(TURN_SECONDS)
        self._children["subscriber"].kill()

    def _kill(self, name: str) -> str:
        """Kill one; when it is through or dead already, another."""
        able = self._able()
        if name not in able:
            name = self._chance.choice(sorted(able))
        self._children[name].kill()
        self._crashes[name] = self._crashes.get(name, 0) + 1
        self._down[name] = time.monotonic() + self._chance.random() * DOWN_SECONDS_MAX
        return name

    def _able(self) -> list[str]:
        """Who can be killed."""
        return [each for each, child in self._children.items() if child.running]

    def _check(self, deadline: float) -> None:
        """Start those whose time has come; nobody may have ended by itself but in success."""
        now = time.monotonic()
        if now > deadline:
            raise ChildFailed(f"the demo did not end within {DEADLINE_SECONDS:g} s")
        for name in [name for name, at in self._down.items() if at <= now]:
            del self._down[name]
            self._children[name].start()
        for name, child in self._children.items():
            if name in self._down or child.running:
                continue
            if not (isinstance(child, DemoPublisher) and child.exit_code == 0):
                raise child.failed(f"ended with {child.exit_code}")

    def _audit(self, ledger: DemoLedger) -> DemoOutcome:
        """Read everything back: the topic, the database, and what was to be put."""
        found = read_back(self._server.address, ledger, self._plan.counts())
        lives = [life for publisher in self._publishers for life in publisher.lives]
        return DemoOutcome(
            messages=self._plan.messages,
            sends=sum(life.sends for life in lives),
            duplicates_absorbed=sum(life.duplicates for life in lives),
            redeliveries_dropped=ledger.dropped,
            crashes=dict(sorted(self._crashes.items())),
            rows=found.rows,
            gaps=found.gaps,
            duplicates=found.duplicates,
            out_of_order=found.out_of_order,
            findings=found.findings,
        )
