"""The loop of a running server: hear the sockets, decide, sync in a thread, answer.

Law: the loop never waits for a peer, and for the disk only when a lone small group is synced
quicker than a thread would wake up. Under load, one group syncs while the next gathers.
"""

import time

import msgspec

from oncemq.broker.given import Facts
from oncemq.protocol.names import Micros
from oncemq.server.clock import SteadyClock
from oncemq.server.served import KeepsHouse, Served, sooner
from oncemq.server.worker import Worker
from oncemq.storage.log.log import Group
from oncemq.transport.feed_publisher import FeedPublisher
from oncemq.transport.router import RouterSocket
from oncemq.transport.wakeup import Wakeup

HEARD_MAX = 8  # of what listeners say, likewise
ASIDE_SECONDS = 0.000_001  # the shortest sleep there is: some 60 µs
ASIDE_MICROS = 200  # so often at most
IDLE_MS = 200  # longest sleep: retention and checkpoints are looked at this often

SLOW_SYNC_MICROS = 1_000_000  # worth a line in the log

QUICK_BYTES = 16 << 10  # a lone group this small is synced in the loop itself
QUICK_MICROS = 500  # while the disk takes less than this: less than two thread switches


class TurnLimits(msgspec.Struct, frozen=True):
    """What is taken before commits and replies get their turn: whichever comes first."""

    requests: int = 256
    bytes: int = 16 << 20
    micros: int = 250  # so much later is a newcomer heard in a flood


