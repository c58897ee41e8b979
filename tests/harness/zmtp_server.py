"""A server by hand: one connection at a time, every byte of it a test's own."""

import select
import socket

from oncemq.transport.connecting.link import ClientLink
from oncemq.zmtp.commands import READY, command, properties
from oncemq.zmtp.greeting import GREETING_BYTES, greeting
from oncemq.zmtp.messages import encode
from tests.harness.waiting import PATIENCE, until_true

BEGINNING = greeting(b"NULL", as_server=False) + command(
    READY, properties({b"Socket-Type": b"ROUTER"})
)
HANDSHAKE_BYTES = GREETING_BYTES + len(
    command(READY, properties({b"Socket-Type": b"DEALER", b"Identity": b""}))
)


class HandServer:
    """Listens on loopback; what it says and reads is what a test tells it to."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._listening.settimeout(PATIENCE)
        self.port = self._listening.getsockname()[1]
        self.address = f"tcp://127.0.0.1:{self.port}"
        self.accepted: list[socket.socket] = []

    def accept(self) -> socket.socket:
        """The next connection."""
        connection = self._listening.accept()[0]
        connection.settimeout(PATIENCE)
        self.accepted.append(connection)
        return connection

    def accept_while(self, line: ClientLink) -> socket.socket:
        """The next connection of a line that is asked meanwhile."""
        until_true(lambda: line.receive() or self._is_called(), "a connection")
        return self.accept()

    def _is_called(self) -> bool:
        return bool(select.select([self._listening], [], [], 0)[0])

    def close(self) -> None:
        for each in (*self.accepted, self._listening):
            each.close()


def read(connection: socket.socket, count: int) -> bytes:
    """So many bytes."""
    data = b""
    while len(data) < count:
        more = connection.recv(count - len(data))
        assert more, f"ended after {len(data)} bytes of {count}"
        data += more
    return data


def on_the_wire(*frames: bytes) -> bytes:
    """A message as bytes."""
    return b"".join(bytes(each) for each in encode(frames))
