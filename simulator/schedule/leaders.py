"""What is drawn for a cluster whose leaders change: when, who is next, and what the others say."""

from collections.abc import Iterator
from random import Random

from simulator.network.leadership import ADDRESSES, HINTS
from simulator.schedule.cast import SETTLING_MS, Cast, Value, WorldStep


def leader_deeds(cast: Cast, draw: Random) -> Iterator[WorldStep]:
    """One steps down, and after a while without any another one leads, or the same."""
    for _ in range(cast.options.leaders):
        args: dict[str, Value] = {
            "to": draw.choice(ADDRESSES),
            "for_ms": draw.choice((0, 30, 400, 3_000)),
            "tells": draw.random() < 0.5,
            "hangs_up": draw.random() < 0.5,
            **{address: draw.choice(HINTS) for address in ADDRESSES},
        }
        yield WorldStep(draw.randrange(SETTLING_MS, cast.options.chaos_ms), "lead", "", args)
