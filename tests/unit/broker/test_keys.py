"""Idempotency keys: one key, one batch, for a stated time, across processes and crashes."""

# pyright: reportArgumentType=false
# Names and numbers are written plainly here.

from oncemq.broker.expiry import BATCH
from oncemq.protocol.limits import ServerLimits
from oncemq.protocol.names import Micros, key_producer
from oncemq.protocol.records import KeyedDiscarded, KeysForgotten, MessagesKeyed
from oncemq.protocol.replies import PutAccepted, TopicShown
from oncemq.protocol.requests import ShowTopic, StatusRequest

WEEK = 7 * 86_400_000_000


def forget(desk, micros: int = 0) -> list:
    desk.now += micros
    return [write.record for write in desk.note(desk.broker.forget_guests(Micros(desk.now))).writes]


def offset_of(answer) -> tuple[int, bool, bool]:
    assert isinstance(answer, PutAccepted), answer
    return answer.first_offset, answer.stored, answer.duplicate


def test_a_put_under_a_key_repeated_by_another_process_gets_the_first_receipt(desk) -> None:
    desk.subscribe("orders")
    desk.put("orders", b"before")
    assert offset_of(desk.put_keyed("orders", "k-1", b"a", b"b")) == (1, True, False)
    again = desk.put_keyed("orders", "k-1", b"a", b"b", client="_anonymous-2")
    assert offset_of(again) == (1, True, True)
    assert desk.shard.by_name["orders"].end == 3
    assert desk.broker.counters.duplicates == 2


def test_the_key_and_its_messages_are_one_fact(desk) -> None:
    desk.subscribe("orders")
    desk.put_keyed("orders", "k-1", b"a")
    fact = desk.records[-1]
    assert isinstance(fact, MessagesKeyed)
    assert (fact.key, fact.count, fact.runs[0].producer) == ("k-1", 1, key_producer("k-1"))


def test_the_same_key_with_another_payload_is_refused(desk) -> None:
    desk.subscribe("orders")
    desk.put_keyed("orders", "k-1", b"a")
    assert desk.put_keyed("orders", "k-1", b"b").code == "payload_conflict"
    assert desk.put_keyed("orders", "k-1", b"a", b"a").code == "payload_conflict"
    assert desk.shard.by_name["orders"].end == 1


def test_a_key_belongs_to_its_topic(desk) -> None:
    desk.subscribe("orders")
    desk.subscribe("refunds")
    assert offset_of(desk.put_keyed("orders", "k-1", b"a")) == (0, True, False)
    assert offset_of(desk.put_keyed("refunds", "k-1", b"b")) == (0, True, False)


def test_a_put_nobody_wants_is_remembered_under_its_key_too(desk) -> None:
    assert offset_of(desk.put_keyed("orders", "k-1", b"a")) == (-1, False, False)
    assert isinstance(desk.records[-1], KeyedDiscarded)
    desk.subscribe("orders")
    assert offset_of(desk.put_keyed("orders", "k-1", b"a")) == (-1, False, True)
    assert desk.put_keyed("orders", "k-1", b"b").code == "payload_conflict"


def test_a_key_is_remembered_across_a_crash_and_only_if_it_was_durable(desk) -> None:
    desk.subscribe("orders")
    desk.put_keyed("orders", "k-1", b"a")
    desk.sync()
    desk.put_keyed("orders", "k-2", b"b")
    after = desk.crash()
    assert offset_of(after.put_keyed("orders", "k-1", b"a")) == (0, True, True)
    assert offset_of(after.put_keyed("orders", "k-2", b"b")) == (1, True, False)


def test_a_key_is_forgotten_after_its_time_and_not_before(desk) -> None:
    desk.subscribe("orders")
    desk.put_keyed("orders", "k-1", b"a")
    assert forget(desk, WEEK - 1) == []  # timestamps never stand still: a few moments later
    desk.put_keyed("orders", "k-2", b"b")
    topic_id = desk.shard.by_name["orders"].id
    assert forget(desk, 3) == [KeysForgotten(topic_id, (key_producer("k-1"),))]
    assert offset_of(desk.put_keyed("orders", "k-2", b"b")) == (1, True, True)
    assert offset_of(desk.put_keyed("orders", "k-1", b"a")) == (2, True, False)


def test_keys_are_forgotten_a_batch_at_a_time(desk) -> None:
    desk.subscribe("orders")
    for number in range(BATCH + 1):
        desk.put_keyed("orders", f"k-{number}", b"a")
    assert [len(record.keys) for record in forget(desk, WEEK + 2 * BATCH)] == [BATCH]
    assert [len(record.keys) for record in forget(desk)] == [1]
    assert desk.shard.keys == {}


def test_a_full_topic_refuses_a_new_key_and_still_knows_the_old_ones(make_desk) -> None:
    desk = make_desk(ServerLimits(idempotency_keys_max=2))
    desk.subscribe("orders")
    desk.put_keyed("orders", "k-1", b"a")
    desk.put_keyed("orders", "k-2", b"b")
    refused = desk.put_keyed("orders", "k-3", b"c")
    assert refused.code == "limit"
    assert "remembers its 2 idempotency keys" in refused.detail
    assert offset_of(desk.put_keyed("orders", "k-1", b"a")) == (0, True, True)
    assert offset_of(desk.put("orders", b"without")) == (2, True, False)


def test_a_key_that_is_no_key_is_refused(desk) -> None:
    assert desk.put_keyed("orders", "k" * 256, b"a").code == "malformed"
    assert desk.put_keyed("orders", "k", b"a", producer=b"p" * 16).code == "malformed"
    assert desk.put_keyed("orders", "k", b"a", first_sequence=2).code == "malformed"
    assert desk.records == []


def test_a_deleted_topic_takes_its_keys_with_it(desk) -> None:
    desk.subscribe("orders")
    desk.put_keyed("orders", "k-1", b"a")
    desk.delete("orders")
    assert desk.shard.keys == {}
    desk.subscribe("orders")
    assert offset_of(desk.put_keyed("orders", "k-1", b"a")) == (0, True, False)


def test_keys_are_reported(desk) -> None:
    desk.subscribe("orders")
    desk.put_keyed("orders", "k-1", b"a")
    shown = desk.ask(ShowTopic("orders"))
    assert isinstance(shown, TopicShown)
    assert shown.topic.idempotency_keys == 1
    assert desk.ask(StatusRequest()).facts["idempotency_keys"] == 1


def test_a_keyed_put_leaves_the_numbers_of_producers_alone(desk) -> None:
    desk.subscribe("orders")
    desk.put_keyed("orders", "k-1", b"a")
    assert desk.shard.by_name["orders"].producers == {}
    assert desk.shard.guests == {}
