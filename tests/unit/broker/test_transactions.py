"""Stages and commits: all or nothing, once, and never half of it."""

# pyright: reportArgumentType=false
# Names and numbers are written plainly here.

import msgspec
import pytest

from oncemq.broker.state import snapshot
from oncemq.broker.state.owners import RECENT_MAX
from oncemq.broker.state.shard import Shard
from oncemq.broker.state.stages import MARKS_MAX, merged
from oncemq.broker.transactions import commits
from oncemq.protocol.commit_records import Part
from oncemq.protocol.limits import ServerLimits
from oncemq.protocol.names import PIPELINES, Micros, Serial, owner_producer
from oncemq.protocol.records import (
    Committed,
    MessagesLost,
    MessagesStaged,
    OwnersForgotten,
    Retention,
    StageDropped,
)
from oncemq.protocol.replies import CommitDone, Done, RefusedReply, StagedReply
from oncemq.protocol.requests import DropStage, StatusRequest
from oncemq.protocol.step import Deliver
from oncemq.wire import batch

HOUR = 3_600_000_000
DAY = 24 * HOUR
FOREVER = Retention(forever=True)

DAY_MS = 86_400_000


def results(answer) -> tuple[bool, list[tuple[str, int, int]]]:
    assert isinstance(answer, CommitDone), answer
    return answer.already, [(each.topic, each.first_offset, each.count) for each in answer.results]


def code(answer) -> str:
    assert isinstance(answer, RefusedReply), answer
    return answer.code


def upkeep(desk, micros: int = 0) -> list:
    desk.now += micros
    return [write.record for write in desk.note(desk.broker.forget_guests(Micros(desk.now))).writes]


def settle(desk, topic: str, cursor: int, *, client: str) -> None:
    subscription = desk.shard.by_name[topic].subscriptions[client].id
    assert desk.settle(desk.settled(topic, subscription, cursor), client=client) == Done(True)


def ends(desk) -> dict[str, tuple[int, int]]:
    return {name: (topic.end, topic.visible) for name, topic in desk.shard.by_name.items()}


@pytest.fixture
def two(desk):
    """Topics that somebody wants."""
    desk.create("a", FOREVER)
    desk.create("b", FOREVER)
    return desk


# ------------------------------------------------------------------ stages


def test_what_is_staged_is_in_no_topic(two) -> None:
    assert two.stage(b"s", b"1", b"2") == StagedReply(2, False, 0, DAY_MS)
    two.sync()
    assert ends(two) == {"a": (0, 0), "b": (0, 0)}


def test_a_staged_batch_repeated_is_stored_once(two) -> None:
    two.stage(b"s", b"1", b"2")
    assert two.stage(b"s", b"1", b"2", first=1) == StagedReply(2, True, 0, DAY_MS)
    assert two.stage(b"s", b"3") == StagedReply(3, False, 0, DAY_MS)


def test_a_gap_and_another_payload_are_refused(two) -> None:
    two.stage(b"s", b"1")
    assert code(two.stage(b"s", b"3", first=3)) == "sequence_gap"
    assert code(two.stage(b"s", b"x", first=1)) == "payload_conflict"
    assert code(two.stage(b"t", b"2", first=2)) == "stage_unknown"
    assert code(two.stage(b"s", b"2", first=0)) == "malformed"


def test_a_stage_that_is_silent_for_its_time_is_given_up_and_each_put_renews(two) -> None:
    two.stage(b"s", b"1")
    two.stage(b"t", b"1")
    assert upkeep(two, DAY - HOUR) == []
    two.stage(b"s", b"2")
    dropped = upkeep(two, 2 * HOUR)
    assert [type(record) for record in dropped] == [StageDropped]
    assert code(two.commit(("a", b"t", 0, 1))) == "stage_unknown"
    assert results(two.commit(("a", b"s", 0, 2))) == (False, [("a", 0, 2)])


def test_a_stage_given_up_cannot_be_published(two) -> None:
    two.stage(b"s", b"1")
    drop = DropStage("publisher", two.epoch("publisher"), b"s".ljust(16, b"."))
    assert two.ask(drop) == Done(True)
    assert two.ask(drop) == Done(False)
    assert code(two.commit(("a", b"s", 0, 1))) == "stage_unknown"
    assert len(two.shard.stages) == 1
    upkeep(two)
    assert len(two.shard.stages) == 0


