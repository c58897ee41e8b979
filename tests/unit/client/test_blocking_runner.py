"""The turns of a blocking client's threads."""

import select
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from oncemq.client.blocking.runner import Runner
from oncemq.client.ticket import Ticket
from oncemq.transport.wakeup import Wakeup
from tests.harness.waiting import until


@pytest.fixture
def turns() -> Iterator[Any]:
    bell = Wakeup()
    engine = SimpleNamespace(
        descriptors=(), pumped_at=0, next_deadline=lambda: None,
        exchanges=SimpleNamespace(awaits_one=False),
    )  # fmt: skip
    yield SimpleNamespace(
        _at_socket=False, _engine=engine, _bell=bell, _readable=False, _polled=(), _told=0,
        _busy=None, lock=threading.Condition(), closed=False,
    )  # fmt: skip
    bell.close()


def wait(turns: Any, left: float = 1.0) -> None:
    with turns.lock:
        Runner._wait_for_news(turns, left)


def test_a_bell_that_woke_a_thread_is_silent_when_the_next_one_sleeps(turns: Any) -> None:
    """It would wake every sleeper at once from then on."""
    turns._bell.ring()
    wait(turns)
    assert not select.select([turns._bell.descriptor], [], [], 0)[0]
    assert not turns._at_socket
    assert not turns._readable, "nothing came on the connection"


def test_after_a_wait_that_found_nothing_the_connection_is_asked(turns: Any) -> None:
    """More came at once than one turn takes: it was received, and no descriptor tells of it."""
    turns._engine.next_deadline = lambda: 0
    wait(turns)
    assert turns._readable


@pytest.mark.parametrize("told", [True, False])
def test_who_waited_for_another_asks_the_connection_when_the_time_is_over(
    turns: Any, told: bool
) -> None:
    """Whoever is told learns from the other one what came."""
    turns.lock = SimpleNamespace(wait=lambda _pause: told)
    Runner._be_told(turns, 1.0)
    assert turns._readable is not told
    assert turns._told == 0


def test_only_who_waits_for_an_answer_that_soon_comes_looks_before_it_sleeps(turns: Any) -> None:
    looked: list[float] = []
    turns._busy = SimpleNamespace(wait=lambda poll, pause: looked.append(pause) or poll(0))
    turns._engine.exchanges.awaits_one = True
    turns._bell.ring()
    wait(turns, 0.1)
    assert looked == [0.1]
    assert not turns._readable, "the bell rang, as if it had slept"
    turns._engine.exchanges.awaits_one = False
    turns._bell.ring()
    wait(turns, 0.1)
    assert looked == [0.1]


def test_a_verb_takes_the_lock_once() -> None:
    """Each time it is taken, signals are put off and let in again: that is a tenth of a get."""
    done: list[str] = []

    @contextmanager
    def lock() -> Iterator[None]:
        done.append("lock")
        yield
        done.append("unlock")

    def verb() -> Generator[Ticket[None], None, str]:
        for _ in range(2):
            yield Ticket[None]()
        return "an answer"

    def wait_here(ready: Callable[[], bool], timeout: float | None, what: str) -> None:
        done.append(f"wait {timeout}")

    engine = SimpleNamespace(check_open=lambda: done.append("is it ours"))
    turns: Any = SimpleNamespace(_engine=engine, _changes=[], lock=lock(), wait_here=wait_here)
    assert Runner.run(turns, verb(), timeout=2.0) == "an answer"
    assert done == ["is it ours", "lock", "wait 2.0", "wait 2.0", "unlock"]


def test_a_verb_whose_wait_is_interrupted_is_closed_under_the_lock() -> None:
    """What it does at its end moves the engine."""
    done: list[str] = []

    @contextmanager
    def lock() -> Iterator[None]:
        try:
            yield
        finally:
            done.append("unlock")

    def verb() -> Generator[Ticket[None], None, None]:
        try:
            yield Ticket[None]()
        finally:
            done.append("closed")

    def wait_here(*_: object) -> None:
        raise KeyboardInterrupt

    engine = SimpleNamespace(check_open=lambda: None)
    turns: Any = SimpleNamespace(_engine=engine, _changes=[], lock=lock(), wait_here=wait_here)
    with pytest.raises(KeyboardInterrupt):
        Runner.run(turns, verb())
    assert done == ["closed", "unlock"]


def test_a_thread_that_waits_for_another_at_the_socket_is_told_when_that_one_is_back(
    turns: Any,
) -> None:
    """Else it would learn of its answer only when its own time is over."""
    waited: list[float] = []
    condition = turns.lock
    wait_of = condition.wait

    def counted(pause: float) -> bool:
        waited.append(pause)
        return wait_of(600)  # so long that only being told ends it

    condition.wait = counted
    turns._be_told = lambda pause: Runner._be_told(turns, pause)
    turns._at_socket = True  # another thread's
    told = threading.Thread(target=wait, args=(turns,), daemon=True)
    told.start()
    until(lambda: waited)
    with condition:
        turns._at_socket = False
    turns._bell.ring()
    wait(turns)  # the other thread comes back from the socket
    told.join(30)
    assert not told.is_alive()
    assert turns._told == 0
