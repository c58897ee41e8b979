"""What befell a listener of a simulation, for the marks."""

from oncemq.client.engine.listening import Listening


def listener_marks(listening: Listening) -> dict[str, int]:
    """What befell a listener."""
    live = listening.live
    return {
        "gap repaired": live.gaps,
        "overlap dropped": live.overlaps,
        "joined late": live.late,
        "listener nudged": listening.nudges,
    }