def test_a_server_full_of_open_stages_says_so(make_desk) -> None:
    desk = make_desk(ServerLimits(stages_max=2))
    desk.stage(b"s", b"1")
    desk.stage(b"t", b"1")
    refused = desk.stage(b"u", b"1")
    assert (code(refused), "stages_max" in refused.detail) == ("limit", True)
    desk.commit(("nobody", b"s", 0, 1))
    desk.sequences.clear()
    assert desk.stage(b"u", b"1") == StagedReply(1, False, 0, DAY_MS)


# ------------------------------------------------------------------ commits


def test_a_commit_publishes_stages_in_the_order_named(two) -> None:
    two.stage(b"s", b"1", b"2")
    two.stage(b"t", b"3")
    answer = two.commit(("a", b"t", 0, 1), ("a", b"s", 0, 2), ("b", b"s", 0, 2))
    assert results(answer) == (False, [("a", 0, 3), ("b", 0, 2)])
    assert ends(two) == {"a": (3, 0), "b": (2, 0)}
    two.sync()
    assert ends(two) == {"a": (3, 3), "b": (2, 2)}
    (fact,) = [record for record in two.records if isinstance(record, Committed)]
    assert [(part.first_offset, part.count, part.first_sequence) for part in fact.parts] == [
        (0, 1, 1),
        (1, 2, 2),
        (0, 2, 1),
    ]


def test_a_commit_is_answered_only_when_it_is_durable(two) -> None:
    two.stage(b"s", b"1")
    owed = two.owed(two.committing(("a", b"s", 0, 1)))
    assert owed.after == two.shard.serial


def test_a_commit_repeated_says_already_and_adds_nothing(two) -> None:
    two.stage(b"s", b"1")
    first = two.commit(("a", b"s", 0, 1), number=5)
    again = two.commit(("a", b"s", 0, 1), number=5)
    assert results(again) == (True, results(first)[1])
    assert ends(two)["a"] == (1, 0)


def test_a_number_that_was_passed_over_is_used_too(two) -> None:
    two.stage(b"s", b"1")
    two.commit(number=9)
    assert results(two.commit(("a", b"s", 0, 1), number=8)) == (True, [])
    assert ends(two)["a"] == (0, 0)
    done = two.commit(("a", b"s", 0, 1), number=10)
    assert (results(done), done.before, done.last) == ((False, [("a", 0, 1)]), 9, 10)
    assert two.commit(number=8).last == 10


def test_an_old_answer_is_forgotten_and_the_number_is_not(two) -> None:
    for number in range(1, 8):
        two.stage(b"s%d" % number, b"x")
        two.commit(("a", b"s%d" % number, 0, 1), number=number)
    assert results(two.commit(number=7)) == (True, [("a", 6, 1)])
    assert results(two.commit(number=1)) == (True, [])
    assert ends(two)["a"] == (7, 0)


def test_an_answer_names_the_commit_before_however_often_it_is_asked_for(two) -> None:
    assert two.commit(number=3).before == 0
    assert two.commit(number=5).before == 3
    assert two.commit(number=6).before == 5
    assert two.commit(number=5).before == 3
    assert two.commit(number=4).before == 3


def test_owners_do_not_share_numbers(two) -> None:
    two.stage(b"s", b"1")
    two.stage(b"t", b"2")
    assert results(two.commit(("a", b"s", 0, 1), owner="x")) == (False, [("a", 0, 1)])
    assert results(two.commit(("a", b"t", 0, 1), owner="y")) == (False, [("a", 1, 1)])


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ([("a", b"s", 0, 1), ("a", b"unknown", 0, 1)], "stage_unknown"),
        ([("a", b"s", 0, 3)], "stage_incomplete"),
        ([("a", b"s", 1, 1), ("a", b"s", 0, 1)], "stage_published"),
        ([("a", b"s", 0, 0)], "stage_published"),
        ([("a", b"s", 0, 1), ("_system", b"s", 0, 1)], "name_invalid"),
        ([("new", b"s", 0, 1), ("\n", b"s", 0, 1)], "name_invalid"),
    ],
)
def test_a_commit_that_names_what_is_not_there_changes_nothing(two, pieces, expected) -> None:
    two.stage(b"s", b"1", b"2")
    before = list(two.records)
    assert code(two.commit(*pieces)) == expected
    assert two.records == before
    assert results(two.commit(("a", b"s", 0, 2))) == (False, [("a", 0, 2)])


