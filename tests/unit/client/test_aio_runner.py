"""When the event loop moves the engine of an asyncio client."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from oncemq.client.aio import runner
from oncemq.client.aio.runner import AsyncRunner


class CountingEngine:
    """An engine that has nothing to do, and counts how often it is moved."""

    def __init__(self) -> None:
        self.pumps = 0
        self.closed = True  # there is nothing to close
        self.failure = None
        self.descriptors = ()
        self.outflow = SimpleNamespace(idle=True)
        self.deadline: int | None = None

    def pump(self, *, readable: bool) -> None:
        self.pumps += 1

    def next_deadline(self) -> int | None:
        return self.deadline

    def check_open(self) -> None:
        """It was not closed."""


async def test_the_puts_of_one_turn_of_the_loop_move_the_engine_once_and_at_once() -> None:
    engine = CountingEngine()
    turns = AsyncRunner(cast("Any", engine), timeout=1.0)
    for expected in (1, 2):
        turns.pump_soon()
        turns.pump_soon()
        assert engine.pumps == expected - 1
        await asyncio.sleep(0)
        assert engine.pumps == expected
    turns.close()
    turns.pump_soon()
    await asyncio.sleep(0)
    assert engine.pumps == 2


@pytest.fixture
async def timers(monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, asyncio.TimerHandle]]:
    """What the loop is asked to do later, and after how many seconds."""
    loop = asyncio.get_running_loop()
    timers: list[tuple[float, asyncio.TimerHandle]] = []
    call_later = loop.call_later

    def noted(delay: float, callback: Any) -> asyncio.TimerHandle:
        timers.append((delay, call_later(delay, callback)))
        return timers[-1][1]

    monkeypatch.setattr(loop, "call_later", noted)
    return timers


async def test_however_often_it_was_moved_one_timer_moves_the_engine_again(timers) -> None:
    """Each timer begins the next: those that were left would never end."""
    turns = AsyncRunner(cast("Any", CountingEngine()), timeout=1.0)
    for _ in range(3):
        turns.pump()
    assert [timer.cancelled() for _, timer in timers] == [True, True, False]
    turns.close()
    assert [timer.cancelled() for _, timer in timers] == [True, True, True]


@pytest.mark.parametrize(
    ("due", "seconds"),
    [
        (None, runner.IDLE_SECONDS),
        (50_000, 0.05),
        (0, 0.001),
        (-9, 0.001),
        (3_600_000_000, runner.IDLE_SECONDS),
    ],
)
async def test_an_engine_is_moved_again_when_it_says_and_now_and_then_in_any_case(
    timers, monkeypatch: pytest.MonkeyPatch, due: int | None, seconds: float
) -> None:
    now = 7_000_000
    monkeypatch.setattr(runner, "monotonic_clock", lambda: now)
    engine = CountingEngine()
    engine.deadline = None if due is None else now + due
    turns = AsyncRunner(cast("Any", engine), timeout=1.0)
    turns.pump()
    assert [delay for delay, _ in timers] == [seconds]
    turns.close()
