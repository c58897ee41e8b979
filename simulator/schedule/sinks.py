"""What is drawn for Spark sinks: drivers that run batch after batch, and those that should not."""

from collections.abc import Iterator
from random import Random

from simulator.schedule.cast import SETTLING_MS, SINKS, Cast, Value, WorldStep

WHICH = ("own", "own", "own", "backup", "anew", "copied", "behind", "abroad")


def sink_deeds(cast: Cast, draw: Random) -> Iterator[WorldStep]:
    """Batches of both sinks, one or several drivers at a time, on any clients."""
    everybody = [*cast.lasting, *cast.guests]
    for _ in range(cast.options.sinks):
        at = draw.randrange(SETTLING_MS, cast.options.chaos_ms)
        sink = draw.randrange(SINKS)
        if draw.random() < 0.1:
            yield WorldStep(at, "backup", everybody[0], {"sink": sink})
        for _ in range(draw.choice((1, 1, 2))):  # the second one is a zombie, or its successor
            args: dict[str, Value] = {
                "sink": sink,
                "which": draw.choice(WHICH),
                "executors": " ".join(draw.sample(everybody, min(len(everybody), 3))),
                "rows": draw.choice((1, 2, 5)),
                "tasks": draw.choice((1, 2, 3)),
                "speculates": draw.random() < 0.3,
                "ends": draw.choice(("", "", "before", "after")),
                "older": draw.random() < 0.2,
            }
            yield WorldStep(at, "drive", draw.choice(everybody), args)
            at += draw.choice((0, 5, 300, 2_000))
