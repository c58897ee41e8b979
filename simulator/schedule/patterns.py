"""What is drawn for watchers, who subscribe by pattern, and for the topics they watch.

The first watcher stays subscribed, so that what it misses is missed; the other comes and goes. A
topic is made by the first put to it, at any time; one of them is deleted and made anew.
"""

from collections.abc import Iterator
from itertools import count
from random import Random

from simulator.schedule.cast import MORTAL, SETTLING_MS, Cast, Value, WorldStep
from simulator.schedule.options import LISTENING

PATTERNS = ("x.*", "x.>", "*.a", ">", "x.*.b", "*")
NUMBERS = 30_000  # of the puts


def wild_deeds(cast: Cast, draw: Random) -> Iterator[WorldStep]:
    """Everything that is about patterns."""
    options = cast.options
    if not options.wild:
        return
    numbers = count(NUMBERS)
    births = {
        topic: draw.choice((SETTLING_MS, draw.randrange(SETTLING_MS, options.chaos_ms)))
        for topic in cast.wild_topics
    }
    if cast.has("full_disk"):
        at = draw.randrange(options.chaos_ms // 2, options.chaos_ms)
        yield from _refused(cast, draw, at, next(numbers))
    for topic, at in births.items():
        yield from _birth(cast, draw, at, topic, next(numbers))
    for who, pattern in zip(cast.watchers, draw.sample(PATTERNS, 2), strict=True):
        yield WorldStep(draw.randrange(50, 250), "subscribe", who, _asked(draw, pattern))
    for _ in range(options.wild):
        at = draw.randrange(SETTLING_MS, options.chaos_ms)
        kind = draw.random()
        if kind < 0.45:
            topic = draw.choice([*cast.wild_topics, MORTAL])
            at = draw.randrange(births[topic], options.chaos_ms)
            yield _put(cast, draw, at, topic, next(numbers))
        elif kind < 0.8:
            yield _get(cast, draw, at)
        elif kind < 0.95:
            yield from _move(cast, draw, at)
        elif cast.mortal_topics:
            yield from _delete(cast, draw, at)


def _asked(draw: Random, asked: str) -> dict[str, Value]:
    return {"topic": asked, "where": "earliest" if draw.random() < 0.2 else "new"}


def _birth(cast: Cast, draw: Random, at: int, topic: str, number: int) -> Iterator[WorldStep]:
    """The first put to a topic; some are cut short by the power."""
    if _power_fails(cast) and draw.random() < 0.5:
        yield _power_cut(at - 1, draw.choice(("TORN", "PREFIX")))
    yield _put(cast, draw, at, topic, number)


def _power_fails(cast: Cast) -> bool:
    return any(map(cast.has, ("server_cut", "server_trap", "blackout")))


def _power_cut(at: int, mode: str) -> WorldStep:
    """With the next sync."""
    args: dict[str, Value] = {"mode": mode, "down_ms": 1, "again": False}
    return WorldStep(at, "trap_server", "", {**args, "calls": "sync", "left": 1})


def _refused(cast: Cast, draw: Random, at: int, number: int) -> Iterator[WorldStep]:
    """A put that finds no room, while copies of it are under way that come when there is some."""
    who = draw.choice(cast.publishers)
    yield WorldStep(at, "fill_disk", "", {"spare": 0, "for_ms": 300})
    yield WorldStep(at, "double", who, {"count": 4, "delay_ms": 900})
    args: dict[str, Value] = {"number": number, "topic": "x.b", "count": 1, "size": 9, "again": 1}
    yield WorldStep(at + 1, "put", who, {**args, "durable": draw.random() < 0.5, "wait": True})


def _put(cast: Cast, draw: Random, at: int, topic: str, number: int) -> WorldStep:
    args: dict[str, Value] = {
        "number": number,
        "topic": topic,
        "count": draw.choice((1, 1, 3)),
        "size": draw.randrange(8, cast.options.size_max),
    }
    alone = topic == MORTAL or cast.options.back  # nor does a commit of a lost future
    if draw.random() < 0.15 and not alone:  # a topic may be made by a commit, or under a key
        args["number"] = number * 10
        do = draw.choice(("stage", "keyed"))
        more: dict[str, Value] = {"owner": "wild", "commit": number} if do == "stage" else {}
        return WorldStep(at, do, draw.choice([*cast.lasting, *cast.guests]), args | more)
    args |= {
        "durable": draw.random() < 0.8,
        "wait": draw.random() < 0.5,
        "older": draw.random() < 0.3,
        "again": draw.choice((1, 1, 3)),
    }
    return WorldStep(at, "put", draw.choice([*cast.publishers, *cast.guests]), args)


def _delete(cast: Cast, draw: Random, at: int) -> Iterator[WorldStep]:
    """While copies of it are under way, if this world has such, the topic may be made anew."""
    who = draw.choice(cast.publishers)
    if cast.has("double"):
        args: dict[str, Value] = {"count": 3, "delay_ms": draw.choice((30, 300, 900))}
        yield WorldStep(at, "double", who, args)
    yield WorldStep(at, "delete", who, {"topic": MORTAL})


def _get(cast: Cast, draw: Random, at: int) -> WorldStep:
    who = draw.choice(cast.watchers)
    args: dict[str, Value] = {
        "limit": draw.choice((1, 5, 20)),
        "wait_ms": draw.choice((0, 300, 2_000)),
        "older": draw.random() < 0.2,
        "hold_ms": draw.choice((0, 0, 20, 400)),
        "fails": draw.random() < 0.2,
        "rounds": draw.choice((1, 1, 4)),
    }
    if cast.has(LISTENING) and draw.random() < 0.5:
        args |= {
            "topics": " ".join(draw.sample(PATTERNS, draw.choice((0, 1, 1, 2)))),
            "leaves": draw.random() < 0.2,
        }
        return WorldStep(at, "listen", who, args)
    return WorldStep(
        at, "get", who, args | {"topic": draw.choice(("", *PATTERNS, *cast.wild_topics))}
    )


def _move(cast: Cast, draw: Random, at: int) -> Iterator[WorldStep]:
    """Subscribe to something more, or leave something, look for messages and come back."""
    named = [topic for topic in cast.wild_topics if topic != MORTAL]  # it ends with each life
    if draw.random() < 0.3:
        who, asked = draw.choice(cast.watchers), draw.choice((*PATTERNS, *named))
        yield WorldStep(at, "subscribe", who, _asked(draw, asked))
        return
    who, asked = cast.watchers[1], draw.choice((*PATTERNS, *PATTERNS, *named))
    pause = draw.choice((0, 5, 500))
    yield WorldStep(at, "unsubscribe", who, {"topic": asked})
    if cast.has("reset") and draw.random() < 0.5:  # its answer may be lost
        yield WorldStep(at + draw.choice((1, 3, 15)), "reset", who)
    if draw.random() < 0.6:
        looked = draw.choice(("", "x.a", "x.b", "x.v"))
        yield WorldStep(at + pause // 2, "get", who, {"topic": looked, "limit": 5, "wait_ms": 0})
    if draw.random() < 0.7:
        lost = _power_fails(cast) and draw.random() < 0.5  # what it gets, with its subscription
        earliest: dict[str, Value] = {"topic": asked, "where": "earliest"}
        args = earliest if lost else _asked(draw, asked)
        yield WorldStep(at + pause, "subscribe", who, args)
        if lost:
            yield WorldStep(at + pause, "slow_disk", "", {"sync_ms": 200, "for_ms": 400})
            yield WorldStep(
                at + pause + 1, "get", who, {"topic": asked, "limit": 20, "wait_ms": 300}
            )
            yield _power_cut(at + pause + 1, "NOTHING")
