"""Whole simulated worlds: fresh seeds for a while, and every schedule that ever failed.

SIM_SECONDS says for how long fresh seeds run, SIM_SEED from which on; without it they follow
from the commit, so that every commit sees new ones and a red one stays red.
`make sim SEED=n` replays one.
"""

import os
import subprocess
import time
from pathlib import Path

import pytest

from oncemq.testing import marks, proof
from oncemq.testing.campaign import campaign
from oncemq.testing.history import (
    Given,
    History,
    Joined,
    Joining,
    Leaving,
    Left,
    Opened,
    PutStory,
    payload,
)
from oncemq.testing.judgement import Judgement
from oncemq.testing.options import FAULTS, options_of
from oncemq.testing.schedule import load, schedule_of
from oncemq.testing.shrink import kinds, shrink
from oncemq.testing.simulation import run

SECONDS = float(os.environ.get("SIM_SECONDS", "0"))
WORLDS = 200
KEPT = sorted((Path(__file__).parent.parent / "regress").glob("*.json"))


def first_seed() -> int:
    if "SIM_SEED" in os.environ:
        return int(os.environ["SIM_SEED"])
    here = Path(__file__).parent
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=here, capture_output=True, text=True, check=False
    ).stdout.strip()
    return int(head[:8], 16) * 100_000 if head else time.time_ns() // 1_000_000


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_first_worlds_break_nothing() -> None:
    """The same ones each time; fresh seeds are `make sim`, and SIM_SECONDS lets them in here."""
    total = campaign(0, 240, most=WORLDS)
    total.record("make test")
    print(total)
    assert not total.failures, f"replay with: make sim SEED={min(total.failures)}"


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 60)
@pytest.mark.skipif(
    SECONDS == 0,
    reason="fresh seeds (SIM_SECONDS) wait for an open finding: docs/TESTING.md, 'Open'",
)
def test_fresh_seeds_break_nothing_and_reach_every_mark() -> None:
    first = first_seed()
    print(f"seeds from {first} on")
    total = campaign(first, SECONDS)
    total.record("make sim")
    print(total)
    assert not total.failures, f"replay with: make sim SEED={min(total.failures)}"
    assert total.unseen == []


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_a_schedule_that_failed_once_fails_no_more(path: Path) -> None:
    findings = run(load(path)).findings
    proof.record(f"regress-{path.stem}", "make test", {"schedules": 1}, failures=len(findings))
    assert findings == []


def test_schedules_are_kept() -> None:
    assert KEPT


def test_every_fault_is_on_in_some_worlds_and_off_in_others() -> None:
    worlds = [set(options_of(seed).faults) for seed in range(40)]
    assert all(0 < sum(fault in world for world in worlds) < 40 for fault in FAULTS)


def test_a_campaign_too_small_for_the_marks_is_not_blamed_for_them() -> None:
    assert campaign(0, 0.0).unseen == []
    assert marks.missing({}) == list(marks.SOMETIMES)


# ------------------------------------------------------------------ shrinking


