"""Faults on request: what is to go wrong, how often, and what did.

    chaos.drop_replies(0.1)         # one reply in ten never arrives
    chaos.crash_after_sync()        # the next time something was made durable, the server dies
    ...
    assert chaos.injected["crash after sync"] == 1

A knob takes a `chance` for each occasion and how many `times` it may strike (None: without end).
The server that dies comes back by itself, on the same address and the same data.

Laws: the same seed draws the same for the same occasions; a knob that never struck counts 0, so
that a test can tell that its fault took place. Any thread may turn the knobs.
"""

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass

DROP_REPLY = "drop reply"
DUPLICATE_REQUEST = "duplicate request"
DELAY = "delay"
CRASH_AFTER_APPEND = "crash after append"
CRASH_BEFORE_SYNC = "crash before sync"
CRASH_AFTER_SYNC = "crash after sync"
CRASH = "crash"

KINDS: tuple[str, ...] = (
    DROP_REPLY,
    DUPLICATE_REQUEST,
    DELAY,
    CRASH_AFTER_APPEND,
    CRASH_BEFORE_SYNC,
    CRASH_AFTER_SYNC,
    CRASH,
)


@dataclass(slots=True)
class Knob:
    """How one kind of fault is set: how likely, how often yet, and from which dice."""

    dice: random.Random
    chance: float = 0.0
    times: int | None = 0
    seconds: float = 0.0

    def strikes(self) -> bool:
        """Whether this occasion is hit; counts it down."""
        if not self.chance or self.times == 0 or self.dice.random() >= self.chance:
            return False
        if self.times is not None:
            self.times -= 1
        return True


class Chaos:
    """The knobs of one server. `injected` counts, by kind, what was done."""

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed
        self.injected = dict.fromkeys(KINDS, 0)
        self.crash_now: Callable[[], None] = _no_server
        self._lock = threading.Lock()
        # Each kind has dice of its own: turning one knob does not change what the others draw.
        self._knobs = {kind: Knob(random.Random(f"{seed} {kind}")) for kind in KINDS}

    # The knobs

    def drop_replies(self, chance: float = 1.0, *, times: int | None = None) -> None:
        """The server did what was asked, and its answer is lost."""
        self._set(DROP_REPLY, chance, times)

    def duplicate_requests(
        self, chance: float = 1.0, *, times: int | None = None, within: float = 0.05
    ) -> None:
        """A request arrives again, up to `within` seconds later."""
        self._set(DUPLICATE_REQUEST, chance, times, within)

    def delay(self, seconds: float, chance: float = 1.0, *, times: int | None = None) -> None:
        """A request takes up to so many seconds to arrive; those of one client keep their order."""
        self._set(DELAY, chance, times, seconds)

    def crash_after_append(self, chance: float = 1.0, *, times: int | None = 1) -> None:
        """The server is killed when its log is written and not synced; the system keeps it."""
        self._set(CRASH_AFTER_APPEND, chance, times)

    def crash_before_sync(self, chance: float = 1.0, *, times: int | None = 1) -> None:
        """The power fails when the log is written and not synced: what was written is gone."""
        self._set(CRASH_BEFORE_SYNC, chance, times)

    def crash_after_sync(self, chance: float = 1.0, *, times: int | None = 1) -> None:
        """The server is killed when its log is durable, and nobody was told yet."""
        self._set(CRASH_AFTER_SYNC, chance, times)

    def crash(self) -> None:
        """Kill the server now, whatever it does."""
        self.crash_now()
        self._count(CRASH)

    def calm(self) -> None:
        """No more faults."""
        with self._lock:
            for knob in self._knobs.values():
                knob.chance = 0.0

    # For the server's disk and door

    def strikes(self, kind: str) -> bool:
        """Whether this occasion is hit."""
        with self._lock:
            struck = self._knobs[kind].strikes()
            self.injected[kind] += struck
            return struck

    def hold(self, kind: str) -> float:
        """For how many seconds a request that was hit is held."""
        with self._lock:
            knob = self._knobs[kind]
            return knob.dice.uniform(0, knob.seconds)

    def _set(self, kind: str, chance: float, times: int | None, seconds: float = 0.0) -> None:
        if not 0 <= chance <= 1:
            raise ValueError(f"a chance is between 0 (never) and 1 (always), not {chance!r}")
        if times is not None and times < 0:
            raise ValueError(f"times is how often at most, or None, not {times!r}")
        if seconds < 0:
            raise ValueError(f"a request cannot arrive {-seconds} s before it was sent")
        with self._lock:
            knob = self._knobs[kind]
            knob.chance, knob.times, knob.seconds = chance, times, seconds

    def _count(self, kind: str) -> None:
        with self._lock:
            self.injected[kind] += 1

    def __repr__(self) -> str:
        done = ", ".join(f"{kind} {count}" for kind, count in self.injected.items() if count)
        return f"<Chaos seed={self.seed}: {done or 'nothing injected'}>"


def _no_server() -> None:
    raise RuntimeError("this chaos has no server; use the fixture oncemq_chaos, or chaotic_server")
