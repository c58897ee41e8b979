"""Threads taking turns at one engine: whoever waits moves it, one of them at the socket.

Laws: the engine is touched only under the lock; one thread waits on the socket and tells the
others; a put that nobody waits for is seen out by a thread of its own, which ends when it has
nothing to do for a while. Turns that nobody closed are closed when they are collected, or when the
process ends, and that waits for nobody.
"""

import select
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from oncemq.client.blocking.busy_wait import busy_wait_asked_for
from oncemq.client.blocking.getting import Getting
from oncemq.client.context import CLOSED
from oncemq.client.engine.engine import Engine
from oncemq.client.engine.survival import surviving
from oncemq.client.pending import Answering, Pending
from oncemq.client.shell.abandoned import let_go
from oncemq.client.shell.forks import tell_of_forks
from oncemq.client.shell.signals import SHIELD, SignalSafeLock
from oncemq.client.ticket import Awaited, Ticket
from oncemq.client.values import Receipt, Receipts
from oncemq.client.verbs.messages import Verb
from oncemq.errors import Forked, Unreachable
from oncemq.transport.wakeup import Wakeup

T = TypeVar("T")
Append = Callable[[str, bytes, bool, bool, Answering], Pending[Receipt] | None]

IDLE_SECONDS = 0.2  # how often a waiting thread looks up even when nothing comes
GATHER_SECONDS = 0.002  # how long single puts gather when nothing else makes them leave
RETRY_SECONDS = 0.05
REST_SECONDS = 1.0  # the thread that sees puts out waits so long for the next before it ends
EXIT_SECONDS = 1.0  # at the end of the process, for a thread that is in the middle of something


