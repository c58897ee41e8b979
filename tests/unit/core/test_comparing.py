"""A log that went back in time: who knows more than it has is told, topic by topic; nobody else."""

import msgspec
import pytest
from tests.unit.core.conftest import Desk

from oncemq.core import snapshot
from oncemq.core.client_requests import Compare, ForgetClient, ListClients, Numbers
from oncemq.core.names import (
    ClientId,
    Epoch,
    Generation,
    Micros,
    Offset,
    ProducerId,
    Sequence,
    Serial,
    TopicId,
)
from oncemq.core.records import (
    ClientForgotten,
    ClientOpened,
    GenerationBegan,
    PatternUnsubscribed,
    SubscriptionEnded,
)
from oncemq.core.replies import (
    ClientInfo,
    ClientList,
    Compared,
    Done,
    LostCursor,
    LostNumbers,
    Refused,
    Resumed,
)
from oncemq.core.requests import Hello, Resume, Settle, Watch
from oncemq.core.shard import Shard
from oncemq.core.topic import ENDS_KEPT, Topic

BILLING = ClientId("billing")
P = ProducerId(b"p".ljust(16, b"."))


def gone_back(desk: Desk, upto: int, *, tag: int = 8, generation: int = 2) -> Desk:
    """The server on an earlier state of its log, with the generation raised."""
    after = Desk(desk.broker.rules)
    after.shard.__init__(tag)
    after.records = list(desk.records[:upto])
    for serial, record in enumerate(after.records, start=1):
        after.shard.apply(record, Serial(serial))
    after.broker.recovered(Micros(0))
    after.now, after.tokens = desk.now + 1, desk.tokens
    after.note(after.broker.begin_generation(Generation(generation), Micros(after.now)))
    after.sync()
    return after


def lost(desk: Desk, *cursors: tuple[str, int, int], generation: int = 1) -> Compared:
    known = tuple(desk.settled(*each) for each in cursors)
    answer = desk.ask(Compare(BILLING, Generation(generation), cursors=known))
    assert isinstance(answer, Compared)
    return answer


def test_a_cursor_beyond_where_its_topic_ended_is_lost_however_much_was_put_since(desk) -> None:
    subscription = desk.subscription("orders")
    desk.put("orders", b"0", b"1")
    upto = len(desk.records)
    desk.put("orders", b"2", b"3", b"4")
    after = gone_back(desk, upto)
    after.hello("publisher", last=1)
    assert lost(after, ("orders", subscription, 2)).cursors == ()
    told = LostCursor("orders", Offset(5), Offset(2), Offset(0), Offset(2))
    assert lost(after, ("orders", subscription, 5)).cursors == (told,)
    after.sequences[("orders", P)] = 2
    after.put("orders", *[b"new"] * 9)
    told = msgspec.structs.replace(told, end=Offset(11))
    assert lost(after, ("orders", subscription, 5)).cursors == (told,)
    assert lost(after, ("orders", subscription, 5), generation=2).cursors == ()  # it knows these


def test_of_several_generations_the_lowest_end_since_counts() -> None:
    topic = Topic(TopicId(1), "orders", msgspec.UNSET, Micros(0))  # type: ignore[arg-type]
    for generation, end in ((2, 50), (3, 20), (4, 70)):
        topic.end = Offset(end)
        topic.began(Generation(generation))
    topic.end = Offset(100)
    assert [topic.agreed(Generation(each)) for each in (1, 2, 3, 4)] == [20, 20, 70, 100]
    assert topic.ends == ((3, 20), (4, 70))  # the second said no more than the third


def test_what_a_topic_remembers_of_generations_is_bounded_and_errs_to_telling() -> None:
    topic = Topic(TopicId(1), "orders", msgspec.UNSET, Micros(0))  # type: ignore[arg-type]
    for generation in range(2, 100):
        topic.end = Offset(generation * 10)
        topic.began(Generation(generation))
    assert len(topic.ends) == ENDS_KEPT
    assert topic.agreed(Generation(1)) == 20
    assert topic.agreed(Generation(98)) == 990
    assert all(topic.agreed(Generation(each)) <= (each + 1) * 10 for each in range(1, 99))


