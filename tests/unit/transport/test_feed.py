"""The feed's sockets: subjects, fan-out, who listens, and nobody who makes it wait."""

import time
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from oncemq.errors import PortInUse
from oncemq.transport.feed_publisher import FeedPublisher
from oncemq.transport.feed_subscriber import FeedSubscriber
from tests.harness.raw_peer import RawPeer, handshake, message
from tests.harness.served import until_served
from tests.harness.waiting import PATIENCE

A, B = b"\0" * 7 + b"\1", b"\0" * 7 + b"\2"


@pytest.fixture
def feed() -> Iterator[FeedPublisher]:
    feed = FeedPublisher("tcp://127.0.0.1:*")
    yield feed
    feed.close()


@pytest.fixture
def ears() -> Iterator[Callable[[], FeedSubscriber]]:
    made: list[FeedSubscriber] = []

    def make() -> FeedSubscriber:
        made.append(FeedSubscriber())
        return made[-1]

    yield make
    for ear in made:
        ear.close()


def tuned(feed: FeedPublisher, ear: FeedSubscriber, *subjects: bytes) -> FeedSubscriber:
    """Connected, and known to the feed."""
    ear.tune(set(subjects))
    ear.connect(feed.address)
    assert until_served(feed, ear.news) is True
    heard = {until_served(feed, feed.change) for _ in subjects}
    assert heard == {(True, subject) for subject in subjects}
    return ear


def test_everyone_who_listens_to_a_subject_gets_what_is_sent_once(feed, ears) -> None:
    first, second, other = (tuned(feed, ears(), each) for each in (A, A, B))
    feed.send([A, b"head", b"body"])
    feed.send([B, b"other"])
    assert (
        until_served(feed, first.receive)
        == until_served(feed, second.receive)
        == [A, b"head", b"body"]
    )
    assert until_served(feed, other.receive) == [B, b"other"]
    assert first.receive() is None


def test_an_ear_is_tuned_while_it_listens(feed, ears) -> None:
    ear = tuned(feed, ears(), A)
    ear.tune({B})
    assert {until_served(feed, feed.change), until_served(feed, feed.change)} == {
        (False, A),
        (True, B),
    }
    feed.send([A, b"no longer"])
    feed.send([B, b"now"])
    assert until_served(feed, ear.receive) == [B, b"now"]


def test_what_was_under_way_when_it_was_wanted_no_longer_is_not_heard(feed, ears) -> None:
    ear = tuned(feed, ears(), A)
    feed.send([A, b"under way"])
    ear.tune({B})
    for _ in range(2):
        until_served(feed, feed.change)
    feed.send([B, b"now"])
    assert until_served(feed, ear.receive) == [B, b"now"]


def test_the_feed_learns_that_the_last_listener_is_gone(feed, ears) -> None:
    first, second = tuned(feed, ears(), A), tuned(feed, ears(), A)
    first.connect("")
    second.connect("")
    assert until_served(feed, feed.change) == (False, A)
    assert feed.change() is None


def test_who_comes_as_the_last_one_breaks_off_is_told_after_that(feed) -> None:
    """Else the server believes that nobody listens, and pushes nothing to who does."""
    first = RawPeer(feed.address, handshake(b"SUB"), message(b"\1" + A))
    second = RawPeer(feed.address, handshake(b"SUB"))
    with closing(first), closing(second):
        assert until_served(feed, feed.change) == (True, A)
        until_served(feed, lambda: second.heard() and not feed.connections.status["handshakes"])
        while feed.change() is not None:
            pass
        first.close()
        second.say(message(b"\1" + A))
        told = [until_served(feed, feed.change) for _ in range(2)]
    assert told == [(False, A), (True, A)]


def test_a_send_waits_for_nobody(feed, ears) -> None:
    tuned(feed, ears(), A)  # and never receives
    started = time.monotonic()
    for _ in range(5_000):
        feed.send([A, b"x" * 10_000])
    assert time.monotonic() - started < PATIENCE


def test_an_address_that_is_taken_is_refused_with_a_way_out(feed) -> None:
    with pytest.raises(PortInUse, match="--feed"):
        FeedPublisher(feed.address)
