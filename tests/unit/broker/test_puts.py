"""G2 and G3: a put is stored once, in its producer's order, or refused with a reason."""

# pyright: reportArgumentType=false
# Names and numbers are written plainly here.

import pytest
from msgspec import structs

from oncemq.broker.state import snapshot
from oncemq.broker.state.shard import Shard
from oncemq.protocol.limits import PUTS_UNDER_WAY_MAX, ServerLimits
from oncemq.protocol.names import Epoch, Micros, Offset, ProducerId, Sequence, TopicId
from oncemq.protocol.records import (
    MessagesDiscarded,
    MessagesStored,
    Retention,
    Run,
    TopicCreated,
)
from oncemq.protocol.replies import NO_OFFSET, Done, PutAccepted, RefusedReply, Resumed
from oncemq.protocol.requests import (
    ConfigureTopic,
    CreateTopic,
    DeleteTopic,
    ListTopics,
    Resume,
    ShowTopic,
)
from oncemq.protocol.step import Write
from oncemq.wire import batch

ID = TopicId((7 << 32) | 1)
NEXT_ID = TopicId((7 << 32) | 2)
PRODUCER = ProducerId(b"p".ljust(16, b"."))


def accepted(
    first: int,
    count: int = 1,
    *,
    stored: bool = True,
    duplicate: bool = False,
    topic: int = ID,
    at: int | None = None,
) -> PutAccepted:
    """`at`: microseconds since the desk's time began; none where the moment is not known."""
    moment = Micros(0 if at is None else 1_000_000_000 + at)
    return PutAccepted(TopicId(topic), Offset(first), count, stored, duplicate, 0, moment)


def refusal(answer: object) -> str:
    assert isinstance(answer, RefusedReply)
    assert answer.detail
    return answer.code


# ------------------------------------------------------------------ stored, or not wanted


def test_a_put_to_a_topic_nobody_subscribes_to_makes_the_topic_and_keeps_nothing(desk) -> None:
    put, body = desk.putting("orders", b"a", b"b")
    step = desk.step(put, body)
    run = Run(2, PRODUCER, Epoch(1), Sequence(1), 1_000_000_001)
    assert step.writes == [
        Write(TopicCreated(ID, "orders", Retention(), 1_000_000_000)),
        Write(MessagesDiscarded(ID, put.checksum, run)),
    ]
    assert [owed.answer for owed in step.replies] == [accepted(NO_OFFSET, 2, stored=False, at=1)]


def test_the_sequence_advances_also_when_nothing_is_kept(desk) -> None:
    desk.put("orders", b"a", b"b")
    assert stands(desk.resume("orders")) == (ID, 2)
    assert refusal(desk.put("orders", b"x", first=4)) == "sequence_gap"
    assert desk.put("orders", b"c", first=3) == accepted(NO_OFFSET, stored=False, at=2)


def test_a_put_is_stored_at_the_end_with_its_body_and_answered_after_it_is_durable(desk) -> None:
    desk.subscription("orders")
    put, body = desk.putting("orders", b"a", b"b")
    step = desk.step(put, body)
    run = Run(2, PRODUCER, Epoch(1), Sequence(1), 1_000_000_001)
    record = MessagesStored(ID, Offset(0), 2, 0, put.checksum, (run,))
    seed = batch.seed("orders", PRODUCER, 1, 2)
    assert step.writes == [Write(record, body, seed)]
    (owed,) = step.replies
    assert (owed.answer, owed.after) == (accepted(0, 2, at=1), len(desk.records))
    assert desk.put("orders", b"c") == accepted(2, at=2)


def test_retention_keeps_a_put_that_nobody_subscribes_to(desk) -> None:
    desk.create("orders", Retention(keep_ms=1000))
    assert desk.put("orders", b"a") == accepted(0, at=1)


def test_the_receipt_says_what_a_power_cut_may_take(make_desk) -> None:
    desk = make_desk(ServerLimits(sync_ms=50))
    desk.subscription("orders")
    assert desk.put("orders", b"a").sync_ms == 50
    assert desk.put("orders", b"a", first=1).sync_ms == 50


