"""The coordinator port over the model of etcd: late, lost and repeated, from a seed.

The rules are those that ship (`oncemq.coordination.etcd.rules`); what differs from the real one is
who carries calls and changes: simulated time instead of threads and HTTP.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from oncemq.coordination.coordinator import Answered, CoordinatorEvent, Request, Ring
from oncemq.coordination.etcd.rules.calls import (
    Call,
    CallAnswer,
    HasRead,
    ReadPrefix,
    Revoke,
    WatchFrom,
)
from oncemq.coordination.etcd.rules.inquiry import Inquiry
from oncemq.coordination.etcd.rules.picture import Picture
from oncemq.coordination.etcd.rules.presence import Presence
from simulator.clock import MILLISECOND, SECOND, Clock
from simulator.coordination.etcd import SimulatedEtcd

TRY = 1 * SECOND  # for one answer
REQUEST = 5 * SECOND  # for a request, over all tries
PAUSE = 200 * MILLISECOND  # after a failure
COMPARE = 30 * SECOND  # before everything is read, and compared with what was told
AWAY_AFTER = 2  # failures in a row
LEASE_MS = 6_000


@dataclass(frozen=True, slots=True)
class EtcdFaults:
    """What goes wrong on the way to etcd and back; chances are per call, or per change watched."""

    delay_ms: int = 2  # at most, one way
    lost: float = 0.0  # the call never arrives
    late: float = 0.0  # it arrives after it was given up
    unanswered: float = 0.0  # it happens, and the answer is lost
    away_happens: float = 0.5  # what arrives while etcd has no leader happens all the same
    lag_ms: int = 5  # of a watch, at most
    broken: float = 0.0  # a watch breaks instead of telling
    missed: float = 0.0  # a change is never told: a bug of some versions


class SimulatedCoordinator:
    """Of one server, in simulated time."""

    def __init__(
        self, clock: Clock, etcd: SimulatedEtcd, prefix: str, ring: Ring, *,
        chance: Random, faults: EtcdFaults, lease_ms: int = LEASE_MS,
        unanswered: Callable[[Call, CallAnswer], object] = lambda call, answer: None,
    ) -> None:  # fmt: skip
        self._clock = clock
        self._etcd = etcd
        self._ring = ring
        self._chance = chance
        self.faults = faults  # may be replaced while it runs
        self._events: deque[CoordinatorEvent] = deque()
        self._requests: deque[tuple[int, Request]] = deque()
        self._is_asking = False
        self._prefix = prefix
        self._picture = Picture(prefix)
        self._is_watching = self._will_tell = False
        self._position = 0  # of the watch: the next revision that it tells
        self._failures = 0
        self._lease_ms = lease_ms
        self._unanswered = unanswered  # told what happened, and whose answer is lost
        self._presence = Presence(lease_ms)
        self._is_announcing = False
        self._is_over = False
        etcd.watch(self._something_changed)
        clock.after(0, self._step)
        clock.after(COMPARE, self._compare)
        clock.after(0, self._tick)

    def ask(self, request: Request, token: int) -> None:
        self._requests.append((token, request))
        self._ask_next()

    def announce(self, key: str, value: bytes) -> None:
        self._presence.announce(key, value)
        self._be_present(is_due=False)

    def take(self) -> list[CoordinatorEvent]:
        return [self._events.popleft() for _ in range(len(self._events))]

    def close(self) -> None:
        self.crash()
        if self._presence.lease is not None:
            self._call(Revoke(self._presence.lease), lambda _: None)

    def crash(self) -> None:
        """The server is gone, and told nobody."""
        self._is_over = True
        self._etcd.forget(self._something_changed)

    def _tell(self, events: list[CoordinatorEvent]) -> None:
        if events and not self._is_over:
            self._events.extend(events)
            self._ring()

    # ------------------------------------------------------------------ the way to etcd

    def _call(self, call: Call, then: Callable[[CallAnswer | None], object]) -> None:
        """Send a call; `then` hears once: the answer, or None after the time for it."""
        is_heard = False

        def heard(answer: CallAnswer | None) -> None:
            nonlocal is_heard
            if not is_heard:
                is_heard = True
                if not self._is_over:
                    then(answer)

        def arrived() -> None:
            if self._etcd.is_away and self._chance.random() >= self.faults.away_happens:
                return
            answer = self._etcd.apply(call)
            if not self._etcd.is_away and self._chance.random() >= self.faults.unanswered:
                self._clock.after(self._delay(), lambda: heard(answer))
            else:
                self._unanswered(call, answer)

        if self._chance.random() >= self.faults.lost:
            is_late = self._chance.random() < self.faults.late
            late = TRY + self._chance.randrange(2 * TRY) if is_late else 0
            self._clock.after(self._delay() + late, arrived)
        self._clock.after(TRY, lambda: heard(None))

    def _delay(self) -> int:
        return self._chance.randrange(1 + self.faults.delay_ms * MILLISECOND)

    # ------------------------------------------------------------------ asking

    def _ask_next(self) -> None:
        if self._is_asking or not self._requests:
            return
        self._is_asking = True
        token, request = self._requests.popleft()
        inquiry = Inquiry(request, deadline=self._clock.now + REQUEST)

        def answered(answer: CallAnswer | None) -> None:
            if answer is not None:
                outcome = inquiry.answered(answer)
            else:
                outcome = inquiry.failed("no answer", now=self._clock.now)
            if outcome is None:
                self._clock.after(PAUSE, lambda: self._call(inquiry.call, answered))
                return
            self._is_asking = False
            self._tell([Answered(token, outcome)])
            self._ask_next()

        self._call(inquiry.call, answered)

    # ------------------------------------------------------------------ watching

    def _compare(self) -> None:
        self._picture.compare()
        if self._is_watching:
            self._is_watching = False
            self._step()
        if not self._is_over:
            self._clock.after(COMPARE, self._compare)

    def _step(self) -> None:
        match self._picture.next():
            case ReadPrefix() as read:
                self._call(read, self._read)
            case WatchFrom(_, revision):
                self._is_watching, self._position = True, revision
                self._something_changed()

    def _read(self, answer: CallAnswer | None) -> None:
        if answer is None:
            self._failures += 1
            if self._failures >= AWAY_AFTER:
                self._tell(self._picture.unreachable("no answer"))
            self._clock.after(PAUSE, self._step)
            return
        assert isinstance(answer, HasRead)
        self._failures = 0
        self._tell(self._picture.read(answer))
        self._gone(self._presence.announced - answer.entries.keys())
        self._step()

    def _something_changed(self) -> None:
        if self._is_watching and not self._will_tell:
            self._will_tell = True
            lag = self._chance.randrange(1 + self.faults.lag_ms * MILLISECOND)
            self._clock.after(lag, self._tell_changes)

    def _tell_changes(self) -> None:
        self._will_tell = False
        if self._is_over or not self._is_watching:
            return
        found = self._etcd.since(self._position)
        if found is None or self._etcd.is_away or self._chance.random() < self.faults.broken:
            self._is_watching = False
            if found is None:
                self._picture.forgotten()
            if self._etcd.is_away:
                self._picture.compare()  # what a member without a leader says is not believed
            self._clock.after(PAUSE, self._step)
            return
        for revision, changes in found:
            self._position = revision + 1
            mine = {key: each for key, each in changes.items() if key.startswith(self._prefix)}
            if mine and self._chance.random() >= self.faults.missed:
                self._tell(self._picture.changed(mine, revision))
                self._gone({key for key, each in mine.items() if each is None})

    # ------------------------------------------------------------------ presence

    def _gone(self, keys: set[str]) -> None:
        if self._presence.vanished(keys):
            self._be_present(is_due=False)

    def _tick(self) -> None:
        """A third of the lease is over."""
        self._be_present(is_due=True)
        if not self._is_over:
            self._clock.after(self._lease_ms * MILLISECOND // 3, self._tick)

    def _be_present(self, *, is_due: bool) -> None:
        call = None if self._is_announcing else self._presence.next(is_due=is_due)
        if call is None or self._is_over:
            return
        self._is_announcing = True

        def answered(answer: CallAnswer | None) -> None:
            self._is_announcing = False
            if answer is None:
                self._clock.after(PAUSE, lambda: self._be_present(is_due=True))
                return
            self._presence.answered(call, answer)
            self._be_present(is_due=False)

        self._call(call, answered)
