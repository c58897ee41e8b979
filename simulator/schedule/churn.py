"""What is drawn for publishers between two lives of a topic, and for disks of clients that fail.

Rolling restarts give a client two slots, each with its own numbers on a topic that is deleted and
made anew in between; kills come when a put is stored, and its receipt is still on its way.
"""

import errno
from collections.abc import Iterator
from itertools import count
from random import Random

from simulator.schedule.cast import MORTAL, SETTLING_MS, Cast, Value, WorldStep
from simulator.schedule.options import CLIENT_DISK

NUMBERS = 40_000  # of the puts
ERRORS = (errno.EIO, errno.ENOSPC, errno.EROFS, errno.EMFILE, errno.EDQUOT)
CALLS = ("", "write", "sync", "allocate", "create", "rename", "remove", "sync_directory")


def churn_deeds(cast: Cast, draw: Random) -> Iterator[WorldStep]:
    """Publishers, their slots and a topic with several lives."""
    numbers = count(NUMBERS)
    for _ in range(cast.options.churn):
        at = draw.randrange(SETTLING_MS, cast.options.chaos_ms)
        who = draw.choice(cast.publishers)
        kind = draw.random()
        if kind < 0.3:
            yield WorldStep(at, "twin", who)
            yield _put(draw, at + draw.choice((10, 100)), who, next(numbers))
            yield _put(draw, at + draw.choice((10, 100)), who, next(numbers), older=True)
        elif kind < 0.6:
            yield WorldStep(at, "delete", draw.choice(cast.publishers), {"topic": MORTAL})
            at += draw.choice((20, 200))
        if kind < 0.8:
            yield _put(draw, at, who, next(numbers))
        yield WorldStep(at + draw.choice((0, 1, 2, 5, 40)), "kill", who, {"down_ms": 1})


def _put(draw: Random, at: int, who: str, number: int, *, older: bool = False) -> WorldStep:
    args: dict[str, Value] = {
        "number": number,
        "topic": MORTAL,
        "count": draw.choice((1, 1, 3)),
        "size": 20,
        "durable": True,
        "wait": draw.random() < 0.7,
        "older": older,
        "again": draw.choice((1, 1, 2)),
    }
    return WorldStep(at, "put", who, args)


def disk_deeds(cast: Cast, draw: Random) -> Iterator[WorldStep]:
    """The disks of publishers fail at one call, or are full for a while."""
    for _ in range(8 if cast.has(CLIENT_DISK) else 0):
        at = draw.randrange(SETTLING_MS, cast.options.chaos_ms)
        who = draw.choice(cast.publishers)
        args: dict[str, Value] = {"for_ms": draw.choice((50, 600, 2_500))}
        if draw.random() < 0.4:
            args |= {"spare": draw.choice((0, 500, 3_000))}
            yield WorldStep(at, "fill_client", who, args)
        else:
            args |= {
                "calls": draw.choice(CALLS),
                "left": draw.choice((1, 1, 2, 7)),
                "error": draw.choice(ERRORS),
                "times": draw.choice((1, 1, 100)),
            }
            yield WorldStep(at, "fail_client", who, args)
