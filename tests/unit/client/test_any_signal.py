"""Every signal with a handler of Python's is put off, and none is forgotten."""

import signal
import threading
from collections.abc import Callable, Iterator
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