def test_timestamps_grow_over_all_topics_even_when_the_clock_stands_or_goes_back(desk) -> None:
    desk.subscription("a")
    desk.subscription("b")
    desk.put("a", b"1")
    desk.put("b", b"2")
    desk.now -= 500_000_000
    desk.put("a", b"3")
    stored = [record for record in desk.records if isinstance(record, MessagesStored)]
    times = [record.runs[0].timestamp for record in stored]
    assert times == sorted(set(times))


def test_a_put_that_does_not_last_is_marked_so_that_its_producer_may_be_forgotten(desk) -> None:
    desk.subscription("orders")
    desk.put("orders", b"a", lasting=False)
    assert desk.records[-1].runs[0].producer_epoch == Epoch(0)


# ------------------------------------------------------------------ repeated (G2)


def test_a_repeated_put_gets_the_first_receipt_marked_duplicate_and_writes_nothing(desk) -> None:
    desk.subscription("orders")
    desk.put("orders", b"a")
    desk.put("orders", b"b", b"c")
    step = desk.step(*desk.putting("orders", b"b", b"c", first=2))
    assert step.writes == []
    assert step.replies[0].answer == accepted(1, 2, duplicate=True, at=2)


def test_the_answer_to_a_repeat_waits_for_the_first_to_be_durable(desk) -> None:
    desk.subscription("orders")
    desk.put("orders", b"a")
    assert desk.owed(*desk.putting("orders", b"a", first=1)).after == len(desk.records)


def test_a_repeat_of_a_put_that_was_not_kept_says_so_again_even_if_someone_subscribed(desk) -> None:
    desk.put("orders", b"a")
    desk.subscription("orders")
    answer = desk.put("orders", b"a", first=1)
    assert answer == accepted(NO_OFFSET, stored=False, duplicate=True, at=1)


def test_a_repeat_is_recognized_after_a_replay(desk) -> None:
    desk.subscription("orders")
    desk.put("orders", b"a")
    desk.sync()
    after = desk.crash()
    assert after.put("orders", b"a", first=1) == accepted(0, duplicate=True, at=1)


def test_a_repeat_is_recognized_after_a_restore_from_a_checkpoint(desk, make_desk) -> None:
    desk.subscription("orders")
    desk.put("orders", b"a")
    desk.put("orders", b"b", b"c")
    after = make_desk()
    for blob in snapshot.capture(desk.shard):
        snapshot.restore(after.shard, blob)
    after.shard.serial = desk.shard.serial
    after.records, after.epochs = desk.records, desk.epochs
    assert after.put("orders", b"a", first=1) == accepted(0, duplicate=True)
    assert after.put("orders", b"b", b"c", first=2) == accepted(1, 2, duplicate=True, at=2)
    assert refusal(after.put("orders", b"x", first=1)) == "payload_conflict"
    assert after.put("orders", b"d", first=4) == accepted(3, at=3)


def test_a_put_lost_by_a_crash_before_its_sync_is_new_when_repeated(desk) -> None:
    desk.subscription("orders")
    desk.hello("publisher")
    desk.sync()
    desk.put("orders", b"a")
    assert desk.crash().put("orders", b"a", first=1) == accepted(0, at=1)


def test_a_repeat_older_than_the_kept_receipts_is_absorbed_without_its_offset(desk) -> None:
    desk.subscription("orders")
    for number in range(PUTS_UNDER_WAY_MAX + 1):
        desk.put("orders", b"%d" % number)
    step = desk.step(*desk.putting("orders", b"0", first=1))
    assert step.writes == []
    assert step.replies[0].answer == accepted(NO_OFFSET, duplicate=True)
    assert desk.put("orders", b"1", first=2) == accepted(1, duplicate=True)


def test_a_used_sequence_with_another_payload_is_refused(desk) -> None:
    desk.subscription("orders")
    desk.put("orders", b"a")
    assert refusal(desk.put("orders", b"b", first=1)) == "payload_conflict"


