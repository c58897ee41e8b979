"""What ZeroMQ itself does on this machine, without us: the limits that benchmarks print.

Plain sockets with their default options, single messages, one process at each end. The far end
runs as `python -m oncemq.transport.baseline push|echo ADDRESS COUNT BYTES`.
"""

import sys
import time

import zmq

LINGER_MS = 10_000


class Pull:
    """The near end of a PUSH/PULL pipe: how fast do single messages come?"""

    def __init__(self) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(zmq.PULL)
        self._socket.bind("tcp://127.0.0.1:*")
        self.address = str(self._socket.getsockopt_string(zmq.LAST_ENDPOINT))

    def seconds(self, count: int) -> float:
        """Receive `count` messages after a first one; how long that took."""
        receive = self._socket.recv
        receive()
        started = time.perf_counter()
        for _ in range(count):
            receive()
        return time.perf_counter() - started

    def close(self) -> None:
        """Let go of the socket."""
        self._context.destroy(linger=0)


class Ping:
    """The near end of a PAIR: how long does a message take there and back?"""

    def __init__(self) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(zmq.PAIR)
        self._socket.bind("tcp://127.0.0.1:*")
        self.address = str(self._socket.getsockopt_string(zmq.LAST_ENDPOINT))

    def round_trips(self, count: int, payload_bytes: int) -> list[float]:
        """The seconds of each of `count` round trips."""
        payload = bytes(payload_bytes)
        socket = self._socket
        times: list[float] = []
        for _ in range(count):
            started = time.perf_counter()
            socket.send(payload)
            socket.recv()
            times.append(time.perf_counter() - started)
        return times

    def close(self) -> None:
        """Let go of the socket."""
        self._context.destroy(linger=0)


def push(address: str, count: int, payload_bytes: int) -> None:
    """The far end of `Pull`: one message, then `count` more."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    socket = context.socket(zmq.PUSH)
    socket.setsockopt(zmq.LINGER, LINGER_MS)
    socket.connect(address)
    send, payload = socket.send, bytes(payload_bytes)
    for _ in range(count + 1):
        send(payload)
    socket.close()
    context.term()


def echo(address: str, count: int) -> None:
    """The far end of `Ping`."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    socket = context.socket(zmq.PAIR)
    socket.setsockopt(zmq.LINGER, LINGER_MS)
    socket.connect(address)
    for _ in range(count):
        socket.send(socket.recv())
    socket.close()
    context.term()


if __name__ == "__main__":
    if sys.argv[1] == "push":
        push(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    else:
        echo(sys.argv[2], int(sys.argv[3]))
