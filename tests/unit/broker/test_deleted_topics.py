"""What a deleted topic had of a producer is not put again to the topic that was made anew."""

import pytest

from oncemq.broker.state import deleted_topics, snapshot
from oncemq.broker.state.deleted_topics import DeletedTopics
from oncemq.broker.state.shard import Shard
from oncemq.protocol.names import ClientId, ProducerId, Sequence, Serial, TopicId
from oncemq.protocol.replies import Resumed
from oncemq.protocol.requests import Resume

MINE = ProducerId(b"p".ljust(16, b"."))
OTHERS = ProducerId(b"o" * 16)


def asked(desk, topic_id: int, producer: ProducerId = MINE) -> Resumed:
    publisher = ClientId("publisher")
    number = next(desk.tokens)
    resume = Resume(publisher, desk.epoch(publisher), "orders", producer, number, TopicId(topic_id))
    reply = desk.ask(resume)
    assert isinstance(reply, Resumed)
    return reply


@pytest.mark.parametrize("anew", [False, True])
def test_a_resume_tells_how_far_its_producer_had_come_on_the_deleted_topic(desk, anew) -> None:
    desk.create("orders")
    topic_id = desk.put("orders", b"a", b"b").topic_id
    assert asked(desk, topic_id).deleted_after == 0  # it is there
    desk.delete("orders")
    if anew:
        desk.create("orders")
    desk.sync()
    for server in (desk, desk.crash()):
        assert asked(server, topic_id).deleted_after == 2
        assert asked(server, 0).deleted_after == 2  # its id was not heard of yet
        assert asked(server, topic_id + 77).deleted_after == 0  # another life
        assert asked(server, topic_id, OTHERS).deleted_after == 0


def test_on_the_topic_that_is_there_nothing_else_counts(desk) -> None:
    topic_id = desk.put("orders", b"a", b"b").topic_id
    desk.delete("orders")
    resumed = asked(desk, topic_id)
    desk.permits["orders", MINE] = resumed.permit
    new_id = desk.put("orders", b"c", first=1).topic_id
    there = asked(desk, new_id)
    assert (there.topic_id, there.last_sequence, there.deleted_after) == (new_id, 1, 0)


def test_what_is_kept_is_bounded_and_the_oldest_deletion_goes_first(monkeypatch) -> None:
    monkeypatch.setattr(deleted_topics, "KEPT_MAX", 3)
    kept = DeletedTopics()
    for number in range(1, 5):
        kept.deleted(f"t{number}", TopicId(number), [(MINE, Sequence(number))], Serial(number))
    found = [kept.last_number(f"t{number}", MINE, TopicId(number)) for number in range(1, 5)]
    assert found == [0, 2, 3, 4]
    kept.deleted("t2", TopicId(9), [(MINE, Sequence(7))], Serial(5))  # deleted once more
    kept.deleted("t5", TopicId(5), [(MINE, Sequence(5))], Serial(6))
    assert kept.last_number("t2", MINE, TopicId(9)) == 7
    assert kept.last_number("t3", MINE, TopicId(3)) == 0


def test_a_checkpoint_keeps_it_in_its_order() -> None:
    before, after = Shard(7), Shard(7)
    for number in range(2_500):
        put = [(MINE, Sequence(number + 1))]
        before.deleted_topics.deleted(f"t{number}", TopicId(5), put, Serial(number + 1))
    for blob in snapshot.capture(before):
        snapshot.restore(after, blob)
    assert list(snapshot.capture(after)) == list(snapshot.capture(before))
    assert after.deleted_topics.last_number("t2499", MINE, TopicId(5)) == 2_500


def test_a_deletion_that_a_checkpoint_knew_changes_nothing(monkeypatch) -> None:
    """Records since a checkpoint began are replayed on what it kept at its end."""
    monkeypatch.setattr(deleted_topics, "KEPT_MAX", 2)
    deletions = [("a", TopicId(1)), ("a", TopicId(2)), ("b", TopicId(3)), ("c", TopicId(4))]
    before, after = Shard(7), Shard(7)
    for shard in (before, after):
        for serial, (name, topic_id) in enumerate(deletions, 1):
            put = [(MINE, Sequence(serial))]
            shard.deleted_topics.deleted(name, topic_id, put, Serial(serial))
        for blob in snapshot.capture(before):
            snapshot.restore(after, blob)
    assert list(snapshot.capture(after)) == list(snapshot.capture(before))
    assert after.deleted_topics.last_number("a", MINE, TopicId(2)) == 0


@pytest.mark.parametrize("first", [1, 3])
def test_where_no_topic_has_the_name_numbers_go_on_above_those_that_were_used(
    desk, first: int
) -> None:
    """From 1, as older clients do, or above: whoever was killed cannot mistake the latter."""
    topic_id = desk.put("orders", b"a", b"b").topic_id
    desk.delete("orders")
    assert asked(desk, 0, OTHERS).above == 0
    resumed = asked(desk, topic_id)
    assert (resumed.topic_id, resumed.above) == (0, 2)
    assert asked(desk, topic_id + 77).above == 2  # whichever of them it knew
    desk.permits["orders", MINE] = asked(desk, topic_id).permit
    assert desk.put("orders", b"c", first=2).code == "sequence_gap"
    assert desk.put("orders", b"c", first=4).code == "sequence_gap"
    accepted = desk.put("orders", b"c", first=first)
    assert not accepted.duplicate
    assert not desk.put("orders", b"d", first=first + 1).duplicate
    there = asked(desk, accepted.topic_id)
    assert (there.last_sequence, there.above) == (first + 1, 0)
