"""The smallest shell over the ZMTP state machine: one blocking socket, for tests beside libzmq."""

import socket
from collections.abc import Sequence
from typing import Any

from oncemq.zmtp.connection import Event, Opened, ZmtpConnection
from oncemq.zmtp.limits import WireLimits
from oncemq.zmtp.messages import encode
from tests.harness.zmtp import heard, owed

PATIENCE = 20.0  # seconds


class ZmtpSocket:
    """One end of one connection; it says what it owes before it waits."""

    def __init__(self, link: socket.socket, socket_type: bytes) -> None:
        self._link = link
        self._link.settimeout(PATIENCE)
        self.zmtp = ZmtpConnection(socket_type, WireLimits())
        self._events: list[Event] = []

    def next(self) -> Event:
        """What the peer says next; raises WireError for what is none, OSError when it is gone."""
        while not self._events:
            self._link.sendall(owed(self.zmtp))
            view = self.zmtp.landing()
            if view is None:
                data = self._link.recv(65_536)
                count = len(data)
                self.zmtp.receive(data)
            else:
                with view:
                    count = self._link.recv_into(view)
                self.zmtp.landed(count)
            if not count:
                raise ConnectionError("the peer closed")
            self._events.extend(heard(self.zmtp))
            self._link.sendall(owed(self.zmtp))
        return self._events.pop(0)

    def opened(self) -> Opened:
        """Its handshake."""
        event = self.next()
        assert isinstance(event, Opened), event
        return event

    def message(self) -> list[bytes]:
        """The next message, whatever comes before it."""
        while not isinstance(event := self.next(), list):
            pass
        return [bytes(frame) for frame in event]

    def send(self, *frames: bytes) -> None:
        """Send a message."""
        for buffer in encode(frames):
            self._link.sendall(buffer)

    def say(self, data: bytes) -> None:
        """Send bytes as they are."""
        self._link.sendall(data)

    def close(self) -> None:
        """Go."""
        self._link.close()


class ZmtpListener:
    """Where libzmq connects to."""

    def __init__(self, family: int = socket.AF_INET, place: Any = ("127.0.0.1", 0)) -> None:
        self._door = socket.socket(family, socket.SOCK_STREAM)
        self._door.bind(place)
        self._door.listen()
        self._door.settimeout(PATIENCE)
        self._ends: list[ZmtpSocket] = []
        where: Any = self._door.getsockname()
        if family == socket.AF_UNIX:
            self.address = f"ipc://{where}"
        elif family == socket.AF_INET6:
            self.address = f"tcp://[{where[0]}]:{where[1]}"
        else:
            self.address = f"tcp://{where[0]}:{where[1]}"

    def accept(self, socket_type: bytes) -> ZmtpSocket:
        """The next who came."""
        self._ends.append(ZmtpSocket(self._door.accept()[0], socket_type))
        return self._ends[-1]

    def close(self) -> None:
        """With all that came."""
        self._door.close()
        for each in self._ends:
            each.close()


def dial(address: str, socket_type: bytes) -> ZmtpSocket:
    """An end that connects to `tcp://host:port`."""
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    return ZmtpSocket(socket.create_connection((host, int(port))), socket_type)


def joined(frames: Sequence[bytes]) -> bytes:
    """A message as bytes."""
    return b"".join(bytes(each) for each in encode(frames))