def test_a_stage_is_published_once(two) -> None:
    two.stage(b"s", b"1")
    two.commit(("a", b"s", 0, 1), number=1)
    assert code(two.commit(("a", b"s", 0, 1), number=2)) == "stage_unknown"
    two.stage(b"t", b"1")
    two.commit(("a", b"t", 0, 1), number=3, closing=False)
    assert code(two.commit(("b", b"t", 0, 1), number=4)) == "stage_published"


def test_a_stage_that_is_kept_open_gives_range_after_range(two) -> None:
    two.stage(b"s", b"1", b"2")
    two.commit(("a", b"s", 0, 1), ("b", b"s", 1, 1), number=1, closing=False)
    two.stage(b"s", b"given up", b"3")
    assert results(two.commit(("a", b"s", 3, 1), number=2, closing=False)) == (
        False,
        [("a", 1, 1)],
    )
    assert code(two.commit(("a", b"s", 2, 1), number=3)) == "stage_published"


def test_messages_nobody_wants_are_not_kept_and_their_numbers_advance(desk) -> None:
    desk.stage(b"s", b"1", b"2")
    assert results(desk.commit(("a", b"s", 0, 2), number=1)) == (False, [("a", -1, 2)])
    assert desk.shard.by_name["a"].end == 0
    desk.subscribe("a")
    desk.stage(b"t", b"3")
    assert results(desk.commit(("a", b"t", 0, 1), number=2)) == (False, [("a", 0, 1)])
    numbers = desk.shard.by_name["a"].producers[owner_producer("job")]
    assert numbers.last_sequence == 3


@pytest.mark.parametrize(
    "how", [{"owner": ""}, {"owner": "x" * 256}, {"number": 0}, {"number": (1 << 62) + 1}]
)
def test_an_owner_or_number_that_cannot_be_is_refused(two, how) -> None:
    how = {"owner": "job", "number": 1} | how
    assert code(two.commit(**how)) == "malformed"


@pytest.mark.parametrize("how", [{"owner": "x" * 255}, {"number": 1 << 62}])
def test_the_longest_owner_and_the_highest_number_are_accepted(two, how) -> None:
    assert results(two.commit(**({"owner": "job", "number": 1} | how))) == (False, [])


def test_an_owner_of_a_process_must_say_so(two) -> None:
    commit = msgspec.structs.replace(two.committing(owner="_p"), lasting=True)
    assert code(two.ask(commit)) == "malformed"


def test_limits_of_commits(make_desk) -> None:
    desk = make_desk(ServerLimits(commit_pieces_max=1, owners_max=1))
    desk.stage(b"s", b"1", b"2")
    assert code(desk.commit(("a", b"s", 0, 1), ("a", b"s", 1, 1))) == "too_large"
    desk.commit(owner="one")
    assert code(desk.commit(owner="two")) == "limit"
    assert results(desk.commit(owner="one", number=2)) == (False, [])


def test_topics_made_by_a_commit_count_against_the_limit(make_desk) -> None:
    desk = make_desk(ServerLimits(topics_max=1))
    desk.stage(b"s", b"1")
    assert code(desk.commit(("a", b"s", 0, 1), ("b", b"s", 0, 1))) == "limit"
    assert desk.shard.by_name == {}


def test_a_commit_to_topics_that_are_there_needs_no_room_for_new_ones(make_desk) -> None:
    desk = make_desk(ServerLimits(topics_max=2))
    desk.create("a")
    desk.create(PIPELINES)  # the system's: a commit may not make it, but put to it
    desk.stage(b"s", b"1", b"2")
    done = desk.commit(("a", b"s", 0, 1), (PIPELINES, b"s", 1, 1))
    assert isinstance(done, CommitDone), done


def test_two_pieces_for_one_new_topic_need_room_for_one(make_desk) -> None:
    desk = make_desk(ServerLimits(topics_max=1))
    desk.stage(b"s", b"1", b"2")
    done = desk.commit(("a", b"s", 0, 1), ("a", b"s", 1, 1))
    assert isinstance(done, CommitDone), done


