"""What is drawn for puts that are required: stored, or refused where nobody would get them.

Some go to a topic that nobody subscribes to in the beginning; clients come and go there.
"""

from collections.abc import Iterator
from itertools import count
from random import Random

from simulator.schedule.cast import LATE, SETTLING_MS, Cast, Value, WorldStep

NUMBERS = 40_000  # of the puts


def required_deeds(cast: Cast, draw: Random) -> Iterator[WorldStep]:
    """Everything that is about what is required."""
    numbers = count(NUMBERS)
    for _ in range(cast.options.required):
        at = draw.randrange(SETTLING_MS, cast.options.chaos_ms)
        if draw.random() < 0.2:
            yield from _visit(cast, draw, at)
            continue
        if draw.random() < 0.3:
            yield from _commit(cast, draw, at, next(numbers))
            continue
        args: dict[str, Value] = {
            "number": next(numbers),
            "topic": draw.choice([LATE, LATE, *cast.topics]),
            "count": draw.choice((1, 1, 3)),
            "size": draw.randrange(8, cast.options.size_max),
            "durable": draw.random() < 0.8,
            "wait": draw.random() < 0.5,
            "older": draw.random() < 0.3,
            "again": draw.choice((1, 1, 4)),
            "required": draw.random() < 0.8,
        }
        yield WorldStep(at, "put", draw.choice([*cast.publishers, *cast.guests]), args)


def _commit(cast: Cast, draw: Random, at: int, number: int) -> Iterator[WorldStep]:
    """A stage whose commit is required; now and then the last subscriber leaves just then."""
    args: dict[str, Value] = {"number": number * 10, "topic": LATE, "count": 1, "size": 9}
    args |= {"owner": "required", "commit": number, "required": True}
    who = draw.choice(cast.subscribers)
    if draw.random() < 0.5:
        yield WorldStep(max(0, at - 100), "subscribe", who, {"topic": LATE, "where": "new"})
        yield WorldStep(at + draw.choice((0, 1, 2, 5, 20)), "unsubscribe", who, {"topic": LATE})
    yield WorldStep(at, "stage", draw.choice([*cast.lasting, *cast.guests]), args)


def _visit(cast: Cast, draw: Random, at: int) -> Iterator[WorldStep]:
    """Somebody subscribes for a while, or for good."""
    who = draw.choice(cast.subscribers)
    yield WorldStep(at, "subscribe", who, {"topic": LATE, "where": "new"})
    if draw.random() < 0.5:
        yield WorldStep(at + draw.choice((200, 2_000)), "unsubscribe", who, {"topic": LATE})