def test_a_batch_that_overlaps_stored_sequences_is_refused(desk) -> None:
    desk.subscription("orders")
    desk.put("orders", b"a", b"b")
    assert refusal(desk.put("orders", b"b", b"c", first=2)) == "payload_conflict"


def test_a_piece_of_a_stored_batch_is_refused(desk) -> None:
    desk.subscription("orders")
    desk.put("orders", b"a", b"b", b"c")
    assert refusal(desk.put("orders", b"b", first=2)) == "payload_conflict"
    assert refusal(desk.put("orders", b"a", b"b", first=1)) == "payload_conflict"


def test_a_gap_is_refused_and_names_the_expected_sequence(desk) -> None:
    desk.subscription("orders")
    desk.put("orders", b"a")
    answer = desk.put("orders", b"c", first=3)
    assert refusal(answer) == "sequence_gap"
    assert "expects sequence 2" in answer.detail
    assert refusal(desk.put("other", b"c", first=2)) == "sequence_gap"
    assert "other" not in desk.shard.by_name


def test_producers_number_their_puts_apart(desk) -> None:
    desk.subscription("orders")
    assert desk.put("orders", b"a", producer=b"one") == accepted(0, at=1)
    assert desk.put("orders", b"b", producer=b"two") == accepted(1, at=2)
    assert desk.put("orders", b"a", producer=b"one", first=1) == accepted(0, duplicate=True, at=1)


def test_a_producer_numbers_each_topic_apart(desk) -> None:
    desk.put("a", b"x")
    assert desk.put("b", b"x", first=1).duplicate is False


# ------------------------------------------------------------------ another topic of the name


def test_a_put_meant_for_a_deleted_topic_is_told_to_resume(desk) -> None:
    desk.subscription("orders")
    topic_id = desk.put("orders", b"a").topic_id
    desk.delete("orders")
    assert refusal(desk.put("orders", b"b", first=2, topic_id=topic_id)) == "topic_changed"
    assert "orders" not in desk.shard.by_name


def test_a_put_meant_for_the_topic_before_is_told_to_resume_on_the_new_one(desk) -> None:
    topic_id = desk.put("orders", b"a").topic_id
    desk.delete("orders")
    desk.create("orders")
    assert refusal(desk.put("orders", b"b", first=2, topic_id=topic_id)) == "topic_changed"
    assert stands(desk.resume("orders")) == (NEXT_ID, 0)
    again = desk.put("orders", b"b", first=1, topic_id=NEXT_ID)
    assert again == accepted(NO_OFFSET, stored=False, topic=NEXT_ID, at=3)


def test_a_late_copy_of_a_delete_spares_the_topic_that_was_made_since(desk) -> None:
    delete = DeleteTopic("orders", desk.put("orders", b"a").topic_id)
    assert desk.ask(delete) == Done(changed=True)
    assert desk.ask(delete) == Done(changed=False)
    desk.create("orders")
    assert desk.ask(delete) == Done(changed=False)
    assert "orders" in desk.shard.by_name


def test_a_late_copy_of_a_create_does_not_make_a_topic_again(desk) -> None:
    create = CreateTopic("orders", Retention(), desk.ask(ListTopics("", 1)).deleted)
    assert desk.ask(create) == Done(changed=True)
    assert desk.ask(create) == Done(changed=False)
    desk.delete("orders")
    assert refusal(desk.ask(create)) == "outdated"
    assert "orders" not in desk.shard.by_name
    seen = desk.ask(ListTopics("", 1)).deleted
    desk.sync()
    desk = desk.crash()
    assert desk.ask(ListTopics("", 1)).deleted == seen > create.deleted
    assert refusal(desk.ask(create)) == "outdated"
    assert desk.ask(CreateTopic("orders", Retention(), seen)) == Done(changed=True)


