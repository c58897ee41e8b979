"""Who is heard when: a flood keeps nobody waiting, and nobody keeps a flood from being heard."""

from collections.abc import Iterator

import pytest

from oncemq.transport.router import RouterSocket
from oncemq.transport.serving.bound_socket import TURN_EVENTS
from tests.harness.raw_peer import RawPeer, handshake, message
from tests.harness.served import until_served

FLOOD = 400  # messages that lie there, of each who floods
FLOODING = 4


@pytest.fixture
def door() -> Iterator[RouterSocket]:
    made = RouterSocket("tcp://127.0.0.1:*", frame_bytes_max=1 << 20)
    yield made
    made.close()


@pytest.fixture
def known(door: RouterSocket) -> Iterator[list[RawPeer]]:
    """Peers that are open and have said hello."""
    peers = [RawPeer(door.address, handshake(), message(b"hello")) for _ in range(FLOODING + 2)]
    for _ in peers:
        assert list(until_served(door, door.receive)[1]) == [b"hello"]
    yield peers
    for peer in peers:
        peer.close()


def turn(door: RouterSocket, most: int = 10_000) -> list[bytes]:
    """What is heard between two waits: until there is nothing, or so much."""
    door.wait(1_000)
    found: list[bytes] = []
    while len(found) < most and (received := door.receive()) is not None:
        found.append(bytes(received[1][0]))
    return found


def until_heard(door: RouterSocket, what: bytes, *, most: int) -> int:
    """In which turn that is heard; in that turn only those are who had nothing to say before."""
    for number in range(100):
        if what in (found := turn(door, most)):
            assert b"flood" not in found
            return number
    raise AssertionError("it was never heard")


@pytest.mark.parametrize("most", [3, TURN_EVENTS, 100])
def test_who_asks_now_and_then_is_heard_in_the_turn_after_the_next(
    door: RouterSocket, known: list[RawPeer], most: int
) -> None:
    *flooding, asker, _ = known
    for peer in flooding:
        peer.say(message(b"flood") * FLOOD)
    for _ in range(1 + FLOODING * TURN_EVENTS // most):
        turn(door, most)  # they are newcomers, too, at first
    for _ in range(5):
        turn(door, most)
        asker.say(message(b"asked"))
        assert until_heard(door, b"asked", most=most) <= 2


def test_who_asks_again_and_again_does_not_stop_a_flood(
    door: RouterSocket, known: list[RawPeer]
) -> None:
    flooding, *askers = known
    flooding.say(message(b"flood") * FLOOD)
    heard = 0
    for _ in range(20):
        for asker in askers:
            asker.say(message(b"asked"))
        heard += sum(said == b"flood" for said in turn(door))
    assert heard >= 9 * TURN_EVENTS


def test_everything_of_everybody_is_heard_in_its_order(
    door: RouterSocket, known: list[RawPeer]
) -> None:
    for place, peer in enumerate(known):
        peer.say(b"".join(message(b"%d %d" % (place, n)) for n in range(FLOOD)))
    heard: list[list[int]] = [[] for _ in known]
    while sum(map(len, heard)) < FLOOD * len(known):
        for said in turn(door, 7):
            place, number = map(int, said.split())
            heard[place].append(number)
    assert heard == [list(range(FLOOD))] * len(known)
