"""Mishaps in which several things come in one order, which luck finds seldom.

No ordinary world has them: those that are aimed at a planted bug name them among their faults.
"""

from collections.abc import Iterator
from random import Random

from simulator.schedule.cast import Cast, Value, WorldStep


def recovered_cut(cast: Cast, draw: Random, at: int) -> Iterator[WorldStep]:
    """The server is killed while it writes, comes back, and loses power with its first sync."""
    for moment in (at - draw.choice((1, 5, 20)), at + draw.choice((100, 200))):
        yield _put(cast, draw, moment, draw.choice(cast.topics))
    yield WorldStep(at, "kill_server", "", {"down_ms": 1})
    yield _cut_with_next_sync(at + draw.choice((5, 20, 60, 100)))


def left_feed(cast: Cast, draw: Random, at: int) -> Iterator[WorldStep]:
    """A listener whose feed breaks goes on with another topic, and then the leftovers come."""
    who = draw.choice(cast.subscribers)
    heard, other = draw.sample(cast.topics, 2)
    yield _listen(at, who, heard, 500)
    put_at = at + draw.choice((250, 400))
    yield _put(cast, draw, put_at, heard, count=8)
    yield WorldStep(put_at + draw.choice((5, 15, 25, 35)), "reset", who)
    yield _listen(at + 500, who, other, 300)
    yield _put(cast, draw, at + 700, other)


def unsure_subscription(cast: Cast, draw: Random, at: int) -> Iterator[WorldStep]:
    """What somebody gets is lost with its subscription, which the disk does not have yet.

    Another one subscribes as well: else the number that was lost would be given to the same again.
    """
    *_, other, who = cast.subscribers
    topic = draw.choice(cast.topics)
    asked: dict[str, Value] = {"topic": topic}
    for each in (who, other):
        yield WorldStep(at, "unsubscribe", each, asked)
    yield _put(cast, draw, at + 20, topic)
    at += draw.choice((150, 300))
    yield WorldStep(at, "slow_disk", "", {"sync_ms": 200, "for_ms": 400})
    yield WorldStep(at, "subscribe", who, {**asked, "where": "earliest"})
    yield WorldStep(at + 1, "get", who, {**asked, "limit": 20, "wait_ms": 300})
    yield _cut_with_next_sync(at + 1)
    again_at = at + draw.choice((30, 100, 200, 250))
    yield WorldStep(again_at, "subscribe", other, {**asked, "where": "new"})


def _cut_with_next_sync(at: int) -> WorldStep:
    args: dict[str, Value] = {"mode": "NOTHING", "down_ms": 1, "again": False}
    return WorldStep(at, "trap_server", "", {**args, "calls": "sync", "left": 1})


def _put(cast: Cast, draw: Random, at: int, topic: str, *, count: int = 1) -> WorldStep:
    args: dict[str, Value] = {"number": next(cast.numbers), "topic": topic, "count": count}
    args |= {"size": 20, "durable": True, "wait": True, "older": False, "again": 1}
    return WorldStep(at, "put", draw.choice(cast.publishers), args)


def _listen(at: int, who: str, topic: str, wait_ms: int) -> WorldStep:
    args: dict[str, Value] = {"topics": topic, "limit": 5, "wait_ms": wait_ms, "hold_ms": 0}
    args |= {"fails": False, "leaves": False, "rounds": 3, "older": False}
    return WorldStep(at, "listen", who, args)


SEQUENCES = {
    "recovered_cut": recovered_cut,
    "left_feed": left_feed,
    "unsure_subscription": unsure_subscription,
}
