"""A server's end and the ends of its clients: over ZeroMQ, as the simulator and as tests have them.

The suites of `ServerConnection` and `FeedPort` are written against these.
"""

from collections import deque
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Protocol, TypeVar, cast

from oncemq.client.engine.line import ServerConnection
from oncemq.client.engine.listening import FeedPort
from oncemq.testing.chaos import Chaos
from oncemq.testing.chaotic_router import ChaoticRouter
from oncemq.transport.dealer import DealerSocket
from oncemq.transport.feed_publisher import FeedPublisher
from oncemq.transport.feed_subscriber import FeedSubscriber
from oncemq.transport.router import RouterSocket
from oncemq.transport.serving.connections import Connections
from simulator.clock import MILLISECOND, SECOND, Clock
from simulator.network.feed import FEED, SimulatedFeedSubscriber
from simulator.network.network import Network, SimulatedDealer
from tests.harness import client as harness
from tests.harness.served import until_served
from tests.harness.waiting import until

T = TypeVar("T")
Request = tuple[bytes, list[bytes]]  # the route back, and the frames
FRAME_BYTES_MAX = 1 << 20
HOUR = 3_600 * SECOND
CLIENT = "billing"


class Wire(Protocol):
    """One server's end, and what a test does with it."""

    @property
    def address(self) -> str: ...

    nowhere: str  # an address at which nobody answers, not before the next look at least

    def up(self) -> None: ...
    def down(self) -> None: ...
    def line(self) -> ServerConnection: ...
    def request(self) -> Request | None: ...
    def reply(self, route: bytes, frames: Sequence[bytes]) -> None: ...
    def reaches(self, route: bytes) -> bool: ...
    def stop_reading(self) -> None: ...
    def read_again(self) -> None: ...
    def until(self, look: Callable[[], T | None]) -> T: ...
    def end(self) -> None: ...


class RealWire:
    """ZeroMQ, on a port of this machine."""

    def __init__(self) -> None:
        self.address = "tcp://127.0.0.1:*"
        self.nowhere = "tcp://127.0.0.1:9"
        self._door: RouterSocket | None = None
        self._reads = True
        self._lines: list[DealerSocket] = []

    def open(self, address: str) -> RouterSocket:
        return RouterSocket(address, frame_bytes_max=FRAME_BYTES_MAX)

    def up(self) -> None:
        assert self._door is None
        self._door = self.open(self.address)
        self.address = self._door.address

    def down(self) -> None:
        assert self._door is not None
        self._door.close()
        self._door = None

    def line(self) -> DealerSocket:
        self._lines.append(DealerSocket())
        return self._lines[-1]

    def request(self) -> Request | None:
        received = self._door.receive() if self._door and self._reads else None
        return (received[0], [bytes(frame) for frame in received[1]]) if received else None

    def reply(self, route: bytes, frames: Sequence[bytes]) -> None:
        assert self._door is not None
        self._door.send(route, frames)

    def reaches(self, route: bytes) -> bool:
        assert self._door is not None
        return self._door.reaches(route, [b"are you there?"])

    def stop_reading(self) -> None:
        self._reads = False

    def read_again(self) -> None:
        self._reads = True

    def until(self, look: Callable[[], T | None]) -> T:
        return until_served(self._door, look) if self._door is not None else until(look)

    def end(self) -> None:
        for line in self._lines:
            line.close()
        if self._door is not None:
            self._door.close()


class ChaoticWire(RealWire):
    """The door of the tests' server, while no knob is turned."""

    def open(self, address: str) -> RouterSocket:
        return ChaoticRouter(
            address,
            frame_bytes_max=FRAME_BYTES_MAX,
            connections=Connections(),
            chaos=Chaos(),
            is_dead=lambda: False,
        )


class SimulatedWire:
    """The simulator's network, with delays and without faults but those that a test asks for."""

    def __init__(self, seed: int) -> None:
        self.address = self.nowhere = "simulated"
        self._clock = Clock()
        self.network = Network(
            self._clock, Random(seed), delay=5 * MILLISECOND, late=50 * MILLISECOND
        )
        self._requests: deque[Request] = deque()

    def up(self) -> None:
        self.network.listen(self)

    def down(self) -> None:
        self.network.hang_up()
        self._requests.clear()

    def line(self) -> SimulatedDealer:
        return SimulatedDealer(self.network, CLIENT, lambda: None)

    def arrived(self, route: bytes, frames: list[bytes]) -> None:
        self._requests.append((route, frames))

    def heard(self, *, joined: bool, subject: bytes) -> None:
        raise AssertionError("nobody listens")

    def request(self) -> Request | None:
        return self._requests.popleft() if self._requests else None

    def reply(self, route: bytes, frames: Sequence[bytes]) -> None:
        self.network.reply(route, frames)

    def reaches(self, route: bytes) -> bool:
        return self.network.reaches(route, [b"are you there?"])

    def stop_reading(self) -> None:
        self.network.silence(CLIENT, up=True, down=False)

    def read_again(self) -> None:
        self.network.heal(CLIENT)

    def until(self, look: Callable[[], T | None]) -> T:
        return until_simulated(self._clock, look)

    def end(self) -> None:
        """Nothing of it is outside of this process."""


