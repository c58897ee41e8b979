"""The loop's turns: they end, whatever comes in; and what waits for the disk is bounded."""

from collections.abc import Iterator
from functools import partial
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from oncemq.broker.expiry import Calendar
from oncemq.protocol.limits import ServerLimits
from oncemq.protocol.names import Micros
from oncemq.protocol.requests import CreateTopic, ListTopics, StatusRequest
from oncemq.server import loop as loop_module
from oncemq.server.housekeeping import Housekeeping
from oncemq.server.loop import SLOW_SYNC_MICROS, Loop, TurnLimits
from oncemq.wire import codec


class StubDoor:
    """Always has one more request; notes how the loop waits."""

    def __init__(self, request: list[Any]) -> None:
        self.request, self.waits = request, list[str]()
        self.connections = SimpleNamespace(tell=None, status={})
        self.has_more = True  # somebody always stands there

    def watch(self, bell: Any) -> None: ...
    def close(self) -> None: ...
    def reaches(self, route: bytes) -> bool:
        return True

    def takes(self, route: bytes) -> bool:
        return True

    def wait(self, timeout_ms: int) -> None:
        self.waits.append("wait")

    def rest(self, timeout_ms: int) -> None:
        self.waits.append("rest")

    def receive(self) -> tuple[bytes, list[Any]]:
        return b"route", self.request

    def send(self, route: bytes, frames: Any) -> bool:
        return True


class Ticking:
    """A clock that says what it is told."""

    def __init__(self, now: Any) -> None:
        self._now, self.calendar = now, Calendar()

    def __call__(self) -> Micros:
        return Micros(self._now())

    steady = __call__


@pytest.fixture
def looping_on() -> Iterator[Any]:
    loops: list[Loop] = []

    def make(host: Any, request: list[Any], clock: Any = None) -> tuple[Loop, StubDoor]:
        door = StubDoor(request)
        keeping = Housekeeping(host.driver, Micros(host.now))
        clock = Ticking(clock or (lambda: host.now))
        loops.append(Loop(host.driver, door, None, keeping, clock))  # type: ignore[arg-type]
        return loops[-1], door

    yield make
    for each in loops:
        each._writer.stop()
        each._janitor.stop()
        each._bell.close()


@pytest.fixture
def looping(host: Any, looping_on: Any) -> Any:
    return partial(looping_on, host)


def test_a_turn_takes_so_many_requests(host: Any, looping: Any) -> None:
    loop, _ = looping(codec.encode_request(1, StatusRequest()))
    assert loop._receive(Micros(host.now)) == TurnLimits().requests


def test_a_turn_ends_by_bytes(host: Any, looping: Any) -> None:
    put, body = host.putting("orders", bytes(4 << 20))
    loop, _ = looping(codec.encode_request(1, put, body))
    assert loop._receive(Micros(host.now)) == 4


def test_a_turn_ends_by_time(host: Any, looping: Any) -> None:
    ticks = count(host.now, 75)
    loop, _ = looping(codec.encode_request(1, StatusRequest()), lambda: next(ticks))
    assert loop._receive(Micros(next(ticks))) == 4


def test_the_loop_waits_no_longer_than_until_something_is_due(host: Any, looping: Any) -> None:
    moment = host.now
    loop, _ = looping(codec.encode_request(1, StatusRequest()), lambda: moment)
    assert loop._timeout_ms() == loop_module.IDLE_MS
    host.subscribe("orders")
    host.send(host.getting("orders", wait_ms=30))
    due = host.now + 30_000
    for before, waits in ((30_000, 30), (29_001, 30), (29_000, 29), (1, 1), (0, 0), (-5_000, 0)):
        moment = due - before
        assert loop._timeout_ms() == waits


def test_what_gathers_while_a_sync_stalls_is_bounded(make_host: Any, looping_on: Any) -> None:
    host = make_host(rules=ServerLimits(gathered_bytes_max=1000))
    host.subscribe("orders")
    loop, door = looping_on(host, [])
    host.send(*host.putting("orders", b"x" * 600))
    host.sequences["orders", b"p" * 16] = 1
    group = host.driver.commit(Micros(host.now))  # and its sync takes long
    assert not host.driver.is_full
    host.send(*host.putting("orders", b"x" * 600))
    assert host.driver.is_full
    assert loop._receive(Micros(host.now)) == 0
    loop._writer.under_way = 1  # the sync is under way
    loop._turn(0)
    assert door.waits == ["rest"]
    loop._writer.under_way = 0
    host.log.write(group)
    host.driver.written(group, Micros(host.now))
    assert not host.driver.is_full


def test_so_many_answers_may_wait_for_the_disk(make_host: Any) -> None:
    host = make_host(rules=ServerLimits(held_answers_max=2))
    host.subscribe("orders")
    for is_full in (False, True):
        host.send(*host.putting("orders", b"x"))
        host.sequences["orders", b"p" * 16] = host.sequences.get(("orders", b"p" * 16), 0) + 1
        assert host.driver.is_full is is_full
    host.commit()
    assert not host.driver.is_full


