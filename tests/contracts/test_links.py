"""What a replica is told by its connections to the others: over sockets, and in the simulator.

The other server's end is a wire (`wires`); whoever is looked at goes by what is rung.
"""

from collections.abc import Iterator

import pytest

from oncemq.cluster.links import ReplicaLinks
from oncemq.cluster.replica import Links
from oncemq.protocol.names import Micros, ServerId
from oncemq.replication.view import ReplicationLimits
from oncemq.transport.wakeup import Bell
from simulator.cluster.simulated_links import SimulatedLinks
from tests.contracts.wires import RealWire, SimulatedWire, Wire

OTHER = ServerId("other")
ME = ServerId("me")


class LooksAlways:
    """In place of the poller: every look finds each link rung."""

    def __init__(self) -> None:
        self.bells: list[Bell] = []

    def watch_bell(self, bell: Bell) -> None:
        self.bells.append(bell)

    def forget_bell(self, bell: Bell) -> None:
        self.bells.remove(bell)


class Linked:
    """One server's links, and the other server's end."""

    def __init__(self, wire: Wire, links: Links, watches: LooksAlways) -> None:
        self.wire, self.links, self._watches = wire, links, watches
        self.heard: list[tuple[ServerId, list[bytes]]] = []
        self.reached: list[ServerId] = []

    def look(self) -> None:
        for bell in self._watches.bells:
            bell.silence()
        self.links.look(Micros(0))
        self.heard += [
            (server, [bytes(each) for each in frames]) for server, frames in self.links.receive()
        ]
        self.reached += self.links.connected()

    def let_pass(self, seconds: int) -> None:
        """For the links alone: nothing arrives meanwhile."""
        for tenth in range(10 * seconds + 1):
            self.links.look(Micros(tenth * 100_000))

    def until_reached(self) -> None:
        def is_reached() -> bool | None:
            self.look()
            return bool(self.reached) or None

        assert self.wire.until(is_reached)

    def until_heard(self) -> list[tuple[ServerId, list[bytes]]]:
        def heard() -> list[tuple[ServerId, list[bytes]]] | None:
            self.look()
            return self.heard or None

        return self.wire.until(heard)

    def until_arrived(self) -> list[bytes]:
        """The next message that gets there."""

        def arrived() -> list[bytes] | None:
            self.look()  # what is owed leaves
            return found[1] if (found := self.wire.request()) else None

        return self.wire.until(arrived)

    def until_sent(self, frames: list[bytes]) -> bytes:
        """A message gets there; the route back."""
        assert self.links.send(OTHER, frames)
        route, arrived = self.wire.until(self.wire.request)
        assert arrived == frames
        return route


@pytest.fixture(params=["sockets", "simulated"])
def linked(request: pytest.FixtureRequest) -> Iterator[Linked]:
    watches = LooksAlways()
    if request.param == "sockets":
        wire: Wire = RealWire()
        links: Links = ReplicaLinks(watches)
    else:
        simulated = SimulatedWire(1)
        wire, links = simulated, SimulatedLinks(simulated.network, ME, lambda: None)
    wire.up()
    yield Linked(wire, links, watches)
    links.close()
    wire.end()


def test_nothing_is_sent_to_who_is_not_known(linked: Linked) -> None:
    assert linked.links.send(OTHER, [b"append"]) is False
    assert linked.links.connected() == []


def test_who_is_met_is_reached_and_named_once(linked: Linked) -> None:
    linked.links.meet({OTHER: linked.wire.address})
    linked.until_reached()
    linked.look()
    assert linked.reached == [OTHER]


def test_messages_go_there_and_answers_come_back_with_their_sender(linked: Linked) -> None:
    linked.links.meet({OTHER: linked.wire.address})
    linked.until_reached()
    route = linked.until_sent([b"append", b"frames"])
    linked.wire.reply(route, [b"appended"])
    assert linked.until_heard() == [(OTHER, [b"appended"])]


def test_a_whole_window_of_the_rules_is_taken_though_the_other_does_not_read(
    linked: Linked,
) -> None:
    """What is refused is sent again at a later event: the follower's disk would stand still."""
    linked.links.meet({OTHER: linked.wire.address})
    linked.until_reached()
    limits, frames = ReplicationLimits(), bytes(1 << 20)
    for _ in range(limits.window_bytes // len(frames)):
        assert linked.links.send(OTHER, [b"append", frames])
    came = [linked.until_arrived() for _ in range(16)]
    assert came == [[b"append", frames]] * 16


def test_met_again_at_the_same_address_the_connection_stays(linked: Linked) -> None:
    linked.links.meet({OTHER: linked.wire.address})
    linked.until_reached()
    route = linked.until_sent([b"one"])
    linked.links.meet({OTHER: linked.wire.address})
    assert linked.until_sent([b"two"]) == route


def test_a_connection_that_came_back_is_told_of(linked: Linked) -> None:
    linked.links.meet({OTHER: linked.wire.address})
    linked.until_reached()
    linked.until_sent([b"one"])
    linked.reached.clear()
    linked.wire.down()
    linked.wire.up()
    linked.until_reached()
    assert linked.reached == [OTHER]


def test_a_connection_that_brings_no_answer_is_made_anew(linked: Linked) -> None:
    linked.links.meet({OTHER: linked.wire.address})
    linked.until_reached()
    before = linked.until_sent([b"one"])
    linked.reached.clear()
    linked.let_pass(2)
    linked.until_reached()
    after = linked.until_sent([b"two"])
    assert (linked.reached, after == before) == ([OTHER], False)
    linked.wire.reply(after, [b"appended"])
    assert linked.until_heard() == [(OTHER, [b"appended"])]


def test_a_connection_that_brings_answers_stays(linked: Linked) -> None:
    linked.links.meet({OTHER: linked.wire.address})
    linked.until_reached()
    route = linked.until_sent([b"one"])
    linked.wire.reply(route, [b"appended"])
    linked.until_heard()
    linked.let_pass(5)
    assert linked.until_sent([b"two"]) == route


def test_who_is_met_no_more_is_sent_nothing(linked: Linked) -> None:
    linked.links.meet({OTHER: linked.wire.address})
    linked.until_reached()
    linked.links.meet({})
    assert linked.links.send(OTHER, [b"append"]) is False
