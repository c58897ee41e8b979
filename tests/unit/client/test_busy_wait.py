"""Who waits for a quick answer looks for it before sleeping, and for a slow one sleeps at once."""

from collections.abc import Callable, Iterable

import pytest

from oncemq.client.blocking.busy_wait import (
    BusyWait,
    busy_wait_asked_for,
    most_micros_asked_for,
)
from oncemq.client.state.paths import BUSY_MICROS
from oncemq.errors import ConfigError

ANSWER = [(7, 1)]
LOOK = 2  # microseconds that one takes here
PAUSE = 0.2


class Core:
    """A clock that runs while somebody looks or sleeps, and what was done on it."""

    def __init__(self) -> None:
        self.micros = 0
        self.answer_at = 0
        self.looks = self.sleeps = self.stepped_aside = 0
        self.others: Callable[[], int] = int  # how long those take who are let go first

    def clock(self) -> float:
        return self.micros / 1_000_000

    def step_aside(self) -> None:
        self.stepped_aside += 1
        self.micros += self.others()

    def poll(self, timeout: float | None = None) -> list[tuple[int, int]]:
        assert timeout is not None
        if timeout:
            self.sleeps += 1
            end = self.micros + int(timeout * 1000)
            self.micros = max(self.micros, min(end, self.answer_at))
        else:
            self.looks += 1
            self.micros += LOOK
        return ANSWER if self.micros >= self.answer_at else []


@pytest.fixture
def core() -> Core:
    return Core()


@pytest.fixture
def waits(core: Core) -> BusyWait:
    return BusyWait(300, core.clock, core.step_aside)


def answered(core: Core, waits: BusyWait, took: Iterable[int]) -> list[tuple[int, int]]:
    """Looks and sleeps of each wait for answers that took so long."""
    found: list[tuple[int, int]] = []
    for micros in took:
        core.looks = core.sleeps = 0
        core.answer_at = core.micros + micros
        assert waits.wait(core.poll, PAUSE) == ANSWER
        found.append((core.looks, core.sleeps))
    return found


def test_quick_answers_are_looked_for_once_they_are_known_to_be_quick(
    core: Core, waits: BusyWait
) -> None:
    assert answered(core, waits, [100] * 5) == [(0, 1)] * 3 + [(50, 0)] * 2
    assert core.stepped_aside == 2 * 49, "after each look in vain others are let go first"


def test_who_looked_for_longer_than_answers_take_sleeps(core: Core, waits: BusyWait) -> None:
    answered(core, waits, [100] * 12)
    assert answered(core, waits, [170]) == [(75, 1)], "half as long again as they lately took"


def test_nobody_looks_for_longer_than_allowed(core: Core, waits: BusyWait) -> None:
    answered(core, waits, [280] * 12)
    assert answered(core, waits, [310]) == [(150, 1)]


def test_nobody_looks_for_longer_than_he_was_to_wait(core: Core, waits: BusyWait) -> None:
    answered(core, waits, [200] * 12)
    core.looks, core.answer_at = 0, core.micros + 1_000_000
    assert waits.wait(core.poll, 0.000_020) == []
    assert core.looks == 10


def test_slow_answers_are_not_looked_for(core: Core, waits: BusyWait) -> None:
    assert answered(core, waits, [301] * 20) == [(0, 1)] * 20


def test_one_slow_answer_is_slept_for_a_few_times(core: Core, waits: BusyWait) -> None:
    answered(core, waits, [100] * 12)
    assert answered(core, waits, [9_000]) == [(75, 1)]
    assert answered(core, waits, [100] * 4) == [(0, 1)] * 3 + [(50, 0)]


def test_where_others_compute_on_the_core_nobody_looks_for_a_second(
    core: Core, waits: BusyWait
) -> None:
    """Who is woken comes before them, and who looked waits until they have had their time."""
    answered(core, waits, [100] * 12)
    core.others = lambda: 3_000
    assert answered(core, waits, [200]) == [(2, 0)], "it came while they computed"
    core.others = int
    assert answered(core, waits, [100] * 9_990) == [(0, 1)] * 9_990
    assert answered(core, waits, [100] * 20)[-1] == (50, 0)


def test_who_answers_on_the_same_core_is_let_go_and_looked_for(core: Core, waits: BusyWait) -> None:
    answered(core, waits, [200] * 12)
    core.others = lambda: 98  # the server, twice: until it waits for the disk, and after that
    assert answered(core, waits, [200] * 3) == [(3, 0)] * 3


@pytest.mark.parametrize(("said", "is_asked_for"), [("", False), ("0", False), ("50", True)])
def test_nobody_looks_who_was_not_asked_to(
    monkeypatch: pytest.MonkeyPatch, said: str, is_asked_for: bool
) -> None:
    monkeypatch.setenv(BUSY_MICROS, said)
    assert isinstance(busy_wait_asked_for(), BusyWait) is is_asked_for


@pytest.mark.parametrize(("said", "most"), [("0", 0), (" 50", 50), ("", 0)])
def test_the_environment_says_for_how_long(
    monkeypatch: pytest.MonkeyPatch, said: str, most: int
) -> None:
    monkeypatch.setenv(BUSY_MICROS, said)
    assert most_micros_asked_for() == most
    monkeypatch.delenv(BUSY_MICROS)
    assert most_micros_asked_for() == 0


@pytest.mark.parametrize("said", ["-1", "0.5", "much"])
def test_what_is_no_time_is_refused(monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    monkeypatch.setenv(BUSY_MICROS, said)
    with pytest.raises(ConfigError, match=f"ONCEMQ_BUSY_MICROS: '{said}' is no number"):
        most_micros_asked_for()
