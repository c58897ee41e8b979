"""A wire between clients and a server that can be cut, slowed, clogged or closed to newcomers.

Bytes pass unchanged and in order: what a bad network does to TCP is to end it, to delay it, and
to leave open whether the last request arrived. `clog(ANSWERS)`, then `cut`, does the latter: the
server has done what was asked, and nobody was told.

    with proxy(address) as wire:
        client = Client(wire.address)
        wire.cut()

Law: one thread owns every socket; the other methods leave a wish and wait until it is done.
"""

import random
import selectors
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress

REQUESTS, ANSWERS = "requests", "answers"
HELD_BYTES_MAX = 4 << 20  # of one direction of one connection: beyond, the peer has to wait
PIECE_BYTES = 1 << 16
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER of 0 s: the peer sees a reset, not an end


class _Flow:
    """One direction of one connection."""

    def __init__(self, source: socket.socket, target: socket.socket, direction: str) -> None:
        self.source = source
        self.target = target
        self.direction = direction
        self.held: deque[tuple[float, bytes]] = deque()
        self.held_bytes = 0
        self.ended = False


class Proxy:
    """A wire to one server; `address` is where clients connect."""

    def __init__(self, server: str, chance: random.Random | None = None) -> None:
        host, _, port = server.removeprefix("tcp://").rpartition(":")
        self._server = (host, int(port))
        self._chance = chance or random.Random()
        self._door = socket.create_server(("127.0.0.1", 0))
        self.address = f"tcp://127.0.0.1:{self._door.getsockname()[1]}"
        self.cuts = 0
        self._flows: dict[socket.socket, _Flow] = {}  # by their source
        self._delay_seconds = 0.0
        self._clogged: set[str] = set()
        self._closed_to_newcomers = False
        self._wishes: deque[tuple[Callable[[], None], threading.Event]] = deque()
        self._waker, self._woken = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._door, selectors.EVENT_READ)
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._running = True
        self._thread = threading.Thread(target=self._run, name="oncemq-proxy", daemon=True)
        self._thread.start()

    # faults; from any thread

    def cut(self, *, reset: bool = False) -> None:
        """End every connection, with what is held on it; new ones work."""
        self._do(lambda: self._cut(reset))

    def delay(self, seconds: float) -> None:
        """From now on every byte takes so long; 0 ends it."""
        self._do(lambda: setattr(self, "_delay_seconds", seconds))

    def clog(self, direction: str) -> None:
        """REQUESTS or ANSWERS do not come through until `unclog`, or are lost by a `cut`."""
        self._do(lambda: self._clogged.add(direction))

    def unclog(self) -> None:
        """What was held comes through."""
        self._do(self._clogged.clear)

    def refuse(self, refused: bool = True) -> None:
        """Whether new connections are closed at once."""
        self._do(lambda: setattr(self, "_closed_to_newcomers", refused))

    def heal(self) -> None:
        """An honest wire again; connections stay."""
        self._do(self._heal)

    def close(self) -> None:
        """End it and every connection."""
        if self._running:
            self._do(self._end)
            self._thread.join()

    # inside: the thread

    def _do(self, wish: Callable[[], None]) -> None:
        done = threading.Event()
        self._wishes.append((wish, done))
        self._waker.send(b"!")
        done.wait()

    def _run(self) -> None:
        while self._running:
            for key, _ in self._selector.select(self._pause()):
                if key.fileobj is self._woken:
                    self._woken.recv(PIECE_BYTES)
                elif key.fileobj is self._door:
                    self._open(self._door.accept()[0])
                elif key.fileobj in self._flows:
                    self._take(self._flows[key.fileobj])  # type: ignore[index]
            self._pass_on()
            while self._wishes:
                wish, done = self._wishes.popleft()
                wish()
                done.set()
        for each in (self._door, self._waker, self._woken):
            each.close()
        self._selector.close()

    def _pause(self) -> float | None:
        """Until the next held byte is due."""
        flows = (each for each in self._flows.values() if each.direction not in self._clogged)
        due = min((flow.held[0][0] for flow in flows if flow.held), default=None)
        return None if due is None else max(0.0, due - time.monotonic())

    def _open(self, near: socket.socket) -> None:
        if self._closed_to_newcomers:
            near.close()
            return
        try:
            far = socket.create_connection(self._server)
        except OSError:
            near.close()
            return
        for source, target, direction in ((near, far, REQUESTS), (far, near, ANSWERS)):
            source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._flows[source] = _Flow(source, target, direction)
            self._selector.register(source, selectors.EVENT_READ)

    def _take(self, flow: _Flow) -> None:
        data = b""
        with suppress(OSError):
            data = flow.source.recv(PIECE_BYTES)
        jitter = self._delay_seconds * (0.5 + self._chance.random())
        due = time.monotonic() + jitter
        flow.held.append((max(due, flow.held[-1][0]) if flow.held else due, data))
        flow.held_bytes += len(data)
        if not data or flow.held_bytes >= HELD_BYTES_MAX:
            self._selector.unregister(flow.source)
            flow.ended = not data

    def _pass_on(self) -> None:
        now = time.monotonic()
        for flow in list(self._flows.values()):
            if flow.direction in self._clogged or flow.source not in self._flows:
                continue
            while flow.held and flow.held[0][0] <= now:
                _, data = flow.held.popleft()
                full = flow.held_bytes >= HELD_BYTES_MAX
                flow.held_bytes -= len(data)
                if full and not flow.ended and flow.held_bytes < HELD_BYTES_MAX:
                    self._selector.register(flow.source, selectors.EVENT_READ)
                try:
                    if data:
                        flow.target.sendall(data)
                except OSError:
                    data = b""
                if not data:
                    self._drop(flow)
                    break

    def _drop(self, flow: _Flow, *, reset: bool = False) -> None:
        for each in (flow.source, flow.target):
            if self._flows.pop(each, None) is None:
                continue
            with suppress(KeyError):
                self._selector.unregister(each)
            if reset:
                each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            each.close()

    def _cut(self, reset: bool) -> None:
        self.cuts += 1
        for flow in list(self._flows.values()):
            self._drop(flow, reset=reset)

    def _heal(self) -> None:
        self._delay_seconds = 0.0
        self._clogged.clear()
        self._closed_to_newcomers = False

    def _end(self) -> None:
        self._cut(False)
        self._running = False


@contextmanager
def proxy(server: str, chance: random.Random | None = None) -> Generator[Proxy]:
    """A wire to a server, for as long as the block lasts."""
    wire = Proxy(server, chance)
    try:
        yield wire
    finally:
        wire.close()
