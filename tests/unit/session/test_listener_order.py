"""A listener's rules: in order, no gap, once, bounded; whatever the feed does."""

import pytest

from oncemq.protocol.names import Offset, SubscriptionId, TopicId
from oncemq.protocol.replies import ListenedAnswer
from oncemq.session import listener_order as module
from oncemq.session.listener_order import ListenerOrder
from oncemq.session.subscriber import Subscriber
from tests.harness.messages import ID, Batch, Note

LATER = SubscriptionId(2)
A, B = TopicId(10), TopicId(11)
NAMES = {A: "a", B: "b"}


class Ear:
    """A listener and the topics it has joined."""

    def __init__(self, *heard: ListenedAnswer) -> None:
        self.subscriber: Subscriber[Note] = Subscriber()
        self.live: ListenerOrder[Note] = ListenerOrder(self.subscriber)
        self.live.joined(heard or (self.heard(),))

    @staticmethod
    def heard(
        topic: TopicId = A, *, id: SubscriptionId = ID, cursor: int = 0, end: int = 0
    ) -> ListenedAnswer:
        return ListenedAnswer(NAMES[topic], topic, id, Offset(cursor), Offset(end))

    def push(self, start: int, end: int, topic: TopicId = A) -> None:
        self.live.pushed(topic, Offset(end), [Batch(NAMES[topic], range(start, end))])

    def announce(self, end: int, topic: TopicId = A) -> None:
        self.live.pushed(topic, Offset(end), [])

    def pull(self, end: int, topic: str = "a") -> None:
        """What is missing up to `end` comes as a reply."""
        place = self.subscriber.prefetched.place(topic)
        self.subscriber.came(topic, [Batch(topic, range(place, end))], more=False)
        self.live.pulled(topic)

    def hand_out(self, limit: int = 100) -> list[int]:
        taken = self.live.take(limit)
        self.subscriber.move(self.subscriber.cursors.moves(taken))
        return [note.offset for note in taken]


def test_pushed_messages_are_handed_out_in_order() -> None:
    ear = Ear()
    ear.push(0, 2)
    ear.push(2, 3)
    assert ear.hand_out(1) == [0]
    assert ear.hand_out() == [1, 2]
    assert ear.live.lacking() == []


def test_who_joins_late_pulls_what_came_before() -> None:
    ear = Ear(Ear.heard(end=5))
    assert ear.live.lacking() == ["a"]
    ear.push(5, 6)
    assert ear.hand_out() == []
    ear.pull(5)
    assert ear.hand_out() == [0, 1, 2, 3, 4, 5]
    assert ear.live.lacking() == []


def test_a_gap_is_seen_and_filled_and_what_was_pushed_behind_it_follows() -> None:
    ear = Ear()
    ear.push(0, 2)
    ear.push(3, 5)
    ear.push(5, 6)
    assert ear.live.gaps == 1
    assert ear.live.lacking() == ["a"]
    assert ear.hand_out() == [0, 1]
    assert ear.hand_out() == []
    ear.pull(3)
    assert ear.hand_out() == [2, 3, 4, 5]
    assert ear.live.lacking() == []


def test_a_second_gap_behind_the_first_is_filled_too() -> None:
    ear = Ear()
    ear.push(1, 2)
    ear.push(3, 4)
    ear.pull(1)
    assert ear.hand_out() == [0, 1]
    assert ear.live.lacking() == ["a"]
    ear.pull(3)
    assert ear.hand_out() == [2, 3]


def test_what_is_pushed_and_pulled_is_handed_out_once() -> None:
    ear = Ear()
    ear.push(0, 2)
    ear.announce(6)
    ear.pull(6)
    ear.push(0, 2)
    ear.push(4, 8)
    assert ear.hand_out() == list(range(8))
    assert ear.live.overlaps == 2
    ear.push(2, 8)
    assert ear.hand_out() == []


def test_a_pull_that_a_push_has_overtaken_brings_nothing_twice() -> None:
    ear = Ear(Ear.heard(end=2))
    ear.subscriber.prefetched.want("a", 100)  # the pull leaves
    ear.push(0, 2)
    ear.push(2, 4)
    ear.subscriber.came("a", [Batch("a", range(2))], more=False)
    ear.live.pulled("a")
    assert ear.hand_out() == [0, 1, 2, 3]


