"""Clients that nobody closed, and copies in forked processes: what is let go, and what is not."""

import ctypes
import gc
import os
import signal
import sys
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from oncemq.client.aio.runner import WatchedDescriptors, _close_for_good
from oncemq.client.blocking.runner import _close_for_good as close_turns
from oncemq.client.shell import forks, opening
from oncemq.client.shell.abandoned import let_go
from oncemq.client.shell.signals import SHIELD, SignalSafeLock
from oncemq.client.state.state import State, open_state
from oncemq.errors import Forked
from oncemq.transport.wakeup import Wakeup

ERROR = Forked("this client was made by another process")


@pytest.fixture
def heard() -> Iterator[list[str]]:
    """What happened; a SIGUSR1 is noted there."""
    heard: list[str] = []
    before = signal.signal(signal.SIGUSR1, lambda *_: heard.append("signal"))
    yield heard
    SHIELD.forked()
    signal.signal(signal.SIGUSR1, before)


def noting(heard: list[str], **options: Any) -> State:
    """The state of an anonymous client; while it is closed, a signal comes."""

    def close() -> None:
        heard.append("closing")
        signal.raise_signal(signal.SIGUSR1)
        heard.append("closed")

    return State(
        "_ada",
        journal=None,
        slots=[],
        directory="",
        random_bytes=lambda size: b"r" * size,
        close=close,
        disown=lambda: heard.append("disowned"),
        **options,
    )


def warned_here(warned: pytest.WarningsRecorder, name: str) -> bool:
    (warning,) = warned
    said = str(warning.message) == f"client '{name}' was not closed"
    return said and warning.filename == __file__


def test_what_lasts_is_recorded_and_said_to_be_so(world, caplog: pytest.LogCaptureFixture) -> None:
    ada = world.client("ada")
    ada.gather("orders", b"1")
    with pytest.warns(ResourceWarning) as warned:
        let_go(ada.engine)
    assert warned_here(warned, "ada")
    assert caplog.messages[-1] == "client not closed client=ada unsent=1: recorded in state"
    assert (ada.engine.closed, ada.wire.up) == (True, False)
    assert world.crashed("ada").engine.outflow.unsent == 1


def test_what_is_lost_is_said_to_be_so(world, caplog: pytest.LogCaptureFixture) -> None:
    guest = world.client()
    guest.gather("orders", b"1")
    with pytest.warns(ResourceWarning) as warned:
        let_go(guest.engine)
    assert warned_here(warned, guest.engine.client)
    lost = f"client not closed client={guest.engine.client} unsent=1: lost: it has no id"
    assert caplog.messages[-1] == lost
    assert guest.engine.closed