class DirectWire:
    """What the unit tests of the client have for a network: calls within one process."""

    def __init__(self) -> None:
        self.address, self.nowhere = "one", harness.NOWHERE
        self.now = 0
        self.driver = self  # a server of its own, which answers nothing by itself
        self.outgoing: list[Request] = []
        self._is_up = False
        self._requests: deque[Request] = deque()
        self._lines: list[harness.Wire] = []

    def up(self) -> None:
        self._is_up = True
        for line in self._lines:
            line.mend()

    def down(self) -> None:
        self._is_up = False
        self._requests.clear()
        for line in self._lines:
            line.cut()

    def line(self) -> harness.Wire:
        line = harness.Wire(cast(Any, self))
        line.up = self._is_up
        self._lines.append(line)
        return line

    def receive(self, route: bytes, frames: list[bytes], now: int) -> None:
        """As a driver's: a request arrives."""
        self._requests.append((route, frames))

    def request(self) -> Request | None:
        return self._requests.popleft() if self._requests else None

    def reply(self, route: bytes, frames: Sequence[bytes]) -> None:
        self.outgoing.append((route, list(frames)))

    def reaches(self, route: bytes) -> bool:
        self.reply(route, [b"are you there?"])
        return any(line.route == route for line in self._lines)

    def stop_reading(self) -> None:
        for line in self._lines:
            line.be_read(False)

    def read_again(self) -> None:
        for line in self._lines:
            line.be_read(True)

    def until(self, look: Callable[[], T | None]) -> T:
        """There are no delays: what is not there now will never be."""
        for line in self._lines:
            line.collect()
        found = look()
        assert found is not None
        return found

    def end(self) -> None:
        """Nothing of it is outside of this process."""


def until_simulated(clock: Clock, look: Callable[[], T | None]) -> T:
    """What it gives, as soon as it gives something."""
    found: list[T] = []

    def done() -> bool:
        value = look()
        if value is not None:
            found.append(value)
        return value is not None

    assert clock.run(clock.now + HOUR, done=done)
    return found[0]


class Broadcast(Protocol):
    """One server's feed, and what a test does with it."""

    @property
    def address(self) -> str: ...

    def up(self) -> None: ...
    def down(self) -> None: ...
    def ear(self) -> FeedPort: ...
    def change(self) -> tuple[bool, bytes] | None: ...
    def send(self, frames: Sequence[bytes]) -> None: ...
    def until(self, look: Callable[[], T | None]) -> T: ...
    def end(self) -> None: ...


class RealBroadcast:
    """ZeroMQ's publish and subscribe."""

    def __init__(self) -> None:
        self.address = "tcp://127.0.0.1:*"
        self._feed: FeedPublisher | None = None
        self._ears: list[FeedSubscriber] = []

    def up(self) -> None:
        self._feed = FeedPublisher(self.address)
        self.address = self._feed.address

    def down(self) -> None:
        assert self._feed is not None
        self._feed.close()
        self._feed = None

    def ear(self) -> FeedSubscriber:
        self._ears.append(FeedSubscriber())
        return self._ears[-1]

    def change(self) -> tuple[bool, bytes] | None:
        return self._feed.change() if self._feed is not None else None

    def send(self, frames: Sequence[bytes]) -> None:
        assert self._feed is not None
        self._feed.send(frames)

    def until(self, look: Callable[[], T | None]) -> T:
        return until_served(self._feed, look) if self._feed is not None else until(look)

    def end(self) -> None:
        for ear in self._ears:
            ear.close()
        if self._feed is not None:
            self._feed.close()


class SimulatedBroadcast:
    """The simulator's feed, while it loses nothing."""

    def __init__(self, seed: int) -> None:
        self.address = FEED
        self._clock = Clock()
        network = Network(
            self._clock, Random(0), delay=5 * MILLISECOND, late=MILLISECOND, air=Random(seed)
        )
        self._air = network.air
        self._air.loss = 0.0
        self._changes: deque[tuple[bool, bytes]] = deque()

    def up(self) -> None:
        self._air.opens(self)

    def down(self) -> None:
        self._air.closes()

    def ear(self) -> SimulatedFeedSubscriber:
        return SimulatedFeedSubscriber(self._air, CLIENT, lambda: None)

    def heard(self, *, joined: bool, subject: bytes) -> None:
        self._changes.append((joined, subject))

    def change(self) -> tuple[bool, bytes] | None:
        return self._changes.popleft() if self._changes else None

    def send(self, frames: Sequence[bytes]) -> None:
        self._air.publish(frames)

    def until(self, look: Callable[[], T | None]) -> T:
        return until_simulated(self._clock, look)

    def end(self) -> None:
        """Nothing of it is outside of this process."""