def test_an_announcement_makes_it_pull() -> None:
    ear = Ear()
    ear.announce(3)
    assert ear.live.lacking() == ["a"]
    ear.pull(3)
    assert ear.hand_out() == [0, 1, 2]


def test_nothing_of_a_topic_that_was_left_is_handed_out() -> None:
    ear = Ear()
    ear.push(0, 2)
    ear.subscriber.forget("a")
    ear.live.forget("a")
    ear.push(2, 4)
    assert ear.hand_out() == []
    assert ear.live.lacking() == []


def test_subscribed_again_it_begins_where_the_new_subscription_does() -> None:
    ear = Ear()
    ear.push(0, 2)
    ear.subscriber.forget("a")
    ear.live.forget("a")
    ear.live.joined([Ear.heard(id=LATER, cursor=4, end=4)])
    ear.push(2, 4)  # of before, still on its way
    ear.push(4, 5)
    assert ear.hand_out() == [4]


def test_a_subscription_that_is_another_one_drops_what_the_first_had() -> None:
    ear = Ear()
    ear.push(0, 2)
    ear.live.joined([Ear.heard(id=LATER, cursor=3, end=3)])
    ear.push(1, 4)
    assert ear.hand_out() == [3]


def test_what_was_not_settled_comes_again() -> None:
    ear = Ear()
    ear.push(0, 3)
    assert len(ear.live.take(2)) == 2
    ear.live.put_back()
    assert ear.live.lacking() == ["a"]
    ear.pull(3)
    assert ear.hand_out() == [0, 1, 2]


def test_a_topic_that_comes_later_leaves_the_others_as_they_are() -> None:
    ear = Ear()
    ear.push(0, 3)
    ear.live.joined([Ear.heard(), Ear.heard(B, end=1)])
    assert ear.hand_out() == [0, 1, 2]
    assert ear.live.lacking() == ["b"]


def test_topics_take_turns() -> None:
    ear = Ear(Ear.heard(), Ear.heard(B))
    ear.push(0, 4)
    ear.push(0, 2, B)
    assert [ear.hand_out(2) for _ in range(4)] == [[0, 1], [0, 1], [2, 3], []]


def test_a_slow_listener_keeps_no_more_than_its_room_and_loses_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "HELD_BYTES", 10)
    monkeypatch.setattr(module, "EARLY_BYTES", 5)
    ear = Ear()
    for start in range(0, 100, 4):
        ear.push(start, start + 4)
    assert ear.subscriber.prefetched.held("a") == (12, 12)
    assert ear.live.lacking() == []  # no room yet
    got = ear.hand_out(8)
    assert ear.live.lacking() == ["a"]
    ear.pull(100)
    while some := ear.hand_out(8):
        got += some
    assert got == list(range(100))


def test_a_pull_that_left_something_is_followed_by_another_though_no_end_was_heard_of() -> None:
    ear = Ear(Ear.heard(end=2))
    ear.subscriber.came("a", [Batch("a", range(2))], more=True)
    ear.live.pulled("a")
    assert ear.live.lacking() == ["a"]
    ear.pull(3)
    assert ear.live.lacking() == []
    assert ear.hand_out() == [0, 1, 2]


def test_what_waits_for_a_gap_to_be_filled_is_bounded_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "EARLY_BYTES", 5)
    ear = Ear()
    for gap in (0, 7):  # what was kept behind the first gap takes no room behind the second
        ear.push(gap + 1, gap + 4)
        ear.push(gap + 4, gap + 7)  # over the bound: it is pulled later
        ear.push(gap + 4, gap + 6)  # up to it
        ear.pull(gap + 1)
        assert ear.hand_out() == list(range(gap, gap + 6))
        assert (ear.live.gaps, ear.live.lacking()) == (1 + gap // 7, ["a"])
        ear.pull(gap + 7)
        assert ear.hand_out() == [gap + 6]
        assert ear.live.lacking() == []


def test_a_listener_that_left_hears_nothing() -> None:
    ear = Ear(Ear.heard(end=3))
    ear.live.leave()
    ear.push(0, 1)
    ear.announce(5)
    assert ear.live.topics == []
    assert (ear.hand_out(), ear.live.lacking(), ear.live.ready) == ([], [], False)