def test_a_guest_that_commits_keeps_no_silent_one_behind_it_remembered(desk) -> None:
    for owner in ("_busy", "_silent"):
        desk.commit(owner=owner)
    desk.now += DAY - 1
    desk.commit(owner="_busy", number=2)
    desk.now += 10
    desk.note(desk.broker.forget_guests(Micros(desk.now)))
    assert list(desk.shard.owners.entries) == ["_busy"]


def test_a_commit_that_a_checkpoint_holds_is_not_applied_again(desk) -> None:
    """Its first topic was deleted before the checkpoint was taken, the other one has it."""
    desk.subscribe("kept")
    desk.subscribe("gone")
    desk.stage(b"s", b"1", b"2")
    desk.commit(("gone", b"s", 0, 1), ("kept", b"s", 1, 1))
    desk.put("kept", b"later")
    desk.delete("gone")
    after = Shard(7)
    for blob in snapshot.capture(desk.shard):
        snapshot.restore(after, blob)
    after.checkpointed = Serial(len(desk.records))
    for serial, record in enumerate(desk.records, 1):
        after.apply(record, Serial(serial))
    assert after.by_name["kept"].end == desk.shard.by_name["kept"].end == 2
    assert sorted(snapshot.capture(after)) == sorted(snapshot.capture(desk.shard))


def test_what_is_staged_has_a_limit_in_bytes(make_desk) -> None:
    desk = make_desk(ServerLimits(stage_bytes_max=150))
    size = len(batch.encode_payloads([b"x" * 90]))
    desk.stage(b"s", b"x" * 90)
    desk.stage(b"t", b"x" * 90)
    assert desk.shard.stages.open_bytes == 2 * size
    for stage in (b"s", b"u"):
        refused = desk.stage(stage, b"x", first=2 if stage == b"s" else 1)
        assert (code(refused), "stage_bytes_max" in refused.detail) == ("limit", True)
    desk.commit(("a", b"s", 0, 1))
    assert desk.shard.stages.open_bytes == size
    assert isinstance(desk.stage(b"u", b"x"), StagedReply)
    after = Shard(7)
    for blob in snapshot.capture(desk.shard):
        snapshot.restore(after, blob)
    assert after.stages.open_bytes == desk.shard.stages.open_bytes > size


# ------------------------------------------------------------------ inputs and fencing


def test_a_commit_settles_its_inputs_and_puts_its_outputs_together(two) -> None:
    two.subscribe("in", "publisher")
    two.put("in", b"x", b"y")
    two.stage(b"s", b"1")
    two.commit(("a", b"s", 0, 1), inputs=(("in", 0, 2),))
    assert two.shard.by_name["in"].subscriptions["publisher"].cursor == 2
    assert ends(two)["a"] == (1, 0)
    after = two.crash()  # nothing of it was durable
    assert "in" not in after.shard.by_name


def test_inputs_that_were_settled_meanwhile_refuse_the_commit(two) -> None:
    two.subscribe("in", "publisher")
    two.put("in", b"x", b"y")
    two.stage(b"s", b"1")
    late = two.committing(("a", b"s", 0, 1), number=1, inputs=(("in", 0, 1),))
    settle(two, "in", 1, client="publisher")
    assert code(two.ask(late)) == "inputs_settled"
    assert ends(two)["a"] == (0, 0)


def test_inputs_of_a_subscription_that_ended_refuse_the_commit(two) -> None:
    two.subscribe("in", "publisher")
    two.put("in", b"x")
    commit = two.committing(inputs=(("in", 0, 1),))
    two.unsubscribe("in", "publisher")
    assert code(two.ask(commit)) == "not_subscribed"
    two.subscribe("in", "publisher")
    assert code(two.ask(commit)) == "not_subscribed"
    two.delete("in")
    assert code(two.ask(commit)) == "no_such_topic"


def test_inputs_beyond_the_end_refuse_the_commit(two) -> None:
    two.subscribe("in", "publisher")
    two.put("in", b"x")
    assert code(two.commit(inputs=(("in", 0, 2),))) == "cursor_beyond_end"
    assert code(two.commit(inputs=(("in", 1, 0),))) == "cursor_beyond_end"


def test_a_zombies_transaction_does_nothing(two) -> None:
    two.stage(b"s", b"1")
    commit = two.committing(("a", b"s", 0, 1))
    two.hello("publisher", last=two.epochs["publisher"])
    assert code(two.ask(commit)) == "fenced"
    assert ends(two)["a"] == (0, 0)


# ------------------------------------------------------------------ readers


