"""What a server tells of itself: facts in the past tense, one line each, and how many there were.

Laws: never a payload; text that a peer chose is escaped. What peers can cause is told so many
times a minute at most, then only counted: `once status` has the counts.
"""

import logging
from collections import Counter

from oncemq.protocol.names import Micros

LINES_A_MINUTE = 60  # for each kind of fact
MINUTE = 60_000_000

LEVELS = {
    "client_let_in": logging.INFO,
    "client_fenced": logging.WARNING,
    "request_refused": logging.INFO,
    "connection_refused": logging.INFO,
    "connection_dropped": logging.WARNING,
    "stranger_refused": logging.WARNING,  # who speaks as a server of the cluster, and is none
    "disk_full": logging.WARNING,
    "disk_has_room_again": logging.INFO,
    "slow_sync": logging.WARNING,
    "checkpoint_written": logging.INFO,
    "segments_compacted": logging.INFO,
}

logger = logging.getLogger("oncemq.server")


class Events:
    """The facts of one server since it started."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter(dict.fromkeys(LEVELS, 0))
        self._told: Counter[str] = Counter()
        self._minute = 0

    def note(self, kind: str, now: Micros, **facts: str | int) -> None:
        """Something happened."""
        self.counts[kind] += 1
        if now // MINUTE != self._minute:
            self._minute = now // MINUTE
            for silent, count in self._told.items():
                if count > LINES_A_MINUTE:
                    more = count - LINES_A_MINUTE
                    logger.log(LEVELS[silent], "%s, and %d more", _words(silent), more)
            self._told.clear()
        self._told[kind] += 1
        if self._told[kind] <= LINES_A_MINUTE and logger.isEnabledFor(LEVELS[kind]):
            told = " ".join(f"{name}={_escaped(value)}" for name, value in facts.items())
            logger.log(LEVELS[kind], "%s %s", _words(kind), told)


def _words(kind: str) -> str:
    return kind.replace("_", " ")


def _escaped(value: str | int) -> str:
    return str(value) if isinstance(value, int) else ascii(value)
