"""A server's end as any ZeroMQ program has it: libzmq's ROUTER and XPUB, through pyzmq.

With `heartbeats` it pings, and drops who does not answer.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar

import zmq

from oncemq.transport.dealer import DealerSocket
from oncemq.transport.feed_subscriber import FeedSubscriber
from tests.harness.waiting import until

T = TypeVar("T")
Request = tuple[bytes, list[bytes]]


class ZmqSocket:
    """A bound socket of libzmq's, up and down at one address."""

    def __init__(self, kind: int, *, heartbeats: bool) -> None:
        self.address = "tcp://127.0.0.1:*"
        self._kind = kind
        self._heartbeats = heartbeats
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.socket: zmq.Socket[bytes] | None = None

    def up(self) -> None:
        self.socket = self._context.socket(self._kind)
        self.socket.setsockopt(zmq.LINGER, 0)
        if self._kind == zmq.ROUTER:
            self.socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        else:
            self.socket.setsockopt(zmq.XPUB_VERBOSE, 1)
        if self._heartbeats:
            self.socket.setsockopt(zmq.HEARTBEAT_IVL, 20)
            self.socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, 5_000)
        self.socket.bind(self.address)
        self.address = str(self.socket.getsockopt_string(zmq.LAST_ENDPOINT))

    def down(self) -> None:
        assert self.socket is not None
        # At once: a name that is bound again is free only when libzmq's thread has let go of it.
        self.socket.close(linger=0)
        self.socket = None
        self._context.term()
        self._context = zmq.Context()

    def received(self) -> list[bytes] | None:
        if self.socket is None or not self.socket.poll(0):
            return None
        return self.socket.recv_multipart()

    def end(self) -> None:
        self._context.destroy(linger=0)


class ZmqWire:
    """A ROUTER."""

    def __init__(self, *, heartbeats: bool = False) -> None:
        self._door = ZmqSocket(zmq.ROUTER, heartbeats=heartbeats)
        self.nowhere = "tcp://127.0.0.1:9"
        self._reads = True
        self._lines: list[DealerSocket] = []

    @property
    def address(self) -> str:
        return self._door.address

    def up(self) -> None:
        self._door.up()

    def down(self) -> None:
        self._door.down()

    def line(self) -> DealerSocket:
        self._lines.append(DealerSocket())
        return self._lines[-1]

    def request(self) -> Request | None:
        frames = self._door.received() if self._reads else None
        return (frames[0], frames[1:]) if frames else None

    def reply(self, route: bytes, frames: Sequence[bytes]) -> None:
        assert self._door.socket is not None
        with suppress(zmq.ZMQError):  # a peer that is gone, or does not read
            self._door.socket.send_multipart([route, *frames], zmq.NOBLOCK)

    def reaches(self, route: bytes) -> bool:
        assert self._door.socket is not None
        try:
            self._door.socket.send_multipart([route, b"are you there?"], zmq.NOBLOCK)
        except zmq.ZMQError as error:
            return error.errno == zmq.EAGAIN
        return True

    def stop_reading(self) -> None:
        self._reads = False

    def read_again(self) -> None:
        self._reads = True

    def until(self, look: Callable[[], T | None]) -> T:
        return until(look)

    def end(self) -> None:
        for line in self._lines:
            line.close()
        self._door.end()


class ZmqBroadcast:
    """An XPUB."""

    def __init__(self, *, heartbeats: bool = False) -> None:
        self._feed = ZmqSocket(zmq.XPUB, heartbeats=heartbeats)
        self._ears: list[FeedSubscriber] = []

    @property
    def address(self) -> str:
        return self._feed.address

    def up(self) -> None:
        self._feed.up()

    def down(self) -> None:
        self._feed.down()

    def ear(self) -> FeedSubscriber:
        self._ears.append(FeedSubscriber())
        return self._ears[-1]

    def change(self) -> tuple[bool, bytes] | None:
        said = self._feed.received()
        return (said[0][:1] == b"\1", said[0][1:]) if said else None

    def send(self, frames: Sequence[bytes]) -> None:
        assert self._feed.socket is not None
        self._feed.socket.send_multipart(frames, zmq.NOBLOCK)

    def until(self, look: Callable[[], T | None]) -> T:
        return until(look)

    def end(self) -> None:
        for ear in self._ears:
            ear.close()
        self._feed.end()
