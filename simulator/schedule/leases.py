"""What is drawn for clients whose subscriptions are leased: they renew, late or not at all."""

from collections.abc import Iterator
from itertools import count
from random import Random

from simulator.schedule.cast import SETTLING_MS, Cast, Value, WorldStep

LEASE_MS = 1_200  # the same for all: a shorter one would cut a longer one short


def lease_deeds(cast: Cast, draw: Random) -> Iterator[WorldStep]:
    """What holders do: each renews for a while, some with a gap, and gets."""
    chaos_ms = cast.options.chaos_ms
    for who in cast.holders:
        for topic in cast.topics:
            yield WorldStep(
                draw.randrange(50, 250), "subscribe", who, {"topic": topic, "where": "new"}
            )
        ends = draw.choice((chaos_ms, draw.randrange(SETTLING_MS, chaos_ms)))
        pause = draw.choice((0, 0, 2_500))
        paused = draw.randrange(SETTLING_MS, chaos_ms)
        for at in count(SETTLING_MS, LEASE_MS // 4):
            if at >= ends:
                break
            if not paused <= at < paused + pause:
                yield WorldStep(at, "lease", who, {"lease_ms": LEASE_MS})
    for _ in range(cast.options.leases):
        args: dict[str, Value] = {"topic": draw.choice(cast.topics), "limit": 20}
        args |= {"wait_ms": draw.choice((0, 300)), "older": False, "rounds": 1}
        at = draw.randrange(SETTLING_MS, chaos_ms)
        yield WorldStep(at, "get", draw.choice(cast.holders), args)
