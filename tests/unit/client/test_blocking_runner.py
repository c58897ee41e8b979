"""The turns of a blocking client's threads."""

import select
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from oncemq.client.blocking.runner import Runner
from oncemq.transport.wakeup import Wakeup
from tests.harness.waiting import until


@pytest.fixture
def turns() -> Iterator[Any]:
    bell = Wakeup()
    engine = SimpleNamespace(descriptors=(), pumped_at=0, next_deadline=lambda: None)
    yield SimpleNamespace(
        _at_socket=False, _engine=engine, _bell=bell, _readable=False, _polled=(), _told=0,
        lock=threading.Condition(), closed=False,
    )  # fmt: skip
    bell.close()


def wait(turns: Any) -> None:
    with turns.lock:
        Runner._wait_for_news(turns, 1.0)


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