def test_a_late_copy_of_a_configuration_undoes_nothing(desk) -> None:
    desk.create("orders")

    def configure(keep_ms: int) -> ConfigureTopic:
        shown = desk.ask(ShowTopic("orders")).topic
        return ConfigureTopic("orders", Retention(keep_ms), shown.topic_id, shown.configured)

    first = configure(1)
    assert desk.ask(first) == Done(changed=True)
    assert desk.ask(first) == Done(changed=False)
    desk.ask(configure(0))  # as it was before, and not the one that `first` replaced
    desk.sync()
    desk = desk.crash()
    assert refusal(desk.ask(first)) == "outdated"
    desk.delete("orders")
    desk.create("orders")
    assert refusal(desk.ask(first)) == "outdated"
    assert desk.shard.by_name["orders"].retention == Retention()


def test_a_topic_made_again_has_another_identity(desk) -> None:
    first = desk.put("orders", b"a").topic_id
    desk.delete("orders")
    desk.resume("orders")
    assert desk.put("orders", b"a", first=1).topic_id > first


def test_resume_on_a_topic_that_is_not_there_says_the_first_put_makes_it(desk) -> None:
    assert stands(desk.resume("orders")) == (TopicId(0), 0)


def test_resume_of_an_unknown_producer_begins_at_nothing(desk) -> None:
    desk.create("orders")
    assert stands(desk.resume("orders")) == (ID, 0)


# ------------------------------------------------------------------ outside the rules


@pytest.mark.parametrize("name", ["", "x" * 256, "a\nb", "e\u0301", "_system"])
def test_a_put_does_not_make_a_topic_with_a_bad_name(desk, name) -> None:
    step = desk.step(*desk.putting(name, b"a", first=1))
    assert step.writes == []
    assert refusal(step.replies[0].answer) == "name_invalid"


@pytest.mark.parametrize("name", ["../x", "a/b", "x" * 255])
def test_a_name_is_only_a_name(desk, name) -> None:
    assert desk.put(name, b"a").duplicate is False
    assert name in desk.shard.by_name


@pytest.mark.parametrize("name", ["_system", "a\nb"])
def test_resume_lets_the_put_itself_be_refused_so_that_every_put_behind_it_is_answered_too(
    desk, name
) -> None:
    assert stands(desk.resume(name)) == (TopicId(0), 0)


def test_a_sequence_counts_from_1_and_a_producer_has_16_bytes(desk) -> None:
    assert refusal(desk.put("orders", b"a", first=0)) == "malformed"
    assert refusal(desk.put("orders", b"a", producer=b"p" * 17)) == "malformed"


def test_there_are_no_more_topics_than_the_limit(make_desk) -> None:
    desk = make_desk(ServerLimits(topics_max=1))
    desk.put("a", b"x")
    assert refusal(desk.put("b", b"x")) == "limit"
    assert desk.put("a", b"y").duplicate is False


def stands(reply) -> tuple[TopicId, int]:
    """Where a producer stopped, whatever its permit is."""
    assert isinstance(reply, Resumed)
    return reply.topic_id, reply.last_sequence


def resumed(desk, put, number: int | None = None) -> int:
    """The permit of a resume by the producer of a put."""
    number = next(desk.tokens) if number is None else number
    return desk.ask(Resume(put.client, put.client_epoch, put.topic, put.producer, number)).permit


def test_a_resume_repeated_gets_the_same_permit_and_a_late_one_changes_nothing(desk) -> None:
    desk.subscribe("orders")
    put, body = desk.putting("orders", b"a", first=1)
    first = resumed(desk, put, 5)
    assert resumed(desk, put, 5) == first
    second = resumed(desk, put, 6)
    assert second != first
    assert resumed(desk, put, 5) == second
    other = desk.putting("orders", b"a", first=1, client="another")[0]  # with the same producer
    assert resumed(desk, other, 6) != second
    assert resumed(desk, put, 7) != second
    second = resumed(desk, put, 7)
    assert desk.ask(structs.replace(put, permit=second), body).stored


def test_a_resume_waits_for_what_its_producer_put_and_not_for_what_others_put(desk) -> None:
    """Too few replicas store: what is refused then has to be believed, and a resume says so."""
    desk.subscribe("orders")

    def waits(producer: bytes) -> bool:
        put = desk.putting("orders", b"next", first=2, producer=producer)[0]
        resume = Resume(put.client, put.client_epoch, put.topic, put.producer, next(desk.tokens))
        return desk.owed(resume).after > desk.durable

    desk.put("orders", b"a", producer=b"p")
    assert waits(b"p")
    desk.sync()
    assert not waits(b"p")
    desk.put("orders", b"b", producer=b"q")
    assert not waits(b"p")
    assert waits(b"q")
    assert waits(b"unknown"), "it may be the topic itself that is lost"


