"""Many listeners in one process, and a bare XPUB: what benchmarks measure the live feed with.

    python -m benchmarks.audience many ADDRESS SUBJECT COUNT SECONDS    counts what comes
    python -m benchmarks.audience stay ADDRESS SUBJECT COUNT            connects, and stays
    python -m benchmarks.audience pull ADDRESS COUNT                    latencies of a PUSH

Plain sockets with the options of the real ones. `many` has a socket for each; `stay` has one
socket with a connection from each of as many addresses of the loopback network.
"""

import json
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

import zmq

STAMP_BYTES = 8
FEED_MESSAGES = 128  # that libzmq keeps for a listener which does not keep up
NOBLOCK = int(zmq.NOBLOCK)
PATIENCE_MS = 30_000
ROOM_MS = 200


def subscriber(context: "zmq.Context[zmq.Socket[bytes]]") -> "zmq.Socket[bytes]":
    """A listener's socket, not yet connected."""
    socket = context.socket(zmq.SUB)
    socket.setsockopt(zmq.RCVHWM, FEED_MESSAGES)
    socket.setsockopt(zmq.LINGER, 0)
    return socket


class BareFeed:
    """An XPUB that sends the same message to everyone as fast as all of them take it."""

    def __init__(self) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(zmq.XPUB)
        self._socket.setsockopt(zmq.SNDHWM, FEED_MESSAGES)
        self._socket.setsockopt(zmq.LINGER, 0)
        # Waiting for room is its best: what it would drop has cost it as much as what arrives.
        self._socket.setsockopt(zmq.XPUB_NODROP, 1)
        self._socket.setsockopt(zmq.SNDTIMEO, ROOM_MS)
        self._socket.bind("tcp://127.0.0.1:*")
        self.address = str(self._socket.getsockopt_string(zmq.LAST_ENDPOINT))

    def send(self, frames: Sequence[bytes], until: Callable[[], bool]) -> None:
        """Again and again."""
        while not until():
            with suppress(zmq.Again):  # nobody took anything for a while: is it over?
                self._socket.send_multipart(frames, copy=False)

    def close(self) -> None:
        """Let go of the socket."""
        self._context.destroy(linger=0)


class BarePush:
    """The near end of a PUSH/PULL pipe."""

    def __init__(self) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(zmq.PUSH)
        self._socket.bind("tcp://127.0.0.1:*")
        self.address = str(self._socket.getsockopt_string(zmq.LAST_ENDPOINT))

    def send(self, payload: bytes) -> None:
        """One message."""
        self._socket.send(payload)

    def close(self) -> None:
        """Let go of the socket."""
        self._context.destroy(linger=10_000)


def _say(value: object) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def many(address: str, subject: bytes, count: int, seconds: float) -> None:
    """Connect `count` sockets; once each got something, count what comes for so long."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    context.set(zmq.MAX_SOCKETS, count + 100)
    poller = zmq.Poller()
    sockets = [subscriber(context) for _ in range(count)]
    for socket in sockets:
        socket.setsockopt(zmq.SUBSCRIBE, subject)
        socket.connect(address)
        poller.register(socket, zmq.POLLIN)
    _say("connecting")
    silent = set(sockets)
    while silent:
        ready = poller.poll(PATIENCE_MS)
        assert ready, f"{len(silent)} of {count} listeners heard nothing"
        for socket, _ in ready:
            _drain(socket)
            silent.discard(socket)
    started, received = time.perf_counter(), 0
    while (now := time.perf_counter()) - started < seconds:
        for socket, _ in poller.poll(100):
            received += _drain(socket)
    _say({"bytes": received, "seconds": now - started})


def _drain(socket: "zmq.Socket[bytes]") -> int:
    """Take what is there; how many bytes that was."""
    taken = 0
    for _ in range(FEED_MESSAGES):
        try:
            frames = socket.recv_multipart(NOBLOCK, copy=False)
        except zmq.Again:
            break
        taken += sum(len(frame) for frame in frames)
    return taken


def stay(address: str, subject: bytes, count: int) -> None:
    """Connect `count` times, say how many are connected, and stay until killed."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    socket = subscriber(context)
    socket.setsockopt(zmq.SUBSCRIBE, subject)
    monitor = socket.get_monitor_socket(int(zmq.EVENT_HANDSHAKE_SUCCEEDED))
    place = address.removeprefix("tcp://")
    for number in range(count):
        source = f"127.1.{number // 250}.{number % 250 + 1}"
        socket.connect(f"tcp://{source}:0;{place}")
    connected = 0
    while connected < count and monitor.poll(PATIENCE_MS):
        monitor.recv_multipart()
        connected += 1
    _say(connected)
    while True:
        time.sleep(60)


def pull(address: str, count: int) -> None:
    """The seconds from the stamp in each payload to its arrival."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    socket = context.socket(zmq.PULL)
    socket.connect(address)
    _say("waiting")
    times: list[float] = []
    for _ in range(count):
        stamp = socket.recv()[:STAMP_BYTES]
        times.append((time.monotonic_ns() - int.from_bytes(stamp, "little")) / 1e9)
    _say(times)


if __name__ == "__main__":
    role, where, *rest = sys.argv[1:]
    if role == "many":
        many(where, bytes.fromhex(rest[0]), int(rest[1]), float(rest[2]))
    elif role == "stay":
        stay(where, bytes.fromhex(rest[0]), int(rest[1]))
    else:
        pull(where, int(rest[0]))
