"""Signals that are put off while a client's state moves: each is handled once, and none is lost."""

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from oncemq.client.shell import signals as shielding
from oncemq.client.shell.signals import SIGNALS, DeferredSignals

FIRST, SECOND, THIRD, *OTHERS = SIGNALS
DEFAULT = 0  # what `signal` calls SIG_DFL: nothing that could be called


class Interrupted(Exception):
    """What a handler of a user raises."""


class Process:
    """The signals of a process: who handles each, and what the user's handlers have seen."""

    def __init__(self) -> None:
        self.seen: list[int] = []
        self.handlers: dict[int, Any] = dict.fromkeys(SIGNALS, DEFAULT)
        for number in (FIRST, SECOND, THIRD):
            self.handlers[number] = self.see
        self.before = dict(self.handlers)
        self.on_change: Callable[[int], None] = lambda count: None
        self._changes = 0

    def see(self, number: int, frame: Any) -> None:
        self.seen.append(number)

    def interrupt(self, number: int, frame: Any) -> None:
        self.seen.append(number)
        raise Interrupted

    def getsignal(self, number: int) -> Any:
        return self.handlers[number]

    def signal(self, number: int, handler: Any) -> Any:
        before, self.handlers[number] = self.handlers[number], handler
        self._changes += 1
        self.on_change(self._changes)
        return before

    def send(self, *numbers: int) -> None:
        for number in numbers:
            self.handlers[number](number, None)

    @property
    def is_shielded(self) -> bool:
        return self.handlers != self.before


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Process:
    process = Process()
    fake = SimpleNamespace(getsignal=process.getsignal, signal=process.signal)
    monkeypatch.setattr(shielding, "_signal", fake)
    monkeypatch.setattr(shielding, "_getsignal", process.getsignal)
    return process


def test_a_signal_is_put_off_until_the_last_shield_is_down(process: Process) -> None:
    shield = DeferredSignals()
    shield.up()
    shield.up()
    process.send(SECOND, FIRST)
    shield.down()
    assert (process.seen, process.is_shielded) == ([], True)
    shield.down()
    assert (process.seen, process.is_shielded) == ([SECOND, FIRST], False)
    process.send(THIRD)
    assert process.seen == [SECOND, FIRST, THIRD]


def test_it_can_be_raised_again_and_keeps_nothing_of_before(process: Process) -> None:
    shield = DeferredSignals()
    for _ in range(2):
        shield.up()
        assert process.is_shielded
        process.send(FIRST)
        shield.down()
        assert not process.is_shielded
    assert process.seen == [FIRST, FIRST]


def test_what_the_user_sets_between_two_shields_stays(process: Process) -> None:
    shield = DeferredSignals()
    shield.up()
    shield.down()
    process.handlers[FIRST] = process.before[FIRST] = DEFAULT
    shield.up()
    shield.down()
    assert not process.is_shielded


def test_what_comes_twice_is_handled_once_as_the_system_does_it(process: Process) -> None:
    shield = DeferredSignals()
    shield.up()
    process.send(FIRST, SECOND, FIRST)
    shield.down()
    assert process.seen == [FIRST, SECOND]


def test_what_nobody_handles_is_left_alone(process: Process) -> None:
    shield = DeferredSignals()
    shield.up()
    assert [process.handlers[each] for each in OTHERS] == [DEFAULT] * len(OTHERS)
    shield.down()


def test_where_it_may_raise_a_handler_runs_and_the_shield_stays_up(process: Process) -> None:
    shield = DeferredSignals()
    shield.up()
    process.send(FIRST)
    shield.deliver()
    assert (process.seen, process.is_shielded) == ([FIRST], True)
    process.send(SECOND)
    assert process.seen == [FIRST]
    shield.down()
    assert process.seen == [FIRST, SECOND]


def test_a_handler_that_was_taken_away_meanwhile_is_not_called(process: Process) -> None:
    shield = DeferredSignals()
    shield.up()
    process.send(FIRST)
    shield._handlers[FIRST] = None
    process.handlers[FIRST] = DEFAULT
    shield.deliver()
    assert process.seen == []


def test_of_two_that_raise_the_second_is_handled_when_it_is_lowered_next(process: Process) -> None:
    for number in (FIRST, SECOND):
        process.handlers[number] = process.before[number] = process.interrupt
    shield = DeferredSignals()
    shield.up()
    process.send(FIRST, SECOND)
    for seen in ([FIRST], [FIRST, SECOND]):
        with pytest.raises(Interrupted):
            shield.down()
        assert (process.seen, process.is_shielded) == (seen, False)
        shield.up()
    shield.down()
    assert not process.is_shielded


def interrupting(at: int) -> Callable[[int], None]:
    def change(count: int) -> None:
        if count == at:
            raise Interrupted

    return change


@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_handler_that_raises_while_it_goes_up_leaves_it_down(process: Process, at: int) -> None:
    """All that were put off are back, the one as well that was just about to be."""
    process.on_change = interrupting(at)
    shield = DeferredSignals()
    with pytest.raises(Interrupted):
        shield.up()
    assert process.handlers == process.before
    shield.up()
    process.send(FIRST)
    assert (process.seen, process.is_shielded) == ([], True)
    shield.down()
    assert (process.seen, process.is_shielded) == ([FIRST], False)


@pytest.mark.parametrize("at", [4, 5, 6])
def test_a_handler_that_raises_while_it_comes_down_leaves_none_put_off(
    process: Process, at: int
) -> None:
    process.on_change = interrupting(at)
    shield = DeferredSignals()
    shield.up()
    process.send(THIRD)
    with pytest.raises(Interrupted):
        shield.down()
    assert (process.seen, process.is_shielded) == ([], False)
    assert shield._handlers == {}
    shield.up()
    shield.down()
    assert process.seen == [THIRD]


def in_a_thread(*steps: Callable[[], None]) -> None:
    def run() -> None:
        for step in steps:
            step()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()


def test_other_threads_neither_raise_nor_lower_it_nor_run_handlers(process: Process) -> None:
    shield = DeferredSignals()
    in_a_thread(shield.up)
    assert not process.is_shielded
    shield.up()
    process.send(FIRST)
    in_a_thread(shield.deliver, shield.down)
    assert (process.seen, process.is_shielded) == ([], True)
    shield.down()
    assert (process.seen, process.is_shielded) == ([FIRST], False)


def test_in_a_forked_child_nothing_is_put_off_and_nothing_of_the_parents_comes(
    process: Process,
) -> None:
    shield = DeferredSignals()
    shield.up()
    shield.up()
    process.send(FIRST)
    shield.forked()
    assert (process.seen, process.is_shielded) == ([], False)
    shield.up()
    assert process.is_shielded
    shield.down()
    shield.down()  # of a block that the fork copied
    assert (process.seen, process.is_shielded) == ([], False)
    process.send(SECOND)
    shield.up()
    assert process.is_shielded
    shield.down()
    assert (process.seen, process.is_shielded) == ([SECOND], False)
