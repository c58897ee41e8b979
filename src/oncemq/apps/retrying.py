"""What to do about a message whose handler failed: try again, when, and when no more. Pure.

Laws: a handler's messages stay in order, so a failing one holds up those behind it, and nothing
else; one that failed among others is tried alone before it is judged; a message leaves only by
success or by a verdict.
"""

from collections.abc import Callable
from dataclasses import dataclass

import msgspec


class Backoff(msgspec.Struct, frozen=True):
    """Waits that grow from `first` by `factor` up to `longest` seconds, each cut by up to half."""

    first: float = 0.5
    factor: float = 2.0
    longest: float = 60.0

    def __call__(self, attempt: int, chance: float) -> float:
        """Seconds to wait after this attempt (from 1); `chance` is from 0 up to 1."""
        grown = self.first * self.factor ** min(attempt - 1, 64)
        return min(grown, self.longest) * (1 - chance / 2)


Wait = Callable[[int, float], float]


class AttemptNote(msgspec.Struct, frozen=True):
    """How far the app is with the message in hand; what is on disk while a handler runs.

    `verdict`: it goes to the dead letters, with this reason; nothing else is done to it any more.
    """

    offset: int
    timestamp: int
    count: int = 1
    attempts: int = 0
    crashes: int = 0
    at_work: bool = False
    verdict: "Verdict | None" = None

    def is_about(self, offset: int, timestamp: int) -> bool:
        """Whether it is this message; a topic made anew has the same offsets at other times."""
        return (self.offset, self.timestamp) == (offset, timestamp)


class Verdict(msgspec.Struct, frozen=True):
    """Why a message goes to the dead letters."""

    reason: str
    traceback: str
    attempts: int
    time: str


@dataclass(frozen=True, slots=True)
class RetryLimits:
    """When to stop trying."""

    retries: int = 5
    crashes: int = 10


class Trouble:
    """The message in hand of one handler, and how it has gone so far."""

    def __init__(self, limits: RetryLimits, left: AttemptNote | None = None) -> None:
        self._limits = limits
        self._left = left  # by the last start, until the first message shows whether it is about it
        self.alone = 0  # so many messages are given one by one
        self.note: AttemptNote | None = None

    def limit(self, usual: int) -> int:
        """How many messages to ask for next."""
        in_trouble = self.alone or self._left is not None or self.note is not None
        return 1 if in_trouble else usual

    def take(self, offset: int, timestamp: int, count: int) -> AttemptNote:
        """Messages are in hand, from this one on; what is known of them."""
        left, self._left = self._left, None
        known = self.note
        if left is not None and left.is_about(offset, timestamp):
            known = self._after_a_start(left)
        if known is None or not known.is_about(offset, timestamp):
            known = AttemptNote(offset, timestamp)
        self.note = msgspec.structs.replace(known, count=count)
        return self.note

    def begin(self) -> AttemptNote:
        """The handler is about to be called: what to remember in case it takes us along."""
        assert self.note is not None
        return msgspec.structs.replace(self.note, at_work=True)

    def settled(self, count: int) -> None:
        """They took effect, or were buried."""
        self.note = None
        self.alone = max(0, self.alone - count)

    def failed_among(self, suspects: int) -> None:
        """One of several failed: that one and those before it (all, of a list) go one by one."""
        self.note = None
        self.alone = suspects

    def failed(self, *, final: bool) -> bool:
        """The handler failed on the one message in hand; True when that was the last attempt."""
        assert self.note is not None
        attempts = self.note.attempts + 1
        self.note = msgspec.structs.replace(self.note, attempts=attempts)
        return final or attempts > self._limits.retries

    def judged(self, verdict: Verdict) -> AttemptNote:
        """The message in hand goes to the dead letters."""
        assert self.note is not None
        self.note = msgspec.structs.replace(self.note, verdict=verdict)
        return self.note

    @property
    def is_judged(self) -> bool:
        """Whether the message in hand goes to the dead letters, whatever happens."""
        return self.note is not None and self.note.verdict is not None

    @property
    def crashed_too_often(self) -> bool:
        """Whether processes died again and again with this message in hand."""
        return self.note is not None and self.note.crashes > self._limits.crashes

    def _after_a_start(self, left: AttemptNote) -> AttemptNote | None:
        if not left.at_work:
            return left
        if left.count > 1:
            self.alone = max(self.alone, left.count)
            return None
        return msgspec.structs.replace(left, crashes=left.crashes + 1, at_work=False)
