"""A peer that says whatever bytes a test wants, from a plain socket."""

import socket

from oncemq.zmtp import commands
from oncemq.zmtp.greeting import greeting
from oncemq.zmtp.messages import encode


def message(*frames: bytes) -> bytes:
    """As it is on the wire."""
    return b"".join(map(bytes, encode(frames)))


def handshake(kind: bytes = b"DEALER", identity: bytes = b"") -> bytes:
    """All that a peer of NULL says before its first message."""
    said = {b"Socket-Type": kind, b"Identity": identity}
    ready = commands.command(commands.READY, commands.properties(said))
    return greeting(b"NULL", as_server=False) + ready


class RawPeer:
    """Connected to an address of a server, and not more."""

    def __init__(self, address: str, *said: bytes) -> None:
        host, _, port = address.removeprefix("tcp://").rpartition(":")
        self.link = socket.create_connection((host, int(port)))
        # What it says is there at once, though nobody answers.
        self.link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.link.setblocking(False)
        self.say(*said)

    def say(self, *parts: bytes) -> int:
        """As far as the system takes it now; how much that was."""
        return sum(self.link.send(part) for part in parts)

    def heard(self) -> bytes | None:
        """What came; empty: the connection is over; None: nothing yet."""
        try:
            return self.link.recv(1 << 20)
        except BlockingIOError:
            return None
        except ConnectionError:
            return b""

    def is_over(self) -> bool | None:
        """True once the connection is over; for `until`."""
        while True:
            said = self.heard()
            if not said:
                return True if said == b"" else None

    def close(self) -> None:
        self.link.close()
