"""News of a connecting socket: its peer is there, its peer is gone."""

import struct
from collections.abc import Callable
from typing import TypeVar

import zmq

from oncemq.transport.sockets import NOBLOCK, readable

_SUCCEEDED = int(zmq.EVENT_HANDSHAKE_SUCCEEDED)
_EVENTS = _SUCCEEDED | int(zmq.EVENT_DISCONNECTED)
_EVENT = struct.Struct("=HI")  # what happened, and a value that does not matter here

T = TypeVar("T")


class Monitor:
    """Watches one socket from before it connects. Closed before the socket is."""

    def __init__(self, socket: "zmq.Socket[bytes]") -> None:
        self._watched = socket
        self._socket = _uninterrupted(lambda: socket.get_monitor_socket(_EVENTS))
        self.descriptor = int(self._socket.FD)

    def news(self) -> bool | None:
        """True: connected. False: disconnected. None: nothing happened."""
        if not readable(self._socket):
            return None
        # Parsed here: zmq.utils.monitor would import asyncio, 30 ms for every command.
        event = _EVENT.unpack(self._socket.recv_multipart(NOBLOCK)[0])[0]
        return event == _SUCCEEDED

    def close(self) -> None:
        """Watch no longer."""
        _uninterrupted(self._watched.disable_monitor)
        self._socket.close(linger=0)


def _uninterrupted(call: Callable[[], T]) -> T:
    """The call, made again when a signal cut it short: of these two pyzmq does not do so itself."""
    while True:
        try:
            return call()
        except zmq.error.InterruptedSystemCall:
            continue
