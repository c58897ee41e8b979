"""Signals put off while a client's state moves.

Python runs signal handlers in the main thread, between any two steps of it. One that raises
(Ctrl-C does) would leave a lock taken, a record half written, an answer half applied. While
the shield is up such a signal is only noted; its handler runs when the shield comes down, or
where `deliver` says that a handler may raise.

Laws: nothing is put off longer than one turn of waiting; handlers are put back as they were.
Other threads run no handlers: for them the shield does nothing.
"""

import signal
import threading
from collections import deque
from collections.abc import Callable
from importlib import import_module
from types import FrameType
from typing import Any

_UNCATCHABLE = ("SIGKILL", "SIGSTOP")
SIGNALS = tuple(
    sorted(
        {int(each) for each in signal.valid_signals()}
        - {int(getattr(signal, name)) for name in _UNCATCHABLE if hasattr(signal, name)}
    )
)
# What `signal` wraps: the same two functions, ten times faster without its enums.
_signal: Any = import_module("_signal")
_getsignal: Callable[[int], object] = _signal.getsignal


class DeferredSignals:
    """One for the process, as its signals are. May be raised again while it is up."""

    def __init__(self) -> None:
        self._main = threading.main_thread().ident  # another one only after a fork
        self._depth = 0
        self._handlers: dict[int, Any] = {}
        self.came: deque[tuple[int, FrameType | None]] = deque()  # what is put off
        # What was installed at the last look, and which of it are handlers: there is no way to
        # hear of a change, and to look at all sixty in one call costs two microseconds.
        self._seen: tuple[object, ...] = ()
        self._handled: list[tuple[int, Any]] = []

    def up(self) -> None:
        """From here on no handler raises in the main thread."""
        if threading.get_ident() != self._main:
            return
        if self._depth == 0:
            try:
                self._put_off()
            except BaseException:  # a handler that was not put off yet
                self._put_back()
                raise
        self._depth += 1

    def down(self) -> None:
        """The state is whole: handlers may run, and those that were put off do so now."""
        if threading.get_ident() != self._main:
            return
        self._depth = max(0, self._depth - 1)  # 0 already: this is a fork's copy of it
        if self._depth == 0:
            self._put_back()
            if self.came:
                self.deliver()

    def deliver(self) -> None:
        """Run what was put off, here, where the state is whole; it may raise."""
        while self.came and threading.get_ident() == self._main:
            number, frame = self.came.popleft()
            handler = self._handlers.get(number) or _signal.getsignal(number)
            if callable(handler) and handler != self._note:
                handler(number, frame)

    def forked(self) -> None:
        """In a child of a fork: what other threads were doing is not going on here."""
        handlers, self._handlers = self._handlers, {}
        self._main = threading.get_ident()
        self._depth = 0
        self.came.clear()
        for number, handler in handlers.items():
            _signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        # As pending signals merge. A copy, made in one step: this may be interrupted by another
        # signal, whose note changes what would be looked through.
        if not any(number == noted for noted, _ in tuple(self.came)):
            self.came.append((number, frame))

    # Handlers may run, raise, or use a client, between any two lines of the next two. So what is
    # replaced is noted first and forgotten last, and what one of them leaves undone is done by the
    # next that comes through.

    def _put_off(self) -> None:
        seen = tuple(map(_getsignal, SIGNALS))
        if seen != self._seen:
            pairs = zip(SIGNALS, seen, strict=True)
            handled = [(each, how) for each, how in pairs if callable(how) and how != self._note]
            self._seen, self._handled = seen, handled
        handled = self._handled
        while True:
            for number, handler in handled:
                self._handlers[number] = handler
                _signal.signal(number, self._note)
            for number, _ in handled:
                if number not in self._handlers:
                    break  # a handler that uses a client has put them back
            else:
                return

    def _put_back(self) -> None:
        raised: BaseException | None = None
        while self._handlers:
            try:
                for number, handler in tuple(self._handlers.items()):
                    _signal.signal(number, handler)
                    self._handlers.pop(number, None)
            except BaseException as error:  # of one that is back already: the others go back too
                if raised is None or isinstance(raised, Exception):  # an exit is not passed over
                    raised = error
        if raised is not None:
            raise raised


SHIELD = DeferredSignals()


class SignalSafeLock:
    """A condition whose holder no signal handler interrupts. `plain` is the same lock without."""

    def __init__(self) -> None:
        self.plain = threading.RLock()
        self._condition = threading.Condition(self.plain)
        self.acquire = self._condition.acquire
        self.release = self._condition.release
        self.wait = self._condition.wait
        self.notify_all = self._condition.notify_all
        lock: Any = self.plain
        self.is_owned: Callable[[], bool] = lock._is_owned  # by this thread; as Condition asks it
        # Of a thread that took it more than once, as Condition does before and after it waits.
        self.release_all: Callable[[], object] = lock._release_save
        self.take_again: Callable[[object], None] = lock._acquire_restore

    def __enter__(self) -> None:
        SHIELD.up()
        self._condition.acquire()

    def __exit__(self, *_: object) -> None:
        self._condition.release()
        SHIELD.down()
