"""When a micro-batch is worth its while: `minOffsetsPerTrigger` and `maxTriggerDelay`."""

import math
from dataclasses import dataclass, field

DELAY_SECONDS = 15 * 60.0  # as with Spark's Kafka source


@dataclass
class Patience:
    """Lets a batch of few rows wait for more, but not for longer than told; the first never."""

    rows_min: int | None
    delay: float
    _last: float = field(default=-math.inf, init=False)

    def waits(self, rows: int, now: float) -> bool:
        """Whether so many rows should wait; when not, a batch begins now."""
        if not rows:
            return False  # there is no batch to begin
        if self.rows_min is not None and rows < self.rows_min and now < self._last + self.delay:
            return True
        self._last = now
        return False
