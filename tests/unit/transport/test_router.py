"""The server's end: who is connected, and who no longer is."""

from collections.abc import Iterator

import pytest

from oncemq.transport.dealer import DealerSocket
from oncemq.transport.router import RouterSocket
from tests.harness.served import until_served

PROBE = [b"are you there?"]


@pytest.fixture
def door() -> Iterator[RouterSocket]:
    door = RouterSocket("tcp://127.0.0.1:*", frame_bytes_max=1 << 20)
    yield door
    door.close()


def test_a_peer_is_reached_as_long_as_it_is_connected_also_when_it_reads_nothing(
    door: RouterSocket,
) -> None:
    link = DealerSocket()
    link.connect(door.address)
    until_served(door, lambda: link.send([b"hello"]) or None)
    route, _ = until_served(door, door.receive)
    assert all(door.reaches(route, PROBE) for _ in range(3_000))  # its queue is full long before
    link.close()
    until_served(door, lambda: not door.reaches(route, PROBE) or None)


def test_who_was_never_there_is_not_reached(door: RouterSocket) -> None:
    assert not door.reaches(b"", PROBE)
    assert not door.reaches(b"nobody", PROBE)
