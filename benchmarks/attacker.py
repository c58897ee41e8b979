"""One attack on a server, as a program of its own: again and again until it is killed.

    python attacker.py NAME HOST PORT FEED_PORT

Law: it says "under way" once the server has met it.
"""

import os
import select
import socket
import struct
import sys
from collections.abc import Callable, Iterator
from itertools import cycle

from oncemq.protocol.names import ClientId, Epoch, Offset
from oncemq.protocol.requests import CreateTopic, Get, Read, Request, StatusRequest, Subscribe
from oncemq.wire import codec
from oncemq.zmtp import commands
from oncemq.zmtp.greeting import greeting
from oncemq.zmtp.messages import encode

MEBIBYTE = 1 << 20
JOINED = len(greeting(b"NULL", as_server=False))
NOBODY = Epoch(0)
BIG_TOPIC = "big"  # which holds a few messages of a mebibyte


class Target:
    """Where the server is."""

    def __init__(self, host: str, port: int, feed_port: int) -> None:
        self.host, self.port, self.feed_port = host, port, feed_port

    def connect(self, *, feed: bool = False) -> socket.socket:
        """A bare connection."""
        return socket.create_connection((self.host, self.feed_port if feed else self.port), 10)

    def join(self, *, feed: bool = False) -> socket.socket:
        """A peer past its handshake."""
        link = self.connect(feed=feed)
        kind = b"SUB" if feed else b"DEALER"
        ready = commands.command(b"READY", commands.properties({b"Socket-Type": kind}))
        link.sendall(greeting(b"NULL", as_server=False) + ready)
        heard = b""
        while len(heard) <= JOINED:
            heard += link.recv(4_096) or sys.exit("closed in the handshake")
        return link


def frames(*parts: bytes) -> bytes:
    """A message."""
    return b"".join(bytes(each) for each in encode(parts))


def request(what: Request, token: int = 1) -> bytes:
    """A request as bytes."""
    return b"".join(bytes(each) for each in encode(codec.encode_request(token, what, None)))


def ping() -> bytes:
    """A heartbeat that asks for 16 bytes back."""
    return commands.command(b"PING", bytes(2) + b"x" * 16)


def reset(link: socket.socket) -> None:
    """Close with a reset."""
    link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    link.close()


def pour(
    target: Target,
    count: int,
    block: bytes,
    *,
    feed: bool = False,
    reading: bool = False,
) -> Iterator[None]:
    """Send it on so many connections as fast as it is taken; who is hung up on comes again."""
    places: dict[socket.socket, int] = {}
    while True:
        while len(places) < count:
            link = target.join(feed=feed)
            link.setblocking(False)
            places[link] = 0
        links = list(places)
        readable, writable, _ = select.select(links if reading else (), links, (), 0.05)
        for link in {*readable, *writable}:
            try:
                if link in readable and not link.recv(MEBIBYTE):
                    raise ConnectionResetError
                if link in writable:
                    sent = link.send(memoryview(block)[places[link] :])
                    places[link] = (places[link] + sent) % len(block)
            except BlockingIOError:
                continue
            except OSError:
                link.close()
                del places[link]
        yield


def comings(target: Target) -> Iterator[None]:
    """Connections that are made and reset."""
    while True:
        reset(target.join())
        yield


def silent(target: Target) -> Iterator[None]:
    """Three hundred connections that say nothing."""
    links = [target.connect() for _ in range(300)]
    for place in cycle(range(len(links))):
        links[place].close()
        links[place] = target.connect()
        select.select((), (), (), 0.005)
        yield


def announced(target: Target) -> Iterator[None]:
    """Frames of 60 MiB of which 8 KB come."""
    while True:
        links = [target.join() for _ in range(100)]
        for link in links:
            link.sendall(struct.pack(">BQ", 2, 60 * MEBIBYTE) + bytes(8_192))
        select.select((), (), (), 0.2)
        yield
        for link in links:
            link.close()


def unread(target: Target) -> Iterator[None]:
    """Reads of megabytes whose answers nobody reads."""
    while True:
        links = [target.join() for _ in range(4)]
        for link in links:
            link.sendall(request(Read(BIG_TOPIC, Offset(0), 4, 64 * MEBIBYTE, True)) * 40)
        select.select((), (), (), 0.5)
        yield
        for link in links:
            link.close()


def names() -> bytes:
    """Topics without end."""
    return b"".join(request(CreateTopic(f"t{n:06d}" + "y" * 200), n + 1) for n in range(3_000))


def waits() -> bytes:
    """Long polls without end."""
    found: list[bytes] = []
    for n in range(1_000):
        guest = ClientId(f"_anonymous-{n}")
        found.append(request(Subscribe(guest, NOBODY, "waits"), 2 * n))
        found.append(request(Get(guest, NOBODY, "waits", wait_ms=60_000), 2 * n + 1))
    return b"".join(found)


STATUS = request(StatusRequest())
SUBJECT = struct.pack(">Q", 1)
ATTACKS: dict[str, Callable[[Target], Iterator[None]]] = {
    "small requests, answers read": lambda at: pour(at, 8, STATUS * 2_000, reading=True),
    "small requests, answers unread": lambda at: pour(at, 8, STATUS * 2_000),
    "pings": lambda at: pour(at, 4, ping() * 2_000),
    "unknown commands": lambda at: pour(at, 4, b"\x04\x02\x01A" * 10_000),
    "frames of a message without end": lambda at: pour(at, 1, (b"\x01\xc8" + b"x" * 200) * 2_000),
    "topics without end": lambda at: pour(at, 1, names(), reading=True),
    "long polls without end": lambda at: pour(at, 1, waits(), reading=True),
    "answers of megabytes that nobody reads": unread,
    "lengths that are announced": announced,
    "connections that come and go": comings,
    "connections that say nothing": silent,
    "random subjects on the feed": lambda at: pour(
        at, 1, b"".join(frames(b"\x01" + os.urandom(8)) for _ in range(20_000)), feed=True
    ),
    "subjects that come and go": lambda at: pour(
        at, 3, (frames(b"\x01" + SUBJECT) + frames(b"\x00" + SUBJECT)) * 2_000, feed=True
    ),
}


def main(name: str, host: str, port: int, feed_port: int) -> None:
    """Until it is killed."""
    steps = ATTACKS[name](Target(host, port, feed_port))
    next(steps)
    sys.stdout.write("under way\n")
    sys.stdout.flush()
    for _ in steps:
        pass


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
