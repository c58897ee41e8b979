"""The coordinator over etcd: three threads, each with a connection of its own.

    asking    requests in the order of `ask`, one at a time, until it is known what became of each
    watching  the cluster's keys; what is told goes through `rules/picture`
    presence  the lease, and what is announced under it

They share nothing but the list of events, the presence, and the bell (`ring`). A request that etcd
does not answer holds up the next ones, for `request_ms` at most: they are few, and rest on each
other. The other two go on meanwhile.

A watch on which nothing comes is begun anew every `idle_ms`: of a member that is frozen nothing
comes either, and only the beginning of a watch is answered.

Law: whatever fails in a thread is an event or is tried again; a thread ends by `close` alone.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from queue import SimpleQueue

from oncemq.coordination.coordinator import (
    Answered,
    CoordinatorEvent,
    Outcome,
    Request,
    Ring,
    StoreBack,
    Unanswered,
)
from oncemq.coordination.etcd.connection import Access, EtcdConnection
from oncemq.coordination.etcd.gateway import CallFailed
from oncemq.coordination.etcd.rules.calls import HasRead, ReadPrefix, Revoke, WatchFrom
from oncemq.coordination.etcd.rules.inquiry import Inquiry
from oncemq.coordination.etcd.rules.picture import Picture
from oncemq.coordination.etcd.rules.presence import Presence

_log = logging.getLogger("oncemq.coordination")


@dataclass(frozen=True, slots=True)
class Limits:
    """How long is waited for what."""

    try_ms: int = 1_000  # for one answer of one member
    request_ms: int = 5_000  # for a request, over all tries
    pause_ms: int = 200  # after every member failed
    idle_ms: int = 2_000  # before a watch on which nothing comes is begun anew
    compare_ms: int = 30_000  # before everything is read, and compared with what was told
    lease_ms: int = 3_000  # a third of it: how often the lease is kept alive


class EtcdCoordinator:
    """The port over a real etcd."""

    def __init__(self, access: Access, prefix: str, ring: Ring, limits: Limits | None = None):
        self._limits = limits or Limits()
        self._ring = ring
        self._events: deque[CoordinatorEvent] = deque()
        self._requests: SimpleQueue[tuple[int, Request] | None] = SimpleQueue()
        self._picture = Picture(prefix)
        self._presence = Presence(self._limits.lease_ms)
        self._presence_lock = threading.Lock()
        self._presence_due = threading.Event()
        self._ending = threading.Event()
        seconds = self._limits.try_ms / 1000
        self._connections = [EtcdConnection(access, limit_seconds=seconds) for _ in range(3)]
        asking, watching, announcing = self._connections
        self._threads = [
            threading.Thread(target=run, args=(connection,), name=f"etcd-{name}", daemon=True)
            for run, connection, name in (
                (self._ask_all, asking, "asking"),
                (self._watch, watching, "watching"),
                (self._announce_all, announcing, "presence"),
            )
        ]
        for thread in self._threads:
            thread.start()

    def ask(self, request: Request, token: int) -> None:
        self._requests.put((token, request))

    def announce(self, key: str, value: bytes) -> None:
        with self._presence_lock:
            self._presence.announce(key, value)
        self._presence_due.set()

    def take(self) -> list[CoordinatorEvent]:
        return [self._events.popleft() for _ in range(len(self._events))]

    def close(self) -> None:
        self._ending.set()
        self._requests.put(None)
        self._presence_due.set()
        for connection in self._connections[:2]:
            connection.interrupt()
        for thread in self._threads:
            thread.join()

    @property
    def _level(self) -> int:
        """Of what one member failed to do: while all are away that is said once, and enough."""
        return logging.DEBUG if self._picture.is_away else logging.INFO

    def _tell(self, events: list[CoordinatorEvent]) -> None:
        if events:
            self._events.extend(events)
            self._ring()

    # ------------------------------------------------------------------ asking

    def _ask_all(self, connection: EtcdConnection) -> None:
        while (item := self._requests.get()) is not None:
            token, request = item
            outcome = self._asked(connection, request)
            if self._ending.is_set():
                break
            self._tell([Answered(token, outcome)])
        connection.close()

    def _asked(self, connection: EtcdConnection, request: Request) -> Outcome:
        inquiry = Inquiry(request, deadline=_now_ms() + self._limits.request_ms)
        while True:
            try:
                return inquiry.answered(connection.call(inquiry.call))
            except CallFailed as failure:
                _log.log(self._level, "etcd did not answer a request: %s", failure)
                outcome = inquiry.failed(str(failure), now=_now_ms())
            if outcome is not None:
                return outcome
            if self._paused(connection):
                return Unanswered("closed")

    def _paused(self, connection: EtcdConnection) -> bool:
        """Wait a little if every member failed; whether it is time to end."""
        return self._ending.wait(self._limits.pause_ms / 1000 if connection.all_failed else 0)

    # ------------------------------------------------------------------ watching

    def _watch(self, connection: EtcdConnection) -> None:
        compared = _now_ms()
        while not self._ending.is_set():
            if _now_ms() - compared >= self._limits.compare_ms:
                self._picture.compare()
            step = self._picture.next()
            try:
                if isinstance(step, ReadPrefix):
                    compared = _now_ms()
                    self._read(connection, step)
                else:
                    self._follow(connection, step, until=compared + self._limits.compare_ms)
            except CallFailed as failure:
                if self._ending.is_set():
                    break
                _log.log(self._level, "etcd's watch broke: %s", failure)
                if connection.all_failed:
                    self._say_away(str(failure))
                self._paused(connection)
        connection.close()

    def _read(self, connection: EtcdConnection, step: ReadPrefix) -> None:
        answer = connection.call(step)
        assert isinstance(answer, HasRead)
        if answer.revision < self._picture.revision:
            _log.error(
                "etcd went back: revision=%d before=%d; an older copy was put there",
                answer.revision,
                self._picture.revision,
            )
        events = self._picture.read(answer)
        if any(isinstance(event, StoreBack) for event in events):
            _log.info("etcd back: %s", connection.address)
        self._tell(events)
        with self._presence_lock:
            announced = self._presence.announced
        self._gone(announced - answer.entries.keys())

    def _follow(self, connection: EtcdConnection, step: WatchFrom, *, until: int) -> None:
        """Tell changes until the watch is idle, broken or forgotten, or it is time to compare."""
        for line in connection.watch(step, idle_seconds=self._limits.idle_ms / 1000):
            if line.is_forgotten:
                self._picture.forgotten()
                return
            for revision, changes in line.changes:
                self._tell(self._picture.changed(changes, revision))
                self._gone(key for key, entry in changes.items() if entry is None)
            if self._ending.is_set() or _now_ms() >= until:
                return

    def _gone(self, keys: Iterable[str]) -> None:
        with self._presence_lock:
            if self._presence.vanished(keys):
                self._presence_due.set()

    def _say_away(self, why: str) -> None:
        events = self._picture.unreachable(why)
        if events:
            _log.warning("etcd away: %s", why)
        self._tell(events)

    # ------------------------------------------------------------------ presence

    def _announce_all(self, connection: EtcdConnection) -> None:
        every = self._limits.lease_ms / 3000
        kept = 0.0
        while not self._ending.is_set():
            with self._presence_lock:
                call = self._presence.next(is_due=time.monotonic() >= kept + every)
            if call is None:
                self._presence_due.wait(max(0.0, kept + every - time.monotonic()) or every)
                self._presence_due.clear()
                continue
            kept = time.monotonic()  # from before the call: from there the lease counts at least
            try:
                answer = connection.call(call)
            except CallFailed as failure:
                _log.log(self._level, "etcd did not keep the lease: %s", failure)
                self._ending.wait(self._limits.pause_ms / 1000)
                continue
            with self._presence_lock:
                self._presence.answered(call, answer)
        self._leave(connection)

    def _leave(self, connection: EtcdConnection) -> None:
        """What was announced is gone at once, if etcd is there."""
        if self._presence.lease is not None:
            try:
                connection.call(Revoke(self._presence.lease))
            except CallFailed as failure:
                _log.info("etcd did not end the lease: %s", failure)
        connection.close()


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
