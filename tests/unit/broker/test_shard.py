"""The fold: whatever is replayed from wherever, the state is the one that was live."""

# pyright: reportArgumentType=false
# Names and numbers are written plainly here.

import pytest

from oncemq.broker.state import snapshot
from oncemq.broker.state.identities import COUNT_BITS, COUNT_MAX, TAGS_KEPT, Identities
from oncemq.broker.state.shard import Shard
from oncemq.protocol.names import ClientId, Offset, Serial, TopicId
from oncemq.protocol.outbox_records import OutboxOpened
from oncemq.protocol.records import Committed, CursorMoved, EpochBegan, Retention
from oncemq.protocol.requests import ForgetClient, Lease, Start
from oncemq.server.recovery import fold
from tests.harness.replicas import epoch_starts

DAY = 86_400_000_000


def blobs(shard: Shard) -> list[bytes]:
    return sorted(snapshot.capture(shard))


def restored(captured: list[bytes], records, *, begin: int, end: int) -> Shard:
    """A shard from a checkpoint that was begun at `begin` and done at `end`."""
    shard = Shard(7)
    replay = enumerate(records[begin:], start=begin + 1)
    fold(shard, captured, Serial(end), ((Serial(serial), record) for serial, record in replay))
    shard.serial = Serial(len(records))
    shard.recovered()
    return shard


def history(desk) -> None:
    """A little of everything."""
    first = desk.subscription("orders")
    desk.put("orders", b"a", b"b")
    desk.subscribe("orders", "_anonymous-1", Start("earliest"))
    desk.put("orders", b"c", producer=b"guest", lasting=False)
    desk.settle(desk.settled("orders", first, 2))
    desk.create("kept", Retention(keep_ms=1))
    desk.put("kept", b"k")
    desk.configure("kept", Retention(forever=True))
    desk.unsubscribe("orders")
    desk.hello("billing", last=1)
    desk.subscribe("gone")
    desk.delete("gone")
    desk.subscribe("gone")


def test_replaying_every_record_gives_the_live_state(desk) -> None:
    history(desk)
    assert blobs(restored([], desk.records, begin=0, end=0)) == blobs(desk.shard)


def test_the_epochs_of_leaders_are_a_fold_and_in_checkpoints() -> None:
    shard = Shard(7)
    assert shard.leader_epochs.starts == ()
    began = [EpochBegan(1, "a"), EpochBegan(2, "b")]
    for serial, record in zip((4, 9), began, strict=True):
        shard.apply(record, Serial(serial))
    after = restored(list(snapshot.capture(shard)), [], begin=0, end=9)
    assert after.leader_epochs.starts == epoch_starts((1, 4), (2, 9))
    after.apply(began[1], Serial(9))  # replayed though the checkpoint has it
    after.apply(EpochBegan(5, "a"), Serial(12))
    assert after.leader_epochs.starts == epoch_starts((1, 4), (2, 9), (5, 12))


def test_a_checkpoint_alone_gives_the_live_state(desk) -> None:
    history(desk)
    after = restored(list(snapshot.capture(desk.shard)), [], begin=0, end=0)
    after.serial = desk.shard.serial
    assert blobs(after) == blobs(desk.shard)


def test_records_a_checkpoint_already_holds_change_nothing_when_replayed(desk) -> None:
    history(desk)
    captured = list(snapshot.capture(desk.shard))
    records = desk.records
    for begin in range(len(records) + 1):
        after = restored(captured, records, begin=begin, end=len(records))
        assert blobs(after) == blobs(desk.shard), begin


def test_a_topic_deleted_while_the_checkpoint_was_taken_stays_deleted(desk) -> None:
    desk.create("a")
    desk.subscribe("b")
    begin = len(desk.records)
    capture = snapshot.capture(desk.shard)
    captured = [next(capture), next(capture)]  # the client, and topic a
    desk.put("b", b"x")
    desk.delete("b")
    desk.delete("a")
    captured += list(capture)
    after = restored(captured, desk.records, begin=begin, end=len(desk.records))
    assert (after.topics, after.by_name, after.by_client) == ({}, {}, {})