def test_a_resume_after_a_put_that_nobody_wanted_waits(desk) -> None:
    desk.put("orders", b"a")
    desk.sync()
    put = desk.putting("orders", b"b", first=2)[0]
    desk.put("other", b"c")
    resume = Resume(put.client, put.client_epoch, "orders", put.producer, next(desk.tokens))
    assert desk.owed(resume).after > desk.durable, "no offset tells that it is durable"


@pytest.mark.parametrize("client", ["publisher", "_anonymous-1"])
def test_a_copy_from_before_a_resume_is_not_stored_after_it(desk, client) -> None:
    desk.subscribe("orders")
    put, body = desk.putting("orders", b"a", first=1, client=client)
    first, second = resumed(desk, put), resumed(desk, put)
    for permit in (0, first):
        assert refusal(desk.ask(structs.replace(put, permit=permit), body)) == "outdated"
    assert desk.ask(structs.replace(put, permit=second), body).stored
    other, body = desk.putting("orders", b"a", first=1, client=client, producer=b"other")
    assert desk.ask(other, body).stored  # it was another's resume


def test_a_repeat_of_what_is_stored_gets_its_receipt_under_any_permit(desk) -> None:
    desk.subscribe("orders")
    put, body = desk.putting("orders", b"a", first=1)
    desk.ask(put, body)
    resumed(desk, put)
    assert desk.ask(put, body).duplicate is True


@pytest.mark.parametrize("kept", [100, 1])
def test_a_late_first_put_is_not_stored_in_a_topic_made_anew(desk, monkeypatch, kept) -> None:
    """It names no topic, for it was put before there was one."""
    monkeypatch.setattr("oncemq.broker.permits.KEPT", kept)
    desk.subscribe("shop.*")
    late, body = desk.putting("shop.a", b"one", first=1)
    assert desk.ask(late, body).stored
    desk.ask(DeleteTopic("shop.a"))
    for name in ("shop.b", "shop.c"):  # with one kept, the first deletion is forgotten
        desk.subscribe(name)
        desk.ask(DeleteTopic(name))
    assert refusal(desk.ask(late, body)) == "outdated"
    assert "shop.a" not in desk.shard.by_name
    again = structs.replace(late, permit=resumed(desk, late))  # its publisher means it
    assert desk.ask(again, body).stored
    assert desk.ask(again, body).duplicate
    desk.ask(DeleteTopic("shop.a"))
    assert refusal(desk.ask(again, body)) == "outdated"


def test_once_deletions_were_forgotten_a_put_that_names_no_topic_needs_a_permit(
    desk, monkeypatch
) -> None:
    monkeypatch.setattr("oncemq.broker.permits.KEPT", 1)
    for name in ("a", "b"):
        desk.subscribe(name)
        desk.ask(DeleteTopic(name))
    desk.subscribe("orders")
    put, body = desk.putting("orders", b"one", first=1)
    assert refusal(desk.ask(put, body)) == "outdated"
    assert desk.ask(structs.replace(put, permit=resumed(desk, put)), body).stored


def test_permits_that_were_forgotten_are_asked_for_again(desk, monkeypatch) -> None:
    monkeypatch.setattr("oncemq.broker.permits.KEPT", 2)
    desk.subscribe("orders")
    put, body = desk.putting("orders", b"a", first=1)
    late = structs.replace(put, permit=resumed(desk, put))
    newest = structs.replace(put, permit=resumed(desk, put))
    assert newest.permit > late.permit
    for name in (b"x", b"y"):  # the producer's own is forgotten
        resumed(desk, desk.putting("orders", b"a", first=1, producer=name)[0])
    assert [refusal(desk.ask(each, body)) for each in (late, newest)] == ["outdated"] * 2
    fresh, body = desk.putting("orders", b"a", first=1, producer=b"fresh")
    assert refusal(desk.ask(fresh, body)) == "outdated"  # it is told to resume first
    assert desk.ask(structs.replace(fresh, permit=resumed(desk, fresh)), body).stored