def test_a_failing_schedule_is_shrunk_to_the_steps_that_matter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from oncemq.core.topic import Topic

    monkeypatch.setattr(Topic, "settled", property(lambda self: self.end))  # frees everything
    schedule = next(each for each in map(schedule_of, range(50)) if run(each).findings)
    small = shrink(schedule)
    assert kinds(run(small).findings) & kinds(run(schedule).findings)
    assert len(small.steps) <= min(12, len(schedule.steps) // 2)


def test_a_schedule_that_does_not_fail_is_not_touched() -> None:
    schedule = schedule_of(0)
    assert shrink(schedule) is schedule


def test_a_schedule_is_the_same_after_it_was_kept(tmp_path: Path) -> None:
    schedule = schedule_of(3)
    schedule.save(tmp_path / "kept.json")
    assert load(tmp_path / "kept.json") == schedule


# ------------------------------------------------------------------ the judgement


class Story:
    """A small history, told step by step."""

    def __init__(self) -> None:
        self.history = History()

    def joins(self, client: str = "s", *, subscription: int = 1) -> None:
        asked = self.history.moment()
        self.history.seen.append(Joining(client, "t", False, asked))
        moment = self.history.moment()
        self.history.seen.append(Joined(client, "t", subscription, 1, asked, moment))

    def leaves(self, client: str = "s") -> None:
        self.history.seen.append(Leaving(client, "t", self.history.moment()))
        self.history.seen.append(Left(client, "t", self.history.moment()))

    def puts(self, number: int, offset: int | None, *, refused: str = "", process: int = 1) -> None:
        put = PutStory(number, "p", process, "t", 1, 20, self.history.moment(), lasting=True)
        put.recorded = not refused
        put.refused = refused
        put.first_offset, put.stored = offset, None if refused else True
        put.answered = self.history.moment()
        self.history.puts[number] = put

    def gets(
        self, number: int, offset: int, *, data: bytes | None = None, subscription: int = 1,
        process: int = 1, asked: int | None = None,
    ) -> None:  # fmt: skip
        asked = self.history.moment() if asked is None else asked
        data = payload(number, 0, 20) if data is None else data
        key = None if number % 3 else b"key-%d-0" % number
        self.history.seen.append(
            Given("s", process, "t", subscription, offset, data, key, asked, self.history.moment())
        )

    def kinds(self) -> set[str]:
        return kinds(Judgement(self.history).judge())


def test_a_history_in_order_has_no_finding() -> None:
    story = Story()
    story.joins()
    for number in range(5):
        story.puts(number, number)
        story.gets(number, number)
    assert story.kinds() == set()


def test_each_broken_promise_has_its_finding() -> None:
    def told(*gets: tuple[int, int]) -> set[str]:
        story = Story()
        story.joins()
        for number in range(4):
            story.puts(number, number)
        for number, offset in gets:
            story.gets(number, offset)
        return story.kinds()

    every = [(0, 0), (1, 1), (2, 2), (3, 3)]
    assert told(*every) == set()
    assert told(*every, (3, 3)) == {"redelivered"}
    assert told(*every[:3]) == {"lost_tail"}
    assert told(*every[1:]) == {"lost_prefix"}
    assert told(every[0], *every[2:]) == {"lost_middle"}
    assert told(*every, (3, 4)) == {"duplicate"}
    assert "changed" in told((1, 0), (0, 1), *every[2:])


def test_a_message_nobody_put_and_one_that_was_changed() -> None:
    story = Story()
    story.joins()
    story.puts(1, 0)
    story.gets(1, 0, data=b"1.0.other bytes")
    story.gets(7, 1)
    assert story.kinds() == {"corrupt", "phantom"}


def test_a_put_that_was_refused_must_not_appear() -> None:
    story = Story()
    story.joins()
    story.puts(1, None, refused="storage_full")
    story.gets(1, 0)
    assert story.kinds() == {"failed_but_delivered"}


def test_a_recorded_put_must_arrive() -> None:
    story = Story()
    story.joins()
    story.puts(1, None)
    story.history.puts[1].stored = story.history.puts[1].answered = None
    assert story.kinds() == {"lost"}


def test_a_publishers_order_holds() -> None:
    story = Story()
    story.joins()
    story.puts(1, 1)
    story.puts(2, 0)
    story.gets(2, 0)
    story.gets(1, 1)
    assert story.kinds() == {"reordered"}


def test_nothing_from_before_a_subscription_and_nothing_after_it() -> None:
    before = Story()
    before.puts(1, 0)
    before.joins()
    before.gets(1, 0)
    assert before.kinds() == {"boundary"}
    after = Story()
    after.joins()
    after.leaves()
    after.puts(1, 0)
    after.gets(1, 0)
    assert after.kinds() == {"boundary"}


def test_a_subscription_made_again_is_another() -> None:
    story = Story()
    story.joins()
    story.puts(1, 0)
    story.gets(1, 0)
    story.leaves()
    story.puts(2, 1)
    story.joins(subscription=2)
    story.puts(4, 2)
    story.gets(4, 2, subscription=2)
    assert story.kinds() == set()


def test_an_older_process_must_not_act_after_a_newer_one_began() -> None:
    story = Story()
    story.joins()
    story.history.seen.append(Opened("p", 2, 5, story.history.moment()))
    story.puts(1, 0, process=1)
    story.gets(1, 0)
    assert story.kinds() == {"not_fenced"}
