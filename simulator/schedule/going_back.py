"""What is drawn for a server that goes back in time: backups, and when one is restored."""

from collections.abc import Iterator
from random import Random

from simulator.schedule.cast import SETTLING_MS, Cast, Value, WorldStep

TWICE = 0.4  # how often one backup is restored twice: what was stored in between is a branch


def back_deeds(cast: Cast, draw: Random) -> Iterator[WorldStep]:
    """A backup or two, and later one going back; to the same backup once more, sometimes."""
    if not cast.options.back:
        return
    if cast.options.leaving:
        yield from _leaving(draw.randrange(2_000, 3_000), cast, draw)
        return
    chaos_ms = cast.options.chaos_ms
    backed_up = draw.randrange(SETTLING_MS, chaos_ms * 2 // 3)
    yield WorldStep(backed_up, "back_up")
    if draw.random() < 0.4:
        backed_up = draw.randrange(backed_up, chaos_ms * 3 // 4)
        yield WorldStep(backed_up, "back_up")
    at = draw.randrange(backed_up + 50, chaos_ms)
    do = "damage" if draw.random() < 0.3 else "go_back"
    yield WorldStep(at, do, "", {"down_ms": draw.choice((20, 500, 2_000))})
    # A database may take effects of another branch again: nobody could judge those.
    if draw.random() < TWICE and not cast.options.inbox:
        at = draw.randrange(at, chaos_ms)
        yield WorldStep(at, "go_back", "", {"down_ms": draw.choice((20, 500, 2_000))})


def _leaving(at: int, cast: Cast, draw: Random) -> Iterator[WorldStep]:
    """A pattern is left after the backup, some when it had messages that it works on."""
    who, pattern = cast.watchers[1], draw.choice(("x.*", "x.>", "*.a", ">"))
    yield WorldStep(at - 1_000, "subscribe", who, {"topic": pattern, "where": "earliest"})
    args: dict[str, Value] = {"number": next(cast.numbers), "topic": "x.a", "count": 3, "size": 9}
    args |= {"durable": True, "wait": True, "older": False, "again": 1}
    yield WorldStep(at - 500, "put", cast.publishers[0], args)
    yield WorldStep(at, "back_up")
    if draw.random() < 0.6:
        args = {"topic": pattern, "limit": 1, "wait_ms": 0, "hold_ms": 400, "rounds": 2}
        yield WorldStep(at + 100, "get", who, args)
    yield WorldStep(at + draw.choice((200, 300, 600)), "unsubscribe", who, {"topic": pattern})
    yield WorldStep(at + 1_500, "go_back", "", {"down_ms": 20})