class Runner:
    """The lock of a blocking client, and the waiting under it."""

    def __init__(self, engine: Engine, timeout: float) -> None:
        self._engine = engine
        self._timeout = timeout
        self.lock = SignalSafeLock()
        self.getting = self._new_getting()
        # A plain put that nobody waits for, without a step in between; nothing until `begin`.
        self.append: Append = _append_nothing
        self.closed = False
        self._at_socket = 0  # the thread that is in select
        self._changes: deque[Callable[[], None]] = deque()  # of blocks that were collected
        self._told = 0  # threads that wait for it to tell them
        self._resting = False  # the sender has nothing to do
        self._readable = True  # a descriptor of the engine's was, or it is not known
        self._bell = Wakeup()
        self._polled: tuple[int, ...] = ()
        self._poll = _poll_for(())  # made once: that costs as much as a wait
        self._busy = busy_wait_asked_for()
        self._sender: threading.Thread | None = None
        tell_of_forks(self)
        weakref.finalize(self, _close_for_good, engine, self._bell, self.lock)

    def begin(self) -> None:
        """Send what an earlier start left unsent."""
        self.append = self._engine.outflow.open_batches.append
        if not self._engine.outflow.idle:
            self.see_out()

    def check(self) -> None:
        """Refuse who cannot go on: in a closed client, or a fork's copy."""
        self._engine.check_open()

    def run(self, verb: Verb[T], *, timeout: float | None = None) -> T:
        """Carry out a verb, waiting for each ticket it yields."""
        self._engine.check_open()
        # The lock is taken once: it is let go, and signals are heard, while this waits.
        with self.lock:
            try:
                if self._changes:
                    self._catch_up()
                ticket = next(verb)
                while True:
                    waited: Awaited = ticket
                    self.wait_here(lambda t=waited: t.done, timeout, "an answer")
                    ticket = verb.send(None)
            except StopIteration as end:
                return end.value
            finally:
                verb.close()

    def wait_until(self, ready: Callable[[], bool], timeout: float | None, what: str) -> None:
        """Move the engine until `ready`, together with other threads that wait."""
        with self.lock:
            self.wait_here(ready, timeout, what)

    def wait_here(self, ready: Callable[[], bool], timeout: float | None, what: str) -> None:
        """As `wait_until`, for who has taken the lock, once: it is let go while this waits."""
        limit = self._timeout if timeout is None else timeout
        deadline, left = time.monotonic() + limit, limit
        engine = self._engine
        while True:
            self.pump()
            if ready():
                return
            if engine.context.failure is not None:
                raise engine.context.failure.with_traceback(None)
            if self.closed:
                raise Unreachable(CLOSED, code="closed")
            if left <= 0:
                raise engine.gave_up(limit, what)
            self._wait_for_news(left)
            if SHIELD.came:
                self._without_the_lock(
                    SHIELD.deliver
                )  # an interrupt ends the wait here, where nothing is half-way
            left = deadline - time.monotonic()

    def answer(self, ticket: Ticket[Receipts], timeout: float | None) -> Receipts:
        """The receipts of a batch, waited for."""
        if not ticket.done:
            self.wait_until(lambda: ticket.done, timeout, "the receipt")
        return ticket.result()

    def change(self, change: Callable[[], None]) -> None:
        """Carry out what the end of a block changes, now or before the engine is moved again.

        A block that nobody has any more ends when it is collected, which may be in the middle of
        whatever this thread does under the lock.
        """
        if self.lock.is_owned():
            self._changes.append(change)
            return
        with self.lock:
            change()

    def puts_off(self, close: Callable[[], object]) -> bool:
        """Whether a close comes in the middle of what this thread does, and is carried out later.

        Finalizers close clients, and the collector runs them between any two lines.
        """
        if not self.lock.is_owned() and self._at_socket != threading.get_ident():
            return False
        self._changes.append(partial(self._without_the_lock, close))
        return True

    def pump(self) -> None:
        """Move the engine once; under the lock."""
        if self._changes:
            self._catch_up()
        if not self.closed:
            readable, self._readable = self._readable, False
            if self._engine.pump(readable=readable) and self._at_socket:
                self._bell.ring()  # what came may be what the thread at the socket waits for

    def see_out(self, *, now: bool = False) -> None:
        """From the first put that nobody waits for, a thread sees to it that it leaves."""
        if now:
            with self.lock:
                self.pump()
        if self._sender is None:
            with self.lock:
                sender = threading.Thread(target=self._send, name="oncemq-sender", daemon=True)
                try:
                    sender.start()
                except RuntimeError:  # there are too many, or this process ends
                    self._see_out_without_a_thread()
                else:
                    self._sender = sender
        elif self._resting:
            self.lock.notify_all()

    def _catch_up(self) -> None:
        while self._changes:
            self._changes.popleft()()

    def _see_out_without_a_thread(self) -> None:
        """Whoever puts moves the engine; so every put must come by here."""
        self.pump()
        self._engine.outflow.open_batches.withdraw_grants()

    def close(self) -> None:
        """End the sender; no pump after this."""
        with self.lock:
            self.closed = True
            self.lock.notify_all()
            self._bell.ring()
            while self._at_socket:  # nobody may sleep on descriptors that are closed and reused
                self.lock.wait(IDLE_SECONDS)
            sender = self._sender
        if sender is not None and sender is not threading.current_thread():
            sender.join()  # it may itself collect what closes its client
        self._bell.close()

    def forked(self, error: Forked) -> None:
        """In a child of a fork: locks that other threads held are held by nobody now."""
        self.lock = SignalSafeLock()
        self.getting = self._new_getting()
        self.closed = True
        self._sender = None
        self._engine.disown(error)

    def _new_getting(self) -> Getting:
        engine = self._engine
        return Getting(engine.check_open, partial(_put_back, engine, self.lock))

    def _wait_for_news(self, left: float) -> None:
        """One thread waits on the socket, the others for it to tell them."""
        pause = min(IDLE_SECONDS, left)
        deadline = self._engine.next_deadline()
        if deadline is not None:
            pause = min(pause, max(0.0, (deadline - self._engine.pumped_at) / 1_000_000))
        if self._at_socket:
            self._be_told(pause)
            return
        self._at_socket = threading.get_ident()
        found: list[tuple[int, int]] = []
        bell = self._bell
        descriptors = (bell.descriptor, *self._engine.descriptors)
        if descriptors != self._polled:
            self._polled, self._poll = descriptors, _poll_for(descriptors)
        poll, busy = self._poll.poll, self._busy
        looks = busy is not None and self._engine.exchanges.awaits_one
        self.lock.release()
        try:
            # One that another thread has closed meanwhile counts as readable.
            found = busy.wait(poll, pause) if busy and looks else poll(pause * 1000)
        finally:
            self.lock.acquire()
            rung = False
            for descriptor, _ in found:
                rung = rung or descriptor == bell.descriptor
            if rung:
                bell.silence()
            # Nothing found: the time is over, and what is due may be on the connection.
            self._readable = self._readable or len(found) != 1 or not rung
            self._at_socket = 0
            if self._told or self.closed:
                self.lock.notify_all()

    def _without_the_lock(self, step: Callable[[], object]) -> None:
        """In the middle of a verb, where nothing is half-way: the step may wait for others."""
        taken = self.lock.release_all()
        try:
            step()
        finally:
            self.lock.take_again(taken)

    def _be_told(self, pause: float) -> None:
        self._told += 1
        try:
            if not self.lock.wait(pause):
                self._readable = True  # the time is over: what is due may be on the connection
        finally:
            self._told -= 1

    def _send(self) -> None:
        outflow = self._engine.outflow
        with self.lock:
            while not self.closed and self._engine.failure is None:
                with surviving(self._engine):  # nobody waits here: who asks next must hear of it
                    self.pump()
                if not outflow.idle:
                    self._wait_for_news(GATHER_SECONDS if outflow.gathering else RETRY_SECONDS)
                    continue
                self._resting = True
                told = self.lock.wait(REST_SECONDS)
                self._resting = False
                if not told and outflow.idle:
                    break  # it would keep a client alive that nobody has any more
            self._sender = None


def _append_nothing(*_: object) -> None:
    """The put takes the long way."""


def _close_for_good(engine: Engine, bell: Wakeup, lock: SignalSafeLock) -> None:
    """Nobody has these turns any more, or the process ends."""
    if not engine.closed and lock.acquire(timeout=EXIT_SECONDS):
        try:
            let_go(engine)
            bell.close()
        finally:
            lock.release()


def _put_back(engine: Engine, lock: SignalSafeLock, feeds: tuple[str, ...]) -> None:
    with lock:
        for feed in feeds:
            engine.subscriber.prefetched.put_back(feed)
        engine.listening.live.put_back()


def _poll_for(descriptors: tuple[int, ...]) -> select.poll:
    """Not `select`: it knows no descriptor over 1023."""
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return poll