def test_a_server_that_starts_again_gives_other_permits(desk) -> None:
    desk.subscribe("orders")
    put, body = desk.putting("orders", b"a", first=1)
    before = resumed(desk, put)
    desk.sync()
    after = desk.crash()
    after.broker.recovered(after.now + 1)
    assert resumed(after, put) not in (before, 0)
    assert refusal(after.ask(structs.replace(put, permit=before), body)) == "outdated"


def test_the_producers_of_a_topic_have_a_limit_and_the_known_ones_go_on(make_desk) -> None:
    desk = make_desk(ServerLimits(producers_max=2))
    desk.subscribe("orders")
    for producer in (b"x", b"y"):
        assert desk.put("orders", b"a", producer=producer).stored
    for lasting in (True, False):
        refused = desk.put("orders", b"a", first=1, producer=b"z", lasting=lasting)
        assert (refused.code, "producers_max" in refused.detail) == ("limit", True)
    assert desk.put("orders", b"b", producer=b"x").stored
    assert desk.put("refunds", b"a", producer=b"z")


def test_a_refused_put_makes_no_topic_and_a_discarded_one_does_for_its_number(desk) -> None:
    """A copy of the discarded one gets the same answer: the topic is where that is remembered."""
    refused = [
        desk.put("new", b"a", first=1, required=True),
        desk.put("new", b"a", first=2),
        desk.put("new", b"a", first=0),
        desk.put("new", b"a", first=1, topic_id=99),
        desk.put("no/*", b"a", first=1),
    ]
    assert [each.code for each in refused] == [
        *("unwanted", "sequence_gap", "malformed", "topic_changed", "name_invalid"),
    ]
    assert desk.shard.by_name == {}
    first = desk.put("new", b"a", first=1)
    assert (first.stored, first.duplicate) == (False, False)
    again = desk.put("new", b"a", first=1, topic_id=first.topic_id)
    assert (again.stored, again.duplicate) == (False, True)
    assert list(desk.shard.by_name) == ["new"]


# ------------------------------------------------------------------ the put before


def after(desk, moment: int, first: int, payload: bytes):
    put, body = desk.putting("orders", payload, first=first)
    return desk.ask(structs.replace(put, after=moment), body)


def test_a_put_goes_on_only_from_the_put_that_its_producer_has_a_receipt_for(desk) -> None:
    desk.subscription("orders")
    first = desk.put("orders", b"a").moment
    assert refusal(after(desk, first + 1, 2, b"b")) == "outdated"
    second = after(desk, first, 2, b"b")
    assert second == accepted(1, at=2)
    assert refusal(after(desk, first + 1, 2, b"b")) == "outdated", "a repeat as well"
    assert after(desk, first, 2, b"b") == accepted(1, duplicate=True, at=2)
    assert after(desk, 0, 3, b"c") == accepted(2, at=3), "nothing is said"
    assert after(desk, 5, 1, b"a") == accepted(0, duplicate=True), "too long ago to say"


def test_a_resume_tells_when_the_last_puts_were_stored(desk) -> None:
    desk.subscription("orders")
    assert moments(desk.resume("orders")) == (0, 0)
    first = desk.put("orders", b"a").moment
    assert moments(desk.resume("orders")) == (first, 0)
    second = desk.put("orders", b"b").moment
    desk.sync()
    assert moments(desk.resume("orders")) == (second, first)
    assert moments(desk.crash().resume("orders")) == (second, first)
    restored = Shard(7)
    for blob in snapshot.capture(desk.shard):
        snapshot.restore(restored, blob)
    entry = restored.by_name["orders"].producers[PRODUCER]
    assert (entry.seen, entry.seen_before) == (second, first)


def moments(reply: Resumed) -> tuple[int, int]:
    return reply.moment, reply.moment_before
