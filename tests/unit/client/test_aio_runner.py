"""When the event loop moves the engine of an asyncio client."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from oncemq.client.aio.runner import AsyncRunner


class CountingEngine:
    """An engine that has nothing to do, and counts how often it is moved."""

    def __init__(self) -> None:
        self.pumps = 0
        self.closed = True  # there is nothing to close
        self.failure = None
        self.descriptors = ()
        self.outflow = SimpleNamespace(idle=True)

    def pump(self, *, readable: bool) -> None:
        self.pumps += 1

    def next_deadline(self) -> None:
        return None

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