def test_a_name_used_again_while_the_checkpoint_was_taken_means_the_newer_topic(desk) -> None:
    desk.create("a")
    begin = len(desk.records)
    capture = snapshot.capture(desk.shard)
    captured = [next(capture)]
    desk.delete("a")
    desk.subscribe("a")
    captured += list(capture)
    after = restored(captured, desk.records, begin=begin, end=len(desk.records))
    assert blobs(after) == blobs(desk.shard)
    assert after.by_name["a"].id == desk.shard.by_name["a"].id


def test_identities_are_not_given_twice_even_when_their_topics_are_gone(desk) -> None:
    desk.create("a")
    last = desk.subscription("a")
    desk.delete("a")
    after = restored(list(snapshot.capture(desk.shard)), [], begin=0, end=0)
    assert after.next_identity() == last + 1
    assert restored([], desk.records, begin=0, end=0).next_identity() == last + 1


def test_timestamps_go_on_after_a_restore(desk) -> None:
    desk.subscribe("a")
    desk.put("a", b"x")
    after = restored(list(snapshot.capture(desk.shard)), [], begin=0, end=0)
    assert after.next_timestamp(0) == desk.shard.last_timestamp + 1


def test_identities_of_another_data_directory_are_no_concern_of_this_one() -> None:
    shard = Shard(8)
    shard.seen_identity((7 << 32) | 99)
    assert shard.next_identity() == (8 << 32) | 1


def test_what_stands_for_a_clients_subscriptions_changes_also_by_what_a_restart_reads(
    desk,
) -> None:
    """A listener that did not hear of it in time hears of it from the next server."""
    desk.subscribe("a")
    captured = list(snapshot.capture(desk.shard))
    begin = len(desk.records)
    before = restored(captured, desk.records[:begin], begin=begin, end=begin)
    desk.subscribe("b")
    after = restored(captured, desk.records, begin=begin, end=len(desk.records))
    assert after.change_of(ClientId("billing")) != before.change_of(ClientId("billing"))


def test_everything_recovered_is_visible(desk) -> None:
    desk.subscribe("orders")
    desk.put("orders", b"a")
    after = restored([], desk.records, begin=0, end=0)
    assert after.by_name["orders"].visible == 1


def test_the_epochs_of_forgotten_ids_are_known_after_a_restore(desk) -> None:
    """Else a new process with such an id could be granted one that an old process still has."""
    desk.hello("billing", nonce=1)
    desk.hello("billing", last=1)
    desk.ask(ForgetClient(ClientId("billing")))
    after = restored(list(snapshot.capture(desk.shard)), [], begin=0, end=0)
    assert after.clients.forgotten == desk.shard.clients.forgotten == 2


def test_guests_are_the_same_after_a_restore(desk) -> None:
    history(desk)
    after = restored(list(snapshot.capture(desk.shard)), [], begin=0, end=0)
    assert list(after.guests.items()) == list(desk.shard.guests.items())


def test_owners_are_forgotten_in_the_same_order_after_a_restore(desk) -> None:
    for owner, number in (("_busy", 1), ("_silent", 1), ("_busy", 2)):
        desk.now += 1
        desk.commit(owner=owner, number=number)
    assert list(desk.shard.owners.guests) == ["_silent", "_busy"]
    after = restored(list(snapshot.capture(desk.shard)), [], begin=0, end=0)
    assert list(after.owners.guests) == ["_silent", "_busy"]
    silent = after.owners.silent_since(after.owners.entries["_silent"].seen, 9)
    assert silent == ("_silent",)


def test_silent_stages_are_given_up_in_the_same_order_after_a_restore(desk) -> None:
    for stage in (b"busy", b"silent", b"busy"):
        desk.now += 1
        desk.stage(stage, b"x")
    after = restored(list(snapshot.capture(desk.shard)), [], begin=0, end=0)
    for stages in (desk.shard.stages, after.stages):
        silent, busy = stages.silent_since(desk.shard.last_timestamp, 9)
        assert (silent.name.rstrip(b"."), busy.name.rstrip(b".")) == (b"silent", b"busy")
        assert stages.silent_since(silent.numbers.seen, 9) == [silent]