def test_a_subscription_that_ended_is_not_lost_and_one_of_the_lost_future_is(desk) -> None:
    ended = desk.subscription("orders")
    desk.unsubscribe("orders")
    upto = len(desk.records)
    future = desk.subscription("orders")
    beyond = desk.subscription("new")
    after = gone_back(desk, upto)
    found = lost(after, ("orders", ended, 0), ("orders", future, 3), ("new", beyond, 1)).cursors
    nothing = Offset(-1)
    assert found == (
        LostCursor("orders", Offset(3), nothing, nothing, Offset(0)),
        LostCursor("new", Offset(1), nothing, nothing, Offset(0)),
    )
    after.hello("billing", last=1)
    made = after.subscription("orders")
    assert made >> 32 == 8, "ids of the new generation are other ones"
    assert lost(after, ("orders", made, 0), generation=2).cursors == ()


def test_a_cursor_beyond_the_end_is_lost_within_a_generation_too_and_nobody_can_say_how_far(
    desk,
) -> None:
    subscription = desk.subscription("orders")
    desk.put("orders", b"0")
    told = LostCursor("orders", Offset(3), Offset(-1), Offset(0), Offset(1))
    assert lost(desk, ("orders", subscription, 3)).cursors == (told,)


def test_numbers_with_receipts_that_are_not_there_are_lost(desk) -> None:
    desk.subscription("orders")
    topic_id = desk.put("orders", b"0", b"1").topic_id  # type: ignore[union-attr]
    upto = len(desk.records)
    desk.put("orders", b"2")
    future = desk.put("other", b"x").topic_id  # type: ignore[union-attr]
    after = gone_back(desk, upto)
    question = Compare(
        BILLING,
        Generation(1),
        numbers=(
            Numbers("orders", topic_id, P, Sequence(2)),
            Numbers("orders", topic_id, P, Sequence(3)),
            Numbers("orders", TopicId(0), P, Sequence(9)),
            Numbers("other", future, P, Sequence(1)),
        ),
    )
    answer = after.ask(question)
    assert isinstance(answer, Compared)
    assert answer.numbers == (
        LostNumbers("orders", P, Sequence(3), Sequence(2)),
        LostNumbers("other", P, Sequence(1), Sequence(0)),
    )


def test_numbers_on_a_topic_that_was_deleted_are_named_and_not_those_on_one_that_was_lost(
    desk,
) -> None:
    gone = desk.put("gone", b"x").topic_id  # type: ignore[union-attr]
    desk.delete("gone")
    desk.resume("gone")
    there = desk.put("gone", b"y", first=1).topic_id  # type: ignore[union-attr]
    upto = len(desk.records)
    future = desk.put("future", b"x").topic_id  # type: ignore[union-attr]
    known = tuple(
        Numbers("gone", TopicId(each), P, Sequence(1)) for each in (gone, there, future, 0)
    )
    answer = gone_back(desk, upto).ask(Compare(BILLING, Generation(1), numbers=known))
    assert isinstance(answer, Compared)
    assert answer.deleted == (gone,)


def test_numbers_on_a_topic_that_was_deleted_are_not_lost(desk) -> None:
    gone = desk.put("gone", b"0", b"1").topic_id  # type: ignore[union-attr]
    again = desk.put("again", b"0", b"1").topic_id  # type: ignore[union-attr]
    desk.delete("gone")
    desk.delete("again")
    desk.create("again")
    after = gone_back(desk, len(desk.records))
    known = Numbers("gone", gone, P, Sequence(2)), Numbers("again", again, P, Sequence(2))
    assert after.ask(Compare(BILLING, Generation(1), numbers=known)).numbers == ()  # type: ignore[union-attr]


def test_a_resume_says_whether_its_topic_was_lost_or_deleted(desk) -> None:
    gone = desk.put("gone", b"x").topic_id  # type: ignore[union-attr]
    desk.delete("gone")
    upto = len(desk.records)
    future = desk.put("future", b"x").topic_id  # type: ignore[union-attr]
    after = gone_back(desk, upto)
    after.hello("publisher", last=1)

    def resumed(topic: str, topic_id: int) -> Resumed:
        about = topic, P, 1, TopicId(topic_id)
        answer = after.ask(Resume(ClientId("publisher"), after.epoch("publisher"), *about))
        assert isinstance(answer, Resumed)
        return answer

    assert resumed("gone", gone).lost is False
    assert resumed("future", future).lost is True


def test_who_was_let_in_before_must_say_hello_and_compare(desk) -> None:
    desk.subscription("orders")
    after = gone_back(desk, len(desk.records))
    after.epochs["billing"] = 1
    refused = after.get("orders")
    assert isinstance(refused, Refused)
    assert refused.code == "unknown_client"
    after.hello("billing", last=1)
    assert after.epochs["billing"] == 2
    assert not isinstance(after.get("orders"), Refused)


