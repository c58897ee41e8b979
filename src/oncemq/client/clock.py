"""The clock of a client."""

import time

from oncemq.protocol.names import Micros


def monotonic_clock() -> Micros:
    """Microseconds that never go back; for waiting, not for telling the time."""
    return Micros(time.monotonic_ns() // 1000)
