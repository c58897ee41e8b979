"""What an interrupted get has settled and not returned: given once, in order, to whom it is of."""

from itertools import islice

import pytest

from oncemq.client.shell.handouts import Handout, Handouts
from oncemq.client.values import Message, Origin
from oncemq.protocol.names import Generation, Offset, SubscriptionId, TopicId
from oncemq.protocol.replies import BatchHead
from oncemq.session.prefetched import several


def messages(topic: str, *offsets: int) -> list[Message]:
    head = BatchHead(topic, TopicId(1), SubscriptionId(1), Offset(0), 99, 0, 0, ())
    origin = Origin(head, b"", Generation(1))
    return [Message(b"", offset, origin) for offset in offsets]


def ids(given: list[Message]) -> list[str]:
    return [each.id for each in given]


def every(_message: Message) -> bool:
    """Its subscription goes on."""
    return True


def left(handouts: Handouts) -> list[list[str]]:
    return [ids(each.messages) for each in handouts._open]


def interrupted(*gets: list[Message]) -> Handouts:
    """A client several gets of which were interrupted, one after the other."""
    handouts = Handouts(every)
    for each in gets:
        handout = Handout()
        handouts.settled(handout, each)
        handout.came_back = True
    return handouts


FEEDS = {
    "one topic": ("a", ["a@0", "a@1", "a@5"], [["b@3"], []]),
    "another topic": ("b", ["b@3"], [["a@0", "a@1"], ["a@5"]]),
    "any topic": ("", ["a@0", "a@1", "b@3", "a@5"], [[], []]),
    "several topics": (several(("b", "c")), ["b@3"], [["a@0", "a@1"], ["a@5"]]),
    "a topic of nobody": ("c", [], [["a@0", "a@1", "b@3"], ["a@5"]]),
}


@pytest.mark.parametrize(("feed", "given", "kept"), FEEDS.values(), ids=FEEDS)
def test_whoever_gets_next_is_given_what_is_of_the_feed_and_the_rest_stays(
    feed: str, given: list[str], kept: list[list[str]]
) -> None:
    handouts = interrupted(messages("a", 0, 1) + messages("b", 3), messages("a", 5))
    assert ids(handouts.take(feed, 100)) == given
    assert left(handouts) == kept
    assert handouts.take(feed, 100) == []


@pytest.mark.parametrize(("feed", "given", "kept"), FEEDS.values(), ids=FEEDS)
def test_a_listener_is_given_the_same_one_by_one(
    feed: str, given: list[str], kept: list[list[str]]
) -> None:
    handouts = interrupted(messages("a", 0, 1) + messages("b", 3), messages("a", 5))
    assert ids(list(handouts.one_by_one(feed))) == given
    assert left(handouts) == kept


def test_a_pattern_is_given_what_it_matches() -> None:
    handouts = interrupted(messages("eu.orders", 0) + messages("us.orders", 1))
    assert ids(handouts.take("eu.*", 9)) == ["eu.orders@0"]
    assert ids(list(handouts.one_by_one("*.orders"))) == ["us.orders@1"]


def test_a_listener_has_a_message_when_it_asks_for_the_next() -> None:
    handouts = interrupted(messages("a", 0, 1, 2))
    listening = handouts.one_by_one("a")
    assert ids(list(islice(listening, 2))) == ["a@0", "a@1"]
    assert left(handouts) == [["a@1", "a@2"]]
    assert ids(handouts.take("a", 9)) == ["a@1", "a@2"]


@pytest.mark.parametrize(
    ("limit", "given", "kept"),
    [
        (1, ["a@0"], [["a@1"], ["a@5", "a@6"]]),
        (2, ["a@0", "a@1"], [[], ["a@5", "a@6"]]),
        (3, ["a@0", "a@1", "a@5"], [[], ["a@6"]]),
        (4, ["a@0", "a@1", "a@5", "a@6"], [[], []]),
    ],
)
def test_no_more_than_was_asked_for_is_given_and_the_rest_comes_later(
    limit: int, given: list[str], kept: list[list[str]]
) -> None:
    handouts = interrupted(messages("a", 0, 1), messages("a", 5, 6))
    assert ids(handouts.take("a", limit)) == given
    assert left(handouts) == kept


def test_what_a_get_is_about_to_return_is_given_to_nobody_else() -> None:
    handouts, returning, cut = Handouts(every), Handout(), Handout(came_back=True)
    handouts.settled(returning, messages("a", 0))
    handouts.settled(cut, messages("a", 1))
    assert ids(list(handouts.one_by_one("a"))) == ["a@1"]
    handouts.settled(Handout(came_back=True), messages("a", 2))
    assert ids(handouts.take("a", 9)) == ["a@2"]
    assert ids(returning.messages) == ["a@0"]


def test_what_was_taken_and_cut_off_again_comes_before_what_was_left_of_it() -> None:
    handouts, again, empty = interrupted(messages("a", 0, 1, 2)), Handout(), Handout()
    handouts.again(again, handouts.take("a", 2))
    again.came_back = True
    handouts.again(empty, [])
    assert left(handouts) == [["a@0", "a@1"], ["a@2"]]
    assert ids(handouts.take("a", 9)) == ["a@0", "a@1", "a@2"]


def test_a_handout_that_is_empty_is_forgotten_with_the_next() -> None:
    handouts, first, second = Handouts(every), Handout(), Handout()
    handouts.settled(first, messages("a", 0))
    first.messages = []  # its get has returned
    handouts.settled(second, messages("a", 1))
    assert left(handouts) == [["a@1"]]
    second.messages = []
    handouts.settled(Handout(), [])
    assert left(handouts) == []
