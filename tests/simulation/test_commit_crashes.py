"""A crash before every call to the disk, of a server with stages, commits and compaction."""

from collections.abc import Callable
from random import Random

import pytest

from oncemq.broker.state.owners import Owners
from oncemq.broker.state.stages import StagedMessages, Stages
from oncemq.errors import Corrupt
from oncemq.server import driver
from oncemq.testing.crash_points import KILL, CrashPoints
from oncemq.testing.faulty_disk import FaultyDisk
from oncemq.testing.unsynced_changes import PowerCut
from simulator import proof
from tests.simulation.crashed_commits import Book, Dealer

PARTS = 12
LATER = 10**10


def verify(book: Book, disk: FaultyDisk, random: Random) -> int:
    """Recover; crash again at once; ask again for all that is open; crash, recover."""
    mine = book.copy()
    dealer = Dealer(disk, mine, LATER)
    found = dealer.check()
    again = disk.fork(random)
    again.crash(PowerCut.NOTHING)
    assert Dealer(again, mine.copy(), LATER).check() == found, "recovered was not durable"
    if found:
        dealer.go_on()
        disk.crash(PowerCut.NOTHING)
        Dealer(disk, mine, LATER).check()
    return 3


def deal_all(dealer: Dealer, points: CrashPoints) -> None:
    """Commits of stages of their own and of one they share, settled, compacted, crashed."""
    dealer.begin()
    dealer.feed(6)
    for number in range(6):
        dealer.deal(100 + 200 * (number % 2), shared=number % 3 == 0)
        dealer.orphan(200)
    dealer.settle_read(4)
    dealer.housekeep(24)
    dealer.feed(6)
    points.after(lambda: dealer.deal(600), "write", ".log", variant=PowerCut.TORN)
    dealer.open()
    dealer.go_on()
    for number in range(4):
        dealer.deal(150, shared=number % 2 == 0)
    points.after(lambda: dealer.housekeep(40), "rename", ".cold", variant=KILL)
    dealer.open()
    dealer.go_on()
    dealer.settle_read(len(dealer.book.deals) - 1)
    dealer.feed(1)
    dealer.now += 25 * 3_600_000_000  # stages that were left open are given up
    dealer.housekeep(24)
    dealer.deal()
    points.crash_here()


def enumerate_commits(*, part: int = 0, parts: int = 1) -> CrashPoints:
    disk, book = FaultyDisk(Random(5)), Book()

    def verify_one(crashed: FaultyDisk, random: Random) -> int:
        return verify(book, crashed, random)

    points = CrashPoints(disk, verify_one, part=part, parts=parts)
    deal_all(Dealer(disk, book), points)
    return points


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "GATHER_BYTES", 4096)


@pytest.mark.parametrize(
    "part", [0, *(pytest.param(part, marks=pytest.mark.slow) for part in (3, 7))]
)
def test_no_crash_at_any_call_tears_or_repeats_a_commit(part: int) -> None:
    with proof.campaign(f"crash-commits-{part}") as tally:
        points = enumerate_commits(part=part, parts=PARTS)
        tally.add("recoveries", points.recoveries)
    assert points.recoveries > 100


def no_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint forgets which numbers owners have used."""
    monkeypatch.setattr(Owners, "restore", lambda *_: None)


def no_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint forgets what was published of a stage."""
    restore = Stages.restore

    def forgetful(stages: Stages, state: object) -> None:
        restore(stages, state)  # type: ignore[arg-type]
        for stage in stages.by_id.values():
            stage.shares.clear()

    monkeypatch.setattr(Stages, "restore", forgetful)


def no_low(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is published is free."""
    monkeypatch.setattr(StagedMessages, "low", lambda stage, _: stage.published)


@pytest.mark.parametrize("plant", [no_numbers, no_shares, no_low])
def test_a_planted_bug_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises((AssertionError, Corrupt)) as raised:
        enumerate_commits(parts=3)
    assert "crashed at point" in raised.value.__notes__[0]
