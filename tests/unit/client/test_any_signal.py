"""Every signal with a handler of Python's is put off, and none is forgotten."""

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import FrameType
from typing import Any

import pytest

from oncemq.client.shell.signals import DeferredSignals

CAUGHT = sorted(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP})


class Raised(Exception):
    """By a handler."""


def handle(number: int, _frame: FrameType | None) -> None:
    raise Raised(number)


@pytest.fixture
def install() -> Iterator[Callable[[int, Any], None]]:
    before: dict[int, Any] = {}

    def install(number: int, handler: Any) -> None:
        old = signal.signal(number, handler)
        before.setdefault(number, old)

    yield install
    for number, handler in before.items():
        signal.signal(number, signal.SIG_DFL if handler is None else handler)


@pytest.mark.parametrize("number", CAUGHT, ids=str)
def test_a_handler_of_any_signal_runs_when_the_shield_comes_down(number: int, install: Any) -> None:
    shield, whole = DeferredSignals(), False
    install(number, handle)
    shield.up()
    signal.raise_signal(number)
    signal.raise_signal(number)
    whole = True
    with pytest.raises(Raised):
        shield.down()
    assert whole
    assert signal.getsignal(number) is handle


def test_a_handler_is_put_off_though_the_shield_was_up_before_it_was_installed(
    install: Any,
) -> None:
    shield = DeferredSignals()
    for handler in (handle, signal.SIG_IGN, lambda *_: handle(1, None)):
        install(signal.SIGVTALRM, handler)
        shield.up()
        signal.raise_signal(signal.SIGVTALRM)
        if callable(handler):
            with pytest.raises(Raised):
                shield.down()
        else:
            shield.down()
        assert signal.getsignal(signal.SIGVTALRM) is handler


def test_several_signals_are_each_delivered_once(install: Any) -> None:
    shield, came = DeferredSignals(), []
    for number in (signal.SIGVTALRM, signal.SIGQUIT, signal.SIGCHLD):
        install(number, lambda number, _: came.append(number))
    shield.up()
    shield.up()
    for number in (signal.SIGQUIT, signal.SIGVTALRM, signal.SIGQUIT, signal.SIGCHLD):
        signal.raise_signal(number)
    shield.down()
    assert came == []
    shield.down()
    assert came == [signal.SIGQUIT, signal.SIGVTALRM, signal.SIGCHLD]


def test_for_other_threads_it_does_nothing(install: Any) -> None:
    shield = DeferredSignals()
    install(signal.SIGVTALRM, handle)
    thread = threading.Thread(target=shield.up)
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGVTALRM) is handle


def test_a_signal_that_comes_while_another_is_noted_is_noted_as_well(install: Any) -> None:
    shield, came, numbers = (
        DeferredSignals(),
        [],
        (signal.SIGQUIT, signal.SIGVTALRM, signal.SIGCHLD),
    )
    for number in numbers:
        install(number, lambda number, _: came.append(number))

    def trace(frame: FrameType, _event: str, _: Any) -> None:
        if frame.f_code.co_name == "<genexpr>" and frame.f_globals is _note.__globals__:
            sys.settrace(None)
            signal.raise_signal(signal.SIGCHLD)

    _note = DeferredSignals._note
    shield.up()
    signal.raise_signal(signal.SIGQUIT)
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        signal.raise_signal(signal.SIGVTALRM)
    finally:
        sys.settrace(before)
        shield.down()
    assert sorted(came) == sorted(numbers)


@pytest.mark.parametrize("apart", range(1, 12))
def test_handlers_are_put_back_however_many_of_them_raise_meanwhile(
    apart: int, install: Any
) -> None:
    """Two signals, at every two lines of the shield: each of the handlers is there at the end."""
    numbers = (signal.SIGQUIT, signal.SIGVTALRM, signal.SIGCHLD)
    for number in numbers:
        install(number, handle)
    home, reached, line = DeferredSignals.up.__code__.co_filename, True, 0
    before = sys.gettrace()
    while reached:
        shield, line, seen = DeferredSignals(), line + 1, 0

        def trace(frame: FrameType, event: str, _: Any, line: int = line) -> Any:
            nonlocal seen
            if frame.f_code.co_filename != home:
                return None
            if event == "line":
                seen += 1
                if seen in (line, line + apart):
                    signal.raise_signal(numbers[seen % 3])
            return trace

        sys.settrace(trace)
        try:
            shield.up()
            shield.down()
        except Raised:
            pass
        finally:
            sys.settrace(before)
        with suppress(Raised):
            shield.down()  # what is left to be delivered
        assert [signal.getsignal(number) for number in numbers] == [handle] * 3
        reached = seen >= line


def test_a_handler_that_uses_the_client_finds_and_leaves_the_shield_as_it_should_be(
    install: Any,
) -> None:
    """As one that puts a last message and closes; it may run while handlers are put back."""
    shield, came = DeferredSignals(), []

    def use(number: int, _frame: FrameType | None) -> None:
        shield.up()
        came.append(number)
        shield.down()

    numbers = (signal.SIGQUIT, signal.SIGVTALRM, signal.SIGCHLD)
    for number in numbers:
        install(number, use)
    home, reached, line = DeferredSignals.up.__code__.co_filename, True, 0
    before = sys.gettrace()
    while reached:
        line, seen, came[:] = line + 1, 0, []

        def trace(frame: FrameType, event: str, _: Any, line: int = line) -> Any:
            nonlocal seen
            if frame.f_code.co_filename != home:
                return None
            if event == "line":
                seen += 1
                if seen == line:
                    signal.raise_signal(numbers[line % 3])
            return trace

        sys.settrace(trace)
        try:
            shield.up()
            shield.down()
        finally:
            sys.settrace(before)
        shield.down()
        assert [signal.getsignal(number) for number in numbers] == [use] * 3
        assert came == ([numbers[line % 3]] if seen >= line else [])
        reached = seen >= line