def test_a_waiting_get_sees_every_topic_of_a_commit(two) -> None:
    two.subscribe("a", "reader")
    two.subscribe("b", "reader")
    two.step(two.getting("", "reader", wait=5))
    two.stage(b"s", b"1")
    two.sync()
    two.commit(("a", b"s", 0, 1), ("b", b"s", 0, 1))
    (owed,) = two.sync()
    assert isinstance(owed.answer, Deliver)
    assert [(span.topic, span.start, span.end) for span in owed.answer.spans] == [
        ("a", 0, 1),
        ("b", 0, 1),
    ]


# ------------------------------------------------------------------ what is remembered, and freed


def test_a_commit_is_remembered_across_a_crash_and_only_if_it_was_durable(two) -> None:
    two.stage(b"s", b"1")
    two.stage(b"t", b"2")
    two.commit(("a", b"s", 0, 1), number=1)
    two.sync()
    two.commit(("a", b"t", 0, 1), number=2)
    after = two.crash()
    assert results(after.commit(("a", b"s", 0, 1), number=1)) == (True, [("a", 0, 1)])
    assert results(after.commit(("a", b"t", 0, 1), number=2)) == (False, [("a", 1, 1)])


def test_the_last_answers_of_an_owner_are_kept_word_for_word(two) -> None:
    for number in range(1, RECENT_MAX + 2):
        two.stage(b"s%d" % number, b"x")
        two.commit(("a", b"s%d" % number, 0, 1), number=number)
    answers = [results(two.commit(number=number)) for number in range(1, RECENT_MAX + 2)]
    kept = [(True, [("a", number - 1, 1)]) for number in range(2, RECENT_MAX + 2)]
    assert answers == [(True, []), *kept]


def test_a_lasting_owner_is_remembered_for_good_and_one_of_a_process_for_a_day(two) -> None:
    two.commit(owner="job", number=3)
    two.commit(owner="_process", number=3)
    assert upkeep(two, DAY - HOUR) == []
    assert upkeep(two, 2 * HOUR) == [OwnersForgotten(("_process",))]
    assert results(two.commit(owner="job", number=3))[0] is True
    assert results(two.commit(owner="_process", number=3))[0] is False


def live(desk, name: bytes) -> tuple[int, bool]:
    """From where a stage lives, and whether it does at all."""
    (stage,) = [
        each for each in desk.shard.stages.by_id.values() if each.name.startswith(name + b".")
    ]
    low = stage.low(desk.shard.low_of)
    return low, low < stage.end


def test_a_stage_lives_while_a_topic_keeps_some_of_it(desk) -> None:
    desk.subscribe("a", "reader")
    desk.subscribe("b", "reader")
    desk.stage(b"s", b"1", b"2", b"3")
    assert live(desk, b"s") == (0, True)
    desk.commit(("a", b"s", 0, 2), ("b", b"s", 1, 2))
    settle(desk, "a", 2, client="reader")
    upkeep(desk)
    assert live(desk, b"s") == (1, True)
    settle(desk, "b", 2, client="reader")
    assert live(desk, b"s") == (3, False)
    upkeep(desk)
    assert len(desk.shard.stages) == 0


def test_an_open_stage_keeps_only_what_may_still_be_published(desk) -> None:
    desk.subscribe("a", "reader")
    desk.stage(b"s", b"1", b"2")
    desk.commit(("a", b"s", 0, 1), closing=False)
    settle(desk, "a", 1, client="reader")
    assert live(desk, b"s") == (1, True)


def test_a_deleted_topic_releases_its_stages(desk) -> None:
    desk.subscribe("a", "reader")
    desk.stage(b"s", b"1")
    desk.commit(("a", b"s", 0, 1))
    upkeep(desk)
    assert len(desk.shard.stages) == 1
    desk.delete("a")
    upkeep(desk)
    assert len(desk.shard.stages) == 0


def test_what_a_stage_remembers_of_its_parts_is_bounded_and_never_too_little(desk) -> None:
    desk.subscribe("a", "reader")
    for number in range(1, 10 * MARKS_MAX):
        desk.stage(b"s", b"x")
        desk.put("a", b"between")  # so that the topic's offsets and the stage's drift apart
        desk.commit(("a", b"s", number - 1, 1), number=number, closing=False)
    (stage,) = desk.shard.stages.by_id.values()
    (share,) = stage.shares.values()
    assert len(share.offsets) <= MARKS_MAX
    for settled in range(1, desk.shard.by_name["a"].end, 7):
        settle(desk, "a", settled, client="reader")
        needed = settled // 2  # the part at or after this offset
        assert needed - 20 < stage.low(desk.shard.low_of) <= needed


