"""A bell that wakes a loop from another thread: rung any number of times, it wakes it once."""

import contextlib
import select
import socket
from typing import Protocol


class Bell(Protocol):
    """Anything whose descriptor becomes readable when there is something to be looked at."""

    @property
    def descriptor(self) -> int: ...
    def silence(self) -> None: ...


class Wakeup:
    """`ring` from any thread; `descriptor` becomes readable; `silence` in the loop."""

    def __init__(self) -> None:
        self._ear, self._hand = socket.socketpair()
        self._ear.setblocking(False)
        self._hand.setblocking(False)
        self.descriptor = self._ear.fileno()  # what the loop waits on

    def ring(self) -> None:
        """Wake the loop; a bell that is already ringing stays so.

        The loop may see why it is rung for before it is, end, and put the bell away.
        """
        try:
            self._hand.send(b"!")
        except BlockingIOError:
            pass
        except OSError:
            if self._hand.fileno() != -1:
                raise

    def silence(self) -> None:
        """Stop ringing; ask what there is to do after this, not before."""
        with contextlib.suppress(BlockingIOError):
            self._ear.recv(4096)

    def close(self) -> None:
        """Put the bell away."""
        self._ear.close()
        self._hand.close()


class Bells:
    """Several, waited for together; of one thread."""

    def __init__(self) -> None:
        self._poll = select.poll()
        self._bells: list[Bell] = []

    def add(self, bell: Bell) -> None:
        """Wake up when it rings."""
        self._bells.append(bell)
        self._poll.register(bell.descriptor, select.POLLIN)

    def remove(self, bell: Bell) -> None:
        """No longer."""
        self._bells.remove(bell)
        self._poll.unregister(bell.descriptor)

    def wait(self, timeout_ms: int) -> None:
        """Until one rings, or the time is over."""
        if self._poll.poll(timeout_ms):
            for bell in self._bells:
                bell.silence()