def test_the_time_that_passed_is_told_to_the_driver_in_the_next_turn(
    host: Any, looping: Any
) -> None:
    """Nothing grows older but by it."""
    loop, _ = looping([])
    loop._receive = lambda _: 0
    passed = Calendar(host.now, passed=8 * 86_400_000_000)
    loop._clock.calendar = passed
    loop._turn(0)
    assert host.driver.calendar == passed


def test_a_loop_that_ended_leaves_no_thread(host: Any, looping: Any) -> None:
    loop, _ = looping(codec.encode_request(1, StatusRequest()))
    threads = [each._thread for each in (loop._writer, loop._janitor)]
    assert all(each.is_alive() for each in threads)
    loop.stop()
    loop.run()
    assert not any(each.is_alive() for each in threads)


@pytest.mark.parametrize("what", ["answers", "facts"])
def test_what_is_asked_while_a_sync_stalls_is_bounded(make_host: Any, what: str) -> None:
    """An answer that waits for the disk may be a long list; a fact, of many parts."""
    host = make_host(rules=ServerLimits(gathered_bytes_max=50_000))
    for n in range(50):
        host.ask(CreateTopic(f"topic {n}"))
    host.send(CreateTopic("on its way to the disk"))
    group = host.driver.commit(Micros(host.now))
    asked = 0
    while not host.driver.is_full:
        if what == "answers":
            host.send(ListTopics())
        else:
            host.send(CreateTopic(f"{asked}".rjust(200, "x")))
        asked += 1
    assert 5 < asked < 300
    host.log.write(group)
    host.driver.written(group, Micros(host.now))
    host.commit()
    assert not host.driver.is_full
    assert len(host.replies()) == asked + 1


def test_the_writer_has_its_moments_while_the_loop_has_more_to_do(
    host: Any, looping: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was woken too late to get Python's lock: with a flood on the feed, after 50 ms."""
    slept: list[int] = []
    monkeypatch.setattr(loop_module.time, "sleep", lambda _: slept.append(host.now))
    loop, door = looping([])
    monkeypatch.setattr(loop, "_receive", lambda _: 0)
    for under_way, has_more, passed in (
        *((0, True, 1_000), (1, False, 1_000)),
        *((1, True, 1_000), (1, True, 100), (1, True, 100)),
    ):
        host.now += passed
        loop._writer.under_way, door.has_more = under_way, has_more
        loop._turn(0)
    loop._writer.under_way = 0
    assert slept == [host.now - 200, host.now]


def test_the_status_is_answered_while_a_sync_stalls(host: Any) -> None:
    host.subscribe("orders")
    host.send(*host.putting("orders", b"a"))
    token = host.send(StatusRequest())
    assert list(host.replies()) == [token]


@pytest.mark.parametrize(("micros", "told"), [(SLOW_SYNC_MICROS - 1, 0), (SLOW_SYNC_MICROS, 1)])
def test_a_slow_sync_is_told_and_a_quick_one_is_not(
    host: Any, looping: Any, micros: int, told: int
) -> None:
    host.subscribe("orders")
    loop, _ = looping([])
    host.send(*host.putting("orders", b"a"))
    group = host.driver.commit(Micros(host.now))
    tasks: list[Any] = []
    loop._writer.give = lambda *work: tasks.append(work)
    loop._give(group)
    ((write, done),) = tasks
    write()
    host.now += micros
    done()
    assert host.driver.events.counts["slow_sync"] == told


def test_what_a_thread_waits_for_its_turn_is_not_taken_for_a_slow_disk(
    host: Any, looping: Any
) -> None:
    host.subscribe("orders")
    loop, _ = looping([])
    host.send(*host.putting("orders", b"a"))
    group = host.driver.commit(Micros(host.now))
    tasks: list[Any] = []
    loop._writer.give = lambda *work: tasks.append(work)
    loop._give(group)
    ((write, done),) = tasks
    host.now += 5_000  # before the thread wakes
    loop._driver.log.write = lambda _: setattr(host, "now", host.now + 90)
    write()
    host.now += 5_000  # before the loop does
    done()
    assert loop._sync_micros == 90


def test_after_a_slow_sync_the_loop_is_soon_back_and_a_slow_disk_stays_with_the_writer(
    looping: Any,
) -> None:
    loop, _ = looping([])
    assert loop._sync_micros < loop_module.QUICK_MICROS
    loop._note_sync(2_000)
    away = 0
    while loop._sync_micros >= loop_module.QUICK_MICROS:
        loop._note_sync(90)
        away += 1
    assert 8 <= away <= 12
    for _ in range(1_000):
        loop._note_sync(600)
    assert loop._sync_micros >= loop_module.QUICK_MICROS