def test_what_is_put_after_a_commit_is_later_though_the_clock_went_back(desk) -> None:
    desk.subscribe("orders")
    desk.stage(b"s", b"1")
    desk.now += DAY
    desk.commit(("orders", b"s", 0, 1))
    (committed,) = (each for each in desk.records if isinstance(each, Committed))
    desk.sync()
    for server in (desk, desk.crash()):
        server.now = 1
        server.put("orders", b"2", first=1)
        stored = server.records[-1]
        assert stored.runs[0].timestamp == committed.timestamp + 1


TIMED = {
    "topic": lambda desk: desk.create("new"),
    "put": lambda desk: desk.put("kept", b"x"),
    "put and discarded": lambda desk: desk.put("unwanted", b"x"),
    "key": lambda desk: desk.put_keyed("kept", "key", b"x"),
    "key and discarded": lambda desk: desk.put_keyed("unwanted", "key", b"x"),
    "stage": lambda desk: desk.stage(b"new", b"x"),
    "staged": lambda desk: desk.stage(b"old", b"x"),
    "commit": lambda desk: desk.commit(("kept", b"old", 0, 1)),
    "commit of nothing": lambda desk: desk.commit(),
    "lease": lambda desk: desk.ask(Lease("billing", desk.epoch("billing"), 3_600_000)),
    "clock": lambda desk: desk.note(desk.broker.note_time(desk.now)),
    "generation": lambda desk: desk.note(desk.broker.begin_generation(9, desk.now)),
}


@pytest.mark.parametrize("what", TIMED)
def test_what_has_a_timestamp_makes_all_that_follows_later(desk, what: str) -> None:
    desk.subscribe("kept")
    desk.create("unwanted")
    desk.stage(b"old", b"1")
    begin, before = len(desk.records), desk.shard.last_timestamp
    desk.now += DAY
    TIMED[what](desk)
    assert len(desk.records) > begin
    assert desk.shard.last_timestamp >= desk.now > before + 1
    replayed = restored([], desk.records, begin=0, end=0)
    assert replayed.last_timestamp == desk.shard.last_timestamp


def test_the_newest_generations_numbers_are_told_apart_after_a_restore() -> None:
    identities = Identities(tag=1_000)
    for tag in range(TAGS_KEPT + 6):
        identities.seen(tag << COUNT_BITS | tag + 1)
    identities.seen(1_000 << COUNT_BITS | 5)
    identities.seen(1_000 << COUNT_BITS | 4)
    kept = [(tag, tag + 1) for tag in range(7, TAGS_KEPT + 6)]
    assert identities.capture() == (*kept, (1_000, 5))
    after = Identities(tag=1_000)
    after.restore(identities.capture(), 0)
    assert (after.given, after.next()) == (5, 1_000 << COUNT_BITS | 6)
    given = [tag << COUNT_BITS | tag + 1 for tag in (6, 7, TAGS_KEPT + 5)]
    assert [after.is_lost(each) for each in given] == [True, False, False]
    assert [after.is_lost(each + 1) for each in given] == [True, True, True]


def test_identities_that_were_never_given_are_lost() -> None:
    identities = Identities(tag=7)
    assert (identities.given, identities.capture(), identities.next()) == (
        0,
        ((7, 0),),
        7 << 32 | 1,
    )
    assert [identities.is_lost(tag << 32 | 1) for tag in (6, 7)] == [True, True]
    identities.seen(7 << 32)
    identities.restore(((6, 0), (7, 0)), 0)
    assert identities.counts == {6: 0, 7: 0}
    assert (COUNT_MAX, identities.has(COUNT_MAX), identities.has(COUNT_MAX + 1)) == (
        0xFFFF_FFFF, True, False,
    )  # fmt: skip


def test_owners_forgotten_before_they_committed_again_are_remembered_after_a_replay(desk) -> None:
    for owner in ("_again", "_gone"):
        desk.commit(owner=owner)
    desk.now += 2 * DAY
    desk.note(desk.broker.forget_guests(desk.now))
    assert desk.shard.owners.entries == {}
    assert desk.shard.owners.silent_since(desk.now, 9) == ()
    desk.commit(owner="_again", number=5)
    captured = list(snapshot.capture(desk.shard))
    for begin in range(len(desk.records) + 1):
        after = restored(captured, desk.records, begin=begin, end=len(desk.records))
        assert blobs(after) == blobs(desk.shard), begin
        assert list(after.owners.guests) == ["_again"]
        assert after.owners.last_number("_again") == 5


