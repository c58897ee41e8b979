"""A client's end: one server at a time, with news of the connection coming and going."""

import struct
from collections.abc import Sequence

import zmq

from oncemq.transport.sockets import NOBLOCK, dealer, readable

Frames = Sequence[bytes | bytearray | memoryview]

_SUCCEEDED = int(zmq.EVENT_HANDSHAKE_SUCCEEDED)
_EVENTS = _SUCCEEDED | int(zmq.EVENT_DISCONNECTED)
_EVENT = struct.Struct("=HI")  # what happened, and a value that does not matter here


class Link:
    """A connected DEALER. Used by one thread at a time."""

    def __init__(self) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket: zmq.Socket[bytes] | None = None
        self._monitor: zmq.Socket[bytes] | None = None
        # What to wait on. They tell only of changes: `receive` and `news` until None first.
        self.descriptors: tuple[int, ...] = ()

    def connect(self, address: str) -> None:
        """Talk to this server from now on, and no longer to the one before."""
        self._drop()
        self._socket = dealer(self._context)
        self._monitor = self._socket.get_monitor_socket(_EVENTS)
        self._socket.connect(address)
        self.descriptors = int(self._socket.FD), int(self._monitor.FD)

    def news(self) -> bool | None:
        """True: connected. False: disconnected. None: nothing happened."""
        if self._monitor is None or not readable(self._monitor):
            return None
        # Parsed here: zmq.utils.monitor would import asyncio, 30 ms for every command.
        event = _EVENT.unpack(self._monitor.recv_multipart(NOBLOCK)[0])[0]
        return event == _SUCCEEDED

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
        self._context.term()

    def _drop(self) -> None:
        if self._socket is not None:
            self._socket.disable_monitor()
            if self._monitor is not None:
                self._monitor.close(linger=0)
            self._socket.close(linger=0)
        self._socket = self._monitor = None
        self.descriptors = ()