def test_nothing_is_said_of_puts_where_there_were_none(
    world, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.warns(ResourceWarning):
        let_go(world.client("ada").engine)
    assert not [each for each in caplog.messages if "not closed" in each]


def test_a_signal_meanwhile_is_handled_when_all_is_closed(world, heard: list[str]) -> None:
    node = world._node("_ada", None, [], lambda: None)
    node.engine.state = noting(heard)
    with pytest.warns(ResourceWarning):
        let_go(node.engine)
    assert heard == ["closing", "closed", "signal"]
    signal.raise_signal(signal.SIGUSR1)
    assert heard[3:] == ["signal"]


def test_a_blocking_client_is_let_go_with_its_bell_and_its_lock(world) -> None:
    engine, bell, lock = world.client("ada").engine, Wakeup(), SignalSafeLock()
    with pytest.warns(ResourceWarning, match="client 'ada' was not closed"):
        close_turns(engine, bell, lock)
    assert engine.closed
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(bell.descriptor)
    with ThreadPoolExecutor(1) as pool:  # a lock that is held is its holder's to take again
        assert pool.submit(lock.acquire, blocking=False).result()


class Loop:
    """An event loop, running or not, open or not, and what it was asked."""

    def __init__(self, *, runs: bool) -> None:
        self.runs = runs
        self.soon: list[tuple[Any, ...]] = []
        self.watched: set[int] = set()

    def is_running(self) -> bool:
        return self.runs

    def is_closed(self) -> bool:
        return False

    def add_reader(self, descriptor: int, callback: Any) -> None:
        self.watched.add(descriptor)

    def remove_reader(self, descriptor: int) -> None:
        self.watched.remove(descriptor)

    def call_soon_threadsafe(self, *call: Any) -> None:
        self.soon.append(call)


def watch_of(loop: Any) -> WatchedDescriptors:
    watch = WatchedDescriptors()
    watch.change(loop, (7, 8), lambda: None)
    return watch


def test_an_asyncio_client_is_let_go_by_its_loop_while_that_runs(world) -> None:
    engine, loop = world.client("ada").engine, Loop(runs=True)
    _close_for_good(engine, watch_of(loop))
    assert (engine.closed, loop.watched) == (False, {7, 8})
    ((call, *arguments),) = loop.soon
    with pytest.warns(ResourceWarning, match="client 'ada' was not closed"):
        call(*arguments)
    assert (engine.closed, loop.watched) == (True, set())


def test_an_asyncio_client_is_let_go_at_once_when_its_loop_is_over(world) -> None:
    engine, loop = world.client("ada").engine, Loop(runs=False)
    with pytest.warns(ResourceWarning, match="client 'ada' was not closed"):
        _close_for_good(engine, watch_of(loop))
    assert (engine.closed, loop.watched, loop.soon) == (True, set(), [])


def test_an_asyncio_client_that_never_ran_is_let_go_at_once(world) -> None:
    engine = world.client("ada").engine
    with pytest.warns(ResourceWarning, match="client 'ada' was not closed"):
        _close_for_good(engine, WatchedDescriptors())
    assert engine.closed


def test_a_client_that_was_closed_is_not_let_go_again(world) -> None:
    ada, loop = world.client("ada"), Loop(runs=True)
    ada.close()
    _close_for_good(ada.engine, watch_of(loop))
    assert (loop.soon, loop.watched) == ([], {7, 8})


# Forks


def test_a_copy_of_an_engine_is_closed_touches_nothing_and_says_why(
    world, heard: list[str]
) -> None:
    node = world._node("_ada", None, [], lambda: None)
    node.engine.check_open()
    node.engine.state = noting(heard)
    node.engine.disown(ERROR)
    assert (node.engine.failure, node.engine.closed) == (ERROR, True)
    with pytest.raises(Forked, match="another process"):
        node.engine.check_open()
    node.engine.close()
    assert (heard, node.wire.up) == (["disowned"], True)


def test_a_copy_of_a_state_never_closes_the_journal_of_its_parent(tmp_path: Path) -> None:
    """Not even when the child's last reference to it is gone."""
    state = open_state("ada", tmp_path)
    journal: Any = state.journal
    database = journal._db
    before = sys.getrefcount(database)
    state.disown()
    assert sys.getrefcount(database) == before + 1
    ctypes.pythonapi.Py_DecRef(ctypes.py_object(database))
    state.close()


class Copy:
    """Something that must know of a fork."""

    def __init__(self) -> None:
        self.told: list[Forked] = []

    def forked(self, error: Forked) -> None:
        self.told.append(error)


def test_everything_that_lives_is_told_of_a_fork_once(
    monkeypatch: pytest.MonkeyPatch, heard: list[str]
) -> None:
    monkeypatch.setattr(forks, "_LIVING", weakref.WeakSet())
    monkeypatch.setattr(forks, "_process", 1)
    copies = [Copy(), Copy()]
    for each in copies:
        forks.tell_of_forks(each)
    gone = Copy()
    forks.tell_of_forks(gone)
    dead = weakref.ref(gone)
    del gone
    gc.collect()
    assert dead() is None  # it is not kept alive by that
    SHIELD.up()
    forks._in_child()
    signal.raise_signal(signal.SIGUSR1)
    assert heard == ["signal"]  # nothing is put off in the child
    for each in copies:
        (error,) = each.told
        assert "made by process 1," in str(error)
    forks._in_child()
    assert [len(each.told) for each in copies] == [1, 1]


# Beginnings that fail


def test_what_was_opened_is_closed_again_when_a_client_cannot_begin(
    monkeypatch: pytest.MonkeyPatch, heard: list[str]
) -> None:
    class Link:
        descriptors: tuple[int, ...] = ()

        def connect(self, address: str) -> None:
            raise OSError(f"no way to {address}")

        def close(self) -> None:
            heard.append("hung up")

    monkeypatch.setattr(opening, "DealerSocket", Link)
    with pytest.raises(OSError, match=r"no way to tcp://127\.0\.0\.1:5556"):
        opening.open_engine("", None, noting(heard), timeout=1.0, outbox_bytes_max=1 << 20)
    assert heard == ["hung up", "closing", "signal", "closed"]
