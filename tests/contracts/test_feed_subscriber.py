"""What every listener's end of a live feed does: ZeroMQ's, and the simulator's while it is calm."""

from collections.abc import Callable, Iterator

import pytest

from oncemq.client.engine.listening import FeedPort
from tests.contracts.wires import Broadcast, RealBroadcast, SimulatedBroadcast
from tests.harness.zmq_wires import ZmqBroadcast

BROADCASTS: dict[str, Callable[[], Broadcast]] = {
    "zeromq": RealBroadcast,
    "libzmq": ZmqBroadcast,
    "libzmq with heartbeats": lambda: ZmqBroadcast(heartbeats=True),
    "simulated": lambda: SimulatedBroadcast(1),
    "simulated otherwise": lambda: SimulatedBroadcast(2),
}
A, B = b"\0" * 7 + b"\1", b"\0" * 7 + b"\2"


@pytest.fixture(params=list(BROADCASTS))
def broadcast(request: pytest.FixtureRequest) -> Iterator[Broadcast]:
    broadcast = BROADCASTS[request.param]()
    broadcast.up()
    yield broadcast
    broadcast.end()


def tuned(broadcast: Broadcast, *subjects: bytes) -> FeedPort:
    """Connected, and known to the server."""
    ear = broadcast.ear()
    ear.tune(set(subjects))
    ear.connect(broadcast.address)
    assert broadcast.until(ear.news) is True
    assert {broadcast.until(broadcast.change) for _ in subjects} == {(True, s) for s in subjects}
    return ear


def test_before_it_connects_there_is_nothing(broadcast: Broadcast) -> None:
    ear = broadcast.ear()
    ear.tune({A})
    assert (ear.descriptors, ear.news(), ear.receive()) == ((), None, None)
    ear.connect("")
    assert (ear.descriptors, ear.news(), ear.receive()) == ((), None, None)


def test_it_hears_its_subjects_in_order_and_no_others(broadcast: Broadcast) -> None:
    first, second = tuned(broadcast, A), tuned(broadcast, A, B)
    sent = [[A, b"head %d" % number, bytes(number)] for number in range(20)]
    for frames in sent:
        broadcast.send(frames)
    broadcast.send([B, b"for one"])
    assert [broadcast.until(first.receive) for _ in sent] == sent
    assert [broadcast.until(second.receive) for _ in sent] == sent
    assert broadcast.until(second.receive) == [B, b"for one"]
    assert (first.receive(), second.receive(), first.news()) == (None, None, None)


def test_it_is_tuned_while_it_listens(broadcast: Broadcast) -> None:
    ear = tuned(broadcast, A)
    ear.tune({B})
    changes = {broadcast.until(broadcast.change) for _ in range(2)}
    assert changes == {(False, A), (True, B)}
    broadcast.send([A, b"no longer"])
    broadcast.send([B, b"now"])
    assert broadcast.until(ear.receive) == [B, b"now"]


def test_every_one_that_joins_is_told_and_only_the_last_that_leaves(broadcast: Broadcast) -> None:
    first, second = tuned(broadcast, A), tuned(broadcast, A)
    first.tune(set())
    second.tune({A, B})
    assert broadcast.until(broadcast.change) == (True, B)
    second.tune({B})
    assert broadcast.until(broadcast.change) == (False, A)


def test_the_server_learns_that_the_last_one_is_gone(broadcast: Broadcast) -> None:
    first, second = tuned(broadcast, A), tuned(broadcast, A)
    first.connect("")
    second.close()
    assert broadcast.until(broadcast.change) == (False, A)
    assert broadcast.change() is None


def test_who_listens_to_none_any_more_hears_nothing(broadcast: Broadcast) -> None:
    ear, other = tuned(broadcast, A), tuned(broadcast, A)
    broadcast.send([A, b"unread"])
    assert broadcast.until(other.receive) == [A, b"unread"]
    ear.connect("")
    assert (ear.descriptors, ear.news(), ear.receive()) == ((), None, None)
    broadcast.send([A, b"more"])
    assert broadcast.until(other.receive) == [A, b"more"]
    assert (ear.news(), ear.receive()) == (None, None)


def test_what_it_was_tuned_to_stays_when_it_connects_again(broadcast: Broadcast) -> None:
    ear = tuned(broadcast, A)
    ear.connect("")
    assert broadcast.until(broadcast.change) == (False, A)
    ear.connect(broadcast.address)
    assert broadcast.until(ear.news) is True
    assert broadcast.until(broadcast.change) == (True, A)
    broadcast.send([A, b"again"])
    assert broadcast.until(ear.receive) == [A, b"again"]


def test_a_server_that_goes_and_comes_back_is_news_and_hears_of_it_again(
    broadcast: Broadcast,
) -> None:
    ear = tuned(broadcast, A)
    broadcast.down()
    assert broadcast.until(ear.news) is False
    ear.tune({A, B})
    broadcast.up()
    assert broadcast.until(ear.news) is True

    assert {broadcast.until(broadcast.change) for _ in range(2)} == {(True, A), (True, B)}
    broadcast.send([B, b"both"])
    assert broadcast.until(ear.receive) == [B, b"both"]


def test_news_of_a_feed_that_was_left_are_no_news(broadcast: Broadcast) -> None:
    ear, other = broadcast.ear(), tuned(broadcast, A)
    ear.tune({B})
    ear.connect(broadcast.address)

    def change() -> tuple[bool, bytes] | None:
        assert ear.receive() is None  # it connects while it is listened to
        return broadcast.change()

    assert broadcast.until(change) == (True, B)  # it is connected, and was not asked for news
    ear.connect("")
    assert ear.news() is None
    broadcast.down()
    assert broadcast.until(other.news) is False
    assert ear.news() is None