def test_a_record_about_no_topic_is_our_mistake() -> None:
    moved = CursorMoved(TopicId(1), ClientId("a"), Offset(1))
    with pytest.raises(AssertionError, match="about no topic"):
        Shard(7).apply(moved, Serial(1))


def test_a_record_of_a_clients_outbox_is_our_mistake(desk) -> None:
    desk.create("a")
    record = OutboxOpened(b"p" * 16)
    with pytest.raises((AssertionError, AttributeError)):
        desk.shard.apply(record, Serial(2))


def test_no_number_is_given_twice_when_they_are_used_up(desk) -> None:
    desk.create("there")
    desk.shard.identities.seen(7 << 32 | COUNT_MAX - 3)
    assert desk.subscribe("a").made  # a topic and a subscription
    refused = [
        desk.create("b"),
        desk.put("b", b"x"),
        desk.subscribe("b"),
        desk.subscribe("b", "shipping"),
        desk.subscribe("*"),
    ]
    assert [answer.code for answer in refused] == ["limit"] * 5
    assert desk.subscribe("there").made  # the last one
    assert desk.stage(b"s", b"x").code == "limit"
    assert desk.subscribe("a", "shipping").code == "limit"
    assert desk.put("a", b"x").stored
    ids = [topic.id for topic in desk.shard.topics.values()]
    ids += [
        each.id for topic in desk.shard.topics.values() for each in topic.subscriptions.values()
    ]
    assert len(set(ids)) == len(ids)
    assert {identity >> 32 for identity in ids} == {7}


@pytest.mark.parametrize("left", [2, 3, 4])
def test_a_topic_is_made_with_numbers_for_all_that_patterns_want_of_it(desk, left) -> None:
    for client in ("billing", "shipping"):
        desk.subscribe("*", client)
    desk.shard.identities.seen(7 << 32 | COUNT_MAX - left)
    made = desk.create("a")
    assert ("a" in desk.shard.by_name) is (left == 4)  # one more is kept for who asks for it
    assert left == 4 or made.code == "limit"
    given = 3 if left == 4 else 0  # the topic and two subscriptions
    assert desk.shard.identities.given == COUNT_MAX - left + given


def test_a_topic_that_nobody_awaits_takes_one_number(desk) -> None:
    desk.create("a")
    desk.create("b")
    assert [topic.id for topic in desk.shard.topics.values()] == [7 << 32 | 1, 7 << 32 | 2]
    assert desk.shard.identities.given == 2


def test_a_commit_makes_no_topic_without_a_number_for_it(desk) -> None:
    desk.stage(b"s", b"x", b"y")
    desk.shard.identities.seen(7 << 32 | COUNT_MAX - 2)
    assert desk.commit(("a", b"s", 0, 1), ("b", b"s", 1, 1)).code == "limit"
    assert "a" not in desk.shard.by_name


def test_a_topic_with_many_producers_is_captured_in_parts_as_of_one_moment(
    desk, monkeypatch
) -> None:
    monkeypatch.setattr("oncemq.broker.state.topic.PRODUCERS_A_VALUE", 3)
    desk.subscribe("orders")
    for number in range(10):
        desk.put("orders", b"a", producer=b"%d" % number, lasting=number % 2 == 0)
    begin = len(desk.records)
    capture = snapshot.capture(desk.shard)
    captured: list[bytes] = []
    for blob in capture:  # each producer puts again, and a new one comes, while it is taken
        captured.append(blob)
        number = len(captured)
        desk.put("orders", b"b", producer=b"%d" % (number % 10), lasting=number % 3 == 0)
        desk.put("orders", b"b", producer=b"new%d" % number)
    assert len(captured) > 4
    after = restored(captured, desk.records, begin=begin, end=len(desk.records))
    assert blobs(after) == blobs(desk.shard)
    assert after.guests == desk.shard.guests
