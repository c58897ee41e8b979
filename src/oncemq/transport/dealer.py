"""A client's end: one server at a time, with news of the connection coming and going."""

import weakref
from collections.abc import Sequence

import zmq

from oncemq.errors import ConfigError
from oncemq.transport.monitor import Monitor
from oncemq.transport.open_sockets import OpenSockets
from oncemq.transport.sockets import NOBLOCK, allow_ipv6, dealer, readable, writable

Frames = Sequence[bytes | bytearray | memoryview]


class DealerSocket:
    """A connected DEALER. Used by one thread at a time."""

    def __init__(self) -> None:
        self._sockets = OpenSockets()
        weakref.finalize(self, self._sockets.close)
        self._socket: zmq.Socket[bytes] | None = None
        self._monitor: Monitor | None = None
        self._untold = False  # there is a connection, and a send would not find it yet
        # What to wait on. They tell only of changes: `receive` and `news` until None first.
        self.descriptors: tuple[int, ...] = ()

    def connect(self, address: str) -> None:
        """Talk to this server from now on, and no longer to the one before."""
        self._drop()
        self._socket, self._monitor = self._sockets.open(dealer)
        try:
            allow_ipv6(self._socket, address)
            self._socket.connect(address)
        except zmq.ZMQError as error:
            raise ConfigError(
                f"cannot connect to {address!r}: {error.strerror}; the address of a server looks "
                "like tcp://127.0.0.1:5556, or ipc:///run/oncemq.sock"
            ) from None
        self.descriptors = int(self._socket.FD), self._monitor.descriptor

    def news(self) -> bool | None:
        """True: connected. False: disconnected. None: nothing happened.

        The monitor knows of a handshake before the socket does: until a send would leave, nobody
        is told.
        """
        if self._socket is None or self._monitor is None:
            return None
        happened = self._monitor.news()
        if happened is not None:
            self._untold = happened
        if self._untold and writable(self._socket):
            self._untold = False
            return True
        return False if happened is False else None

    def send(self, frames: Frames) -> bool:
        """Send now, or not at all: False without a connection or when it is full."""
        if self._socket is None:
            return False
        try:
            self._socket.send_multipart(frames, NOBLOCK, copy=False)
        except zmq.Again:
            return False
        return True

    def receive(self) -> list[bytes] | None:
        """The next reply's frames, or None."""
        if self._socket is None or not readable(self._socket):
            return None
        return self._socket.recv_multipart(NOBLOCK)

    def close(self) -> None:
        """Let go of the connection."""
        self._drop()
        self._sockets.close()

    def _drop(self) -> None:
        if self._socket is not None:
            self._sockets.drop(self._socket)
        self._socket = self._monitor = None
        self._untold = False
        self.descriptors = ()
