"""A way between two hosts that is cut: what TCP had under way is late by as long again."""

from random import Random

from simulator.clock import MILLISECOND, SECOND, Clock
from simulator.network.network import SENDS_AGAIN, Frames, Network, SimulatedDealer


class Far:
    """The other host; it notes what arrives, and when."""

    def __init__(self, clock: Clock) -> None:
        self.came: list[tuple[float, bytes]] = []
        self._clock = clock

    def arrived(self, route: bytes, frames: Frames) -> None:
        self.came.append((round(self._clock.now / SECOND, 1), frames[0]))

    def heard(self, *, joined: bool, subject: bytes) -> None:
        raise AssertionError("nobody listens here")


class TwoHosts:
    """One that dials, and the other."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.network = Network(
            self.clock, Random(1), delay=MILLISECOND, late=MILLISECOND, places=("far",)
        )
        self.far = Far(self.clock)
        self.network.listen(self.far, "far")
        self.line = SimulatedDealer(self.network, "near", lambda: None)
        self.line.connect("far")
        self.until(1)

    def until(self, second: float) -> None:
        self.clock.run(int(second * SECOND))


def test_what_was_under_way_arrives_after_the_way_was_whole_for_as_long() -> None:
    hosts = TwoHosts()
    hosts.network.block([("near", "far")])
    hosts.line.send([b"one"])
    hosts.until(5)
    hosts.network.block([])
    hosts.until(6)
    hosts.line.send([b"two"])
    hosts.until(20)
    assert hosts.far.came == [(9.0, b"one"), (9.0, b"two")]


def test_a_new_connection_carries_something_at_once() -> None:
    hosts = TwoHosts()
    hosts.network.block([("near", "far")])
    hosts.line.send([b"one"])
    hosts.until(5)
    hosts.network.block([])
    hosts.line.connect("far")
    hosts.until(5.5)
    hosts.line.send([b"two"])
    hosts.until(6)
    assert (5.5, b"two") in hosts.far.came


def test_a_connection_that_had_nothing_under_way_is_not_late() -> None:
    hosts = TwoHosts()
    hosts.network.block([("near", "far")])
    hosts.until(5)
    hosts.network.block([])
    hosts.line.send([b"one"])
    hosts.until(6)
    assert hosts.far.came == [(5.0, b"one")]


def test_nothing_is_late_by_more_than_the_system_waits() -> None:
    hosts = TwoHosts()
    hosts.network.block([("near", "far")])
    hosts.line.send([b"one"])
    hosts.until(101)
    hosts.network.block([])
    hosts.until(200)
    assert hosts.far.came == [(101 + SENDS_AGAIN / SECOND, b"one")]