def test_that_a_client_must_say_hello_outlives_a_checkpoint(desk) -> None:
    desk.subscription("orders")
    after = gone_back(desk, len(desk.records))
    shard = Shard(8)
    for blob in snapshot.capture(after.shard):
        snapshot.restore(shard, blob)
    assert shard.clients.refusal(BILLING, Epoch(1)).code == "unknown_client"  # type: ignore[union-attr]
    assert shard.generation == 2
    assert shard.by_name["orders"].ends == ((2, 0),)


def test_the_subscriptions_of_guests_end_with_the_generation(desk) -> None:
    guest = ClientId("_anonymous-1")
    desk.subscribe("orders", guest)
    desk.subscribe("ord.*", guest)
    desk.subscribe("orders")
    topic = desk.shard.by_name["orders"].id
    upto = len(desk.records)
    after = gone_back(desk, upto)
    assert after.records[upto:] == [
        PatternUnsubscribed(guest, "ord.*"),
        SubscriptionEnded(topic, guest),
        GenerationBegan(Generation(2), Micros(after.shard.last_timestamp)),
    ]
    assert list(after.shard.by_client) == [BILLING]


def test_a_generation_is_noted_once(desk) -> None:
    after = gone_back(desk, 0)
    assert after.broker.begin_generation(Generation(2), Micros(0)).writes == []
    assert len(after.broker.begin_generation(Generation(3), Micros(0)).writes) == 1


@pytest.mark.parametrize(
    ("log_id", "generation", "words"),
    [(b"another", 1, "another log"), (b"mine", 2, "knows generation 2"), (b"mine", 1, "")],
)
def test_who_knows_another_log_or_a_later_generation_is_refused(log_id, generation, words) -> None:
    desk = Desk()
    desk.shard.log_id = b"mine"
    answer = desk.ask(Hello(BILLING, Epoch(0), 5, log_id, Generation(generation)))
    if words:
        assert isinstance(answer, Refused)
        assert answer.code == "history_lost"
        assert words in answer.detail
        assert desk.records == []
    else:
        assert desk.records == [ClientOpened(BILLING, Epoch(1), 5)]


def test_a_watch_says_how_far_the_readers_generation_agrees(desk) -> None:
    desk.subscription("orders")
    desk.put("orders", b"0", b"1")
    after = gone_back(desk, len(desk.records))
    after.sequences[("orders", P)] = 2
    after.epochs["publisher"] = after.hello("publisher", last=1).client_epoch  # type: ignore[union-attr]
    after.put("orders", b"2")
    after.sync()
    ends = after.ask(Watch((("orders", Offset(0)),), generation=Generation(1)))
    assert (ends.topics[0].agreed, ends.topics[0].end, ends.generation) == (2, 3, 2)  # type: ignore[union-attr]
    assert after.ask(Watch((("orders", Offset(0)),))).topics[0].agreed == -1  # type: ignore[union-attr]


def test_an_id_that_nobody_uses_is_forgotten(desk) -> None:
    desk.hello("billing", nonce=1)
    desk.hello("billing", last=1)
    assert desk.ask(ListClients()) == ClientList((ClientInfo(BILLING, Epoch(2), 0),), more=False)
    assert desk.ask(ForgetClient(BILLING)) == Done(changed=True)
    assert desk.records[-1] == ClientForgotten(BILLING, Epoch(2))
    assert desk.ask(ForgetClient(BILLING)) == Done(changed=False)
    assert desk.hello("billing", last=2).code == "history_lost"
    desk.sync()
    for again in (desk, desk.crash()):  # no epoch is granted twice
        assert again.hello("billing").client_epoch == 3
        assert again.ask(Settle(BILLING, Epoch(2), ())).code == "fenced"
        assert again.hello("billing", last=2).code == "stale_state"


def test_an_id_with_subscriptions_is_forgotten_only_when_they_may_end(desk) -> None:
    desk.subscribe("orders")
    desk.subscribe("a.*")
    refused = desk.ask(ForgetClient(BILLING))
    assert refused.code == "in_use"
    assert "orders, a.*" in refused.detail
    assert desk.ask(ForgetClient(BILLING, ending=True)) == Done(changed=True)
    assert not desk.shard.subscribes(BILLING)
    assert BILLING not in desk.shard.clients.entries


def test_clients_are_listed_a_page_at_a_time(desk) -> None:
    for name in ("c", "a", "b"):
        desk.hello(name)
    first = desk.ask(ListClients(limit=2))
    assert [each.client for each in first.clients] == ["a", "b"]
    assert first.more
    rest = desk.ask(ListClients("b", 2))
    assert ([each.client for each in rest.clients], rest.more) == (["c"], False)
