"""A listener's end of the live feed: some subjects of one server's."""

import weakref

import zmq

from oncemq.transport.monitor import Monitor
from oncemq.transport.open_sockets import OpenSockets
from oncemq.transport.sockets import NOBLOCK, allow_ipv6, readable, subscriber


class FeedSubscriber:
    """A connected SUB. Used by one thread at a time; does nothing before it connects."""

    def __init__(self) -> None:
        self._sockets = OpenSockets()
        weakref.finalize(self, self._sockets.close)
        self._socket: zmq.Socket[bytes] | None = None
        self._monitor: Monitor | None = None
        self._subjects: set[bytes] = set()
        # What to wait on. They tell only of changes: `receive` and `news` until None first.
        self.descriptors: tuple[int, ...] = ()

    def connect(self, address: str) -> None:
        """Listen to this feed from now on, and no longer to the one before; empty: to none."""
        before = self._socket
        self._socket = self._monitor = None
        self.descriptors = ()
        if address:
            self._open(address)
        if before is not None:  # after: a descriptor that is used again looks like the one before
            self._sockets.drop(before)

    def _open(self, address: str) -> None:
        self._socket, self._monitor = self._sockets.open(subscriber)
        for subject in self._subjects:
            self._socket.setsockopt(zmq.SUBSCRIBE, subject)
        allow_ipv6(self._socket, address)
        self._socket.connect(address)
        self.descriptors = int(self._socket.FD), self._monitor.descriptor

    def news(self) -> bool | None:
        """True: connected. False: disconnected. None: nothing happened."""
        return self._monitor.news() if self._monitor is not None else None

    def tune(self, subjects: set[bytes]) -> None:
        """Listen to these subjects, and to no others."""
        before, self._subjects = self._subjects, subjects
        if self._socket is not None:
            for subject in before - subjects:
                self._socket.setsockopt(zmq.UNSUBSCRIBE, subject)
            for subject in subjects - before:
                self._socket.setsockopt(zmq.SUBSCRIBE, subject)

    def receive(self) -> list[bytes] | None:
        """The next message's frames, or None."""
        if self._socket is None or not readable(self._socket):
            return None
        return self._socket.recv_multipart(NOBLOCK)

    def close(self) -> None:
        """Listen no longer."""
        self.connect("")
        self._sockets.close()