class Loop:
    """One server thread around what it serves."""

    def __init__(
        self,
        driver: Served,
        door: RouterSocket,
        feed: FeedPublisher | None,
        housekeeping: KeepsHouse,
        clock: SteadyClock,
        turn: TurnLimits | None = None,
    ) -> None:
        self._turn_limits = turn or TurnLimits()
        self._driver = driver
        self._door = door
        self._feed = feed
        self._housekeeping = housekeeping
        self._clock = clock
        self._bell = Wakeup()
        self._stopping = False
        self._aside_at = Micros(0)
        self._sync_micros = 0  # how slow the disk has lately been, at worst
        self._due: Micros | None = None  # what waits, as of the last look
        self._is_pushing = False  # the feed has more to send
        driver.bind(
            reaches=door.reaches,
            takes=door.takes,
            hand_over=self._send,
            connections=self._connections,
        )
        door.connections.tell = self._tell
        door.watch(self._bell)
        self._writer = Worker("oncemq-writer", self._bell)
        self._janitor = Worker("oncemq-janitor", self._bell)
        self._lent: list[Worker] = []

    def lend(self, name: str) -> Worker:
        """One more thread, for what is served here, which takes note itself of what was done."""
        self._lent.append(Worker(name, self._bell))
        return self._lent[-1]

    def stop(self) -> None:
        """From any thread or a signal handler: finish what was accepted, then end."""
        self._stopping = True
        self._bell.ring()

    def ring(self) -> None:
        """From any thread: there is news."""
        self._bell.ring()

    def run(self) -> None:
        """Serve until `stop`; raises when the disk failed, with no further answer sent."""
        try:
            while not (self._stopping and self._driver.may_stop(self._clock())):
                self._turn(self._timeout_ms())
            self._drain()
        finally:
            self._writer.stop()
            self._janitor.stop()
            for worker in self._lent:
                worker.stop()
            self._door.close()
            if self._feed is not None:
                self._feed.close()
            self._bell.close()

    def _turn(self, timeout_ms: int) -> None:
        if self._driver.is_full:
            self._door.rest(IDLE_MS)  # until the writer's bell
        else:
            self._door.wait(timeout_ms)
        now = self._clock()
        driver = self._driver
        if self._clock.calendar != driver.calendar:
            driver.keep_time(self._clock.calendar, now)
        taken = self._receive(now)
        feed = self._feed
        if feed is not None and feed.is_told:
            self._hear(feed)
        if self._writer.under_way:
            self._writer.reap()
        if self._due is not None and self._due <= now:
            driver.tick(now)
        if not self._writer.under_way:
            self._commit(now, alone=taken <= 1)
        if driver.has_news:
            driver.take_news(now)
        if driver.outgoing:
            self._send()
        if feed is not None and (self._is_pushing or driver.pushes.outgoing):
            self._push(feed)
        self._housekeeping.turn(self._janitor, now)
        if self._janitor.under_way:
            self._janitor.reap()
        if self._writer.under_way:
            self._step_aside(now)

    def _step_aside(self, now: Micros) -> None:
        """Let the writer run: it asks for Python's lock after each of its calls of the system.

        While the loop has more to do at once, it lets the lock go only for moments, in its own
        calls, and each wakes the writer too late: a commit took 50 ms.
        """
        has_more = self._door.has_more or (self._feed is not None and self._feed.has_more)
        if has_more and now - self._aside_at >= ASIDE_MICROS:
            self._aside_at = now
            time.sleep(ASIDE_SECONDS)

    def _receive(self, now: Micros) -> int:
        """Take requests for a while; how many. The rest stays where it pushes back."""
        driver, limits = self._driver, self._turn_limits
        taken = size = 0
        while taken < limits.requests and size < limits.bytes and not driver.is_full:
            if (received := self._door.receive()) is None:
                break
            route, frames = received
            driver.receive(route, frames, now)
            taken += 1
            size += sum(map(len, frames))
            # After a lone request nobody stands in line: no clock is asked, and the line is not.
            if not self._door.has_more or self._clock.steady() - now > limits.micros:
                break
        return taken

    def _commit(self, now: Micros, *, alone: bool) -> None:
        group = self._driver.commit(now)
        if group is None:
            return
        quick = group.size <= QUICK_BYTES and self._sync_micros < QUICK_MICROS
        if alone and quick and not group.sync:  # which syncs what many others left
            self._commit_here(group, now)
        else:
            self._give(group)

    def _commit_here(self, group: Group, begun: Micros) -> None:
        """One small group and a quick disk: syncing here is over before a thread had woken."""
        self._driver.log.write(group)
        ended = self._clock.steady()
        self._note_sync(ended - begun)
        self._driver.written(group, ended)

    def _note_sync(self, micros: int) -> None:
        # One slow sync is believed at once. After one of 2 ms among quick ones the loop is back
        # after a dozen: what another one costs those who wait then is no more than it itself.
        slow = self._sync_micros
        self._sync_micros = max(micros, slow - slow // 8)

    def _give(self, group: Group) -> None:
        driver, steady = self._driver, self._clock.steady
        begun = steady()
        disk_micros = 0

        def write() -> None:
            nonlocal disk_micros
            started = steady()
            driver.log.write(group)
            disk_micros = steady() - started

        def done() -> None:
            now = steady()
            if now - begun >= SLOW_SYNC_MICROS:
                driver.events.note("slow_sync", now, ms=(now - begun) // 1000, bytes=group.size)
            if group.size <= QUICK_BYTES and not group.sync:
                # Not what the thread's switches took: on a busy machine they would keep it there.
                self._note_sync(disk_micros)
            driver.written(group, now)

        self._writer.give(write, done)

    def _send(self) -> None:
        outgoing, self._driver.outgoing = self._driver.outgoing, []
        if len(outgoing) == 1:
            self._door.send(*outgoing[0])
        elif outgoing:
            self._door.send_all(outgoing)

    def _hear(self, feed: FeedPublisher) -> None:
        """Who listens, and who no longer does."""
        for _ in range(HEARD_MAX):
            if (change := feed.change()) is None:
                return
            joined, subject = change
            self._driver.listens(joined=joined, subject=subject)

    def _push(self, feed: FeedPublisher) -> None:
        """After the replies: a publisher does not wait for the fan-out of its message."""
        pushes = self._driver.pushes
        if pushes.outgoing:
            outgoing, pushes.outgoing = pushes.outgoing, []
            feed.gather(outgoing)
        if feed.is_busy:
            feed.push()
        self._is_pushing = feed.is_busy

    def _timeout_ms(self) -> int:
        due = self._due = self._driver.next_deadline()
        if self._is_pushing or self._housekeeping.busy:
            return 0
        if not self._writer.under_way:  # else its bell wakes the loop
            commit = self._driver.next_commit()
            due = commit if due is None else sooner(due, commit)
        if due is None:
            return IDLE_MS
        return max(0, min(IDLE_MS, (due - self._clock.steady() + 999) // 1000))

    def _drain(self) -> None:
        """Answer what was accepted before the stop."""
        while True:
            self._writer.reap()
            self._send()
            if self._feed is not None:
                self._push(self._feed)
            if self._writer.idle:
                group = self._driver.commit(Micros(1 << 62))
                if group is None:
                    return
                self._give(group)
            self._door.rest(IDLE_MS)

    # What is told of the connections

    def _tell(self, kind: str, /, **facts: str | int) -> None:
        self._driver.events.note(kind, self._clock(), **facts)

    def _connections(self) -> Facts:
        found = self._door.connections.status
        if self._feed is not None:
            found |= self._feed.status
        return found