def test_stages_and_owners_are_reported(two) -> None:
    two.stage(b"s", b"1")
    two.stage(b"t", b"1")
    two.commit(("a", b"s", 0, 1))
    facts = two.ask(StatusRequest()).facts
    assert (facts["stages"], facts["owners"], facts["committed"]) == (2, 1, 1)


def test_limits_of_a_stage(two, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits, "SHARES_MAX", 1)
    monkeypatch.setattr(commits, "STAGED_MAX", 4)
    two.stage(b"s", b"1", b"2")
    assert code(two.commit(("a", b"s", 0, 1), ("b", b"s", 0, 1))) == "limit"
    assert code(two.stage(b"s", b"3", b"4", b"5")) == "limit"
    assert results(two.commit(("a", b"s", 0, 2))) == (False, [("a", 0, 2)])


def test_what_a_commit_puts_to_a_topic_that_nobody_wants_is_counted_as_discarded(desk) -> None:
    desk.stage(b"s", b"1", b"2")
    desk.commit(("nobody", b"s", 0, 2))
    assert desk.ask(StatusRequest()).facts["discarded"] == 2


def test_a_staged_batch_that_is_replayed_over_a_checkpoint_is_known_and_one_of_no_stage_is_not(
    two,
) -> None:
    two.stage(b"s", b"1")
    staged = next(each for each in two.records if isinstance(each, MessagesStaged))
    stages = two.shard.stages
    (stage,) = stages.by_id.values()
    before = stage.end, stage.tail_bytes, stage.last_serial
    assert stages.stored(staged, stage.last_serial) is True
    assert (stage.end, stage.tail_bytes, stage.last_serial) == before
    unknown = msgspec.structs.replace(staged, topic_id=staged.topic_id + 999)
    assert stages.stored(unknown, Serial(stage.last_serial + 1)) is False


def part(first: int, count: int, place: int, *, topic: int = 1, stage: int = 9) -> Part:
    """Messages of a topic from `first` on, that lie in a stage from `place` on."""
    return Part(topic, first, count, 1, stage, place, 100 * count)


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        (part(5, 2, 0), part(7, 3, 2), part(5, 5, 0)),
        (part(5, 2, 0), part(8, 3, 2), None),  # a gap in the topic
        (part(5, 2, 0), part(3, 3, 2), None),
        (part(5, 2, 0), part(7, 3, 3), None),  # a gap in the stage
        (part(5, 2, 0), part(7, 3, 2, topic=2), None),
        (part(5, 2, 0), part(7, 3, 2, stage=8), None),
        (part(-1, 2, 0), part(-1, 3, 2), part(-1, 5, 0)),  # nobody wants them
        (part(-1, 2, 0), part(1, 3, 2), None),
        (part(-1, 2, 0), part(-1, 3, 3), None),
        (part(5, 2, 0), part(-1, 3, 2), None),
    ],
)
def test_parts_that_go_on_where_the_one_before_ended_are_one(
    one: Part, other: Part, both: Part | None
) -> None:
    assert merged([one, other]) == ([both] if both else [one, other])
    assert merged([]) == []


def test_a_stage_that_lost_what_is_not_published_yet_is_given_up_and_no_other(two) -> None:
    two.stage(b"s", b"1", b"2", b"3", b"4")
    two.commit(("a", b"s", 0, 2), closing=False)
    (stage,) = two.shard.stages.by_id.values()
    two.note(two.broker.lose([MessagesLost(stage.id, 0, 2)]))
    assert (stage.is_open, stage.last_serial) == (True, two.shard.serial)
    two.commit(("a", b"s", 2, 1), number=2, closing=False)
    two.note(two.broker.lose([MessagesLost(stage.id, 3, 4)]))
    assert (stage.is_open, stage.last_serial) == (False, two.shard.serial)
    assert stage.lost.above(0) == ((0, 2), (3, 4))
    assert code(two.commit(("a", b"s", 3, 1), number=3)) == "stage_unknown"
    assert two.shard.by_name["a"].end == 3
