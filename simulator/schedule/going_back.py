"""What is drawn for a server that goes back in time: backups, and when one is restored."""

from collections.abc import Iterator
from random import Random

from simulator.schedule.cast import SETTLING_MS, Cast, WorldStep

TWICE = 0.4  # how often one backup is restored twice: what was stored in between is a branch


def back_deeds(cast: Cast, draw: Random) -> Iterator[WorldStep]:
    """A backup or two, and later one going back; to the same backup once more, sometimes."""
    if not cast.options.back:
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
