"""Owners that are bound: their name is taken, and their numbers go on from the last."""

# pyright: reportArgumentType=false
# Names and numbers are written plainly here.

import msgspec
import pytest

from oncemq.broker.state.shard import Shard
from oncemq.protocol.commit_records import (
    Committed,
    ContentsCommitted,
    OwnerBound,
    OwnerBoundAlone,
)
from oncemq.protocol.names import Serial
from oncemq.protocol.records import Retention
from oncemq.protocol.replies import CommitDone, RefusedReply


@pytest.fixture
def sink(desk):
    """A desk with a topic to publish to."""
    desk.create("a", Retention(forever=True))
    return desk


def publish(
    desk,
    number: int,
    bond: str = "query-1",
    *,
    follows: bool = True,
    owner: str = "lake",
    contents: int = 0,
):
    """Stage one message and commit it; the answer."""
    stage = b"%s%d%d" % (bond.encode()[-2:], number, len(desk.records))
    desk.stage(stage, b"x")
    commit = desk.committing(("a", stage, 0, 1), owner=owner, number=number)
    return desk.ask(msgspec.structs.replace(commit, bond=bond, follows=follows, contents=contents))


def code(answer) -> str:
    assert isinstance(answer, RefusedReply), answer
    return answer.code


def end(desk) -> int:
    return desk.shard.by_name["a"].end


def test_the_first_commit_with_a_bond_takes_the_name(sink) -> None:
    assert isinstance(publish(sink, 1), CommitDone)
    kinds = [type(record) for record in sink.records if isinstance(record, OwnerBound | Committed)]
    assert kinds == [OwnerBoundAlone, Committed]
    assert isinstance(publish(sink, 2), CommitDone)
    assert sum(isinstance(record, OwnerBound) for record in sink.records) == 1
    assert end(sink) == 2


def test_another_bond_is_refused_and_told_whose_the_name_is(sink) -> None:
    publish(sink, 1)
    for number in (1, 2):
        answer = publish(sink, number, "query-2")
        assert code(answer) == "owner_bound"
        assert "bound to 'query-1', not to 'query-2'; its last number is 1" in answer.detail
    assert code(publish(sink, 2, "", follows=False)) == "owner_bound"
    assert end(sink) == 1


def test_the_last_number_again_is_already_done(sink) -> None:
    publish(sink, 1)
    publish(sink, 2)
    answer = publish(sink, 2)
    assert isinstance(answer, CommitDone)
    assert (answer.already, [each.first_offset for each in answer.results]) == (True, [1])
    assert end(sink) == 2


@pytest.mark.parametrize("follows", [True, False])
def test_a_number_below_the_last_is_refused(sink, follows: bool) -> None:
    publish(sink, 1)
    publish(sink, 2)
    answer = publish(sink, 1, follows=follows)
    assert code(answer) == "number_misfit"
    assert "has committed number 2, and not 1 after it" in answer.detail


def test_a_gap_is_refused_only_when_numbers_follow(sink) -> None:
    assert code(publish(sink, 2)) == "number_misfit"  # of a name that nobody used
    publish(sink, 1)
    assert code(publish(sink, 3)) == "number_misfit"
    assert isinstance(publish(sink, 3, follows=False), CommitDone)
    assert end(sink) == 2


def test_without_a_bond_nothing_of_it_holds(sink) -> None:
    for number in (5, 3, 9):
        assert isinstance(publish(sink, number, "", follows=False), CommitDone)
    assert code(publish(sink, 10, "query-1")) == "owner_bound"  # the name is used already


def test_a_name_that_was_bound_and_never_used_is_free(sink) -> None:
    """The bond was durable, the commit was not, and the checkpoint was deleted."""
    before = len(sink.records)
    publish(sink, 1)
    bound = next(n for n, each in enumerate(sink.records) if isinstance(each, OwnerBound))
    assert before < bound
    sink.durable = bound + 1
    after = sink.crash()
    assert after.shard.owners.entries["lake"].last_number == 0
    assert isinstance(publish(after, 1, "query-2"), CommitDone)
    assert code(publish(after, 2, "query-1")) == "owner_bound"


def test_a_bond_survives_a_crash_and_a_checkpoint(sink) -> None:
    publish(sink, 1)
    sink.sync()
    after = sink.crash()
    assert code(publish(after, 2, "query-2")) == "owner_bound"
    restored = Shard(7)
    restored.owners.restore(after.shard.owners.capture("lake"))
    assert restored.owners.entries["lake"] == after.shard.owners.entries["lake"]


def test_a_bond_applied_twice_is_applied_once(sink) -> None:
    publish(sink, 1)
    entry = sink.shard.owners.entries["lake"]
    sink.shard.owners.note(OwnerBound("lake", "older", 1), Serial(entry.last_serial))
    assert entry.bond == "query-1"


def test_only_an_owner_that_lasts_is_bound(sink) -> None:
    assert code(publish(sink, 1, owner="_process")) == "malformed"
    assert code(publish(sink, 1, "a\nb")) == "malformed"


def test_a_bond_that_follows_is_one_owners_alone(sink) -> None:
    """A checkpoint that was copied before its first batch was known to be published."""
    publish(sink, 1)
    answer = publish(sink, 1, owner="copy")
    assert code(answer) == "bond_taken"
    assert "'query-1' commits as 'lake', and not as 'copy' too" in answer.detail
    assert code(publish(sink, 2, owner="copy")) == "bond_taken"
    assert isinstance(publish(sink, 2), CommitDone)
    assert end(sink) == 2


def test_owners_that_do_not_follow_may_have_one_bond(sink) -> None:
    """Several writes within foreachBatch."""
    assert isinstance(publish(sink, 1, follows=False), CommitDone)
    assert isinstance(publish(sink, 1, follows=False, owner="other"), CommitDone)


def test_a_bond_of_an_older_log_becomes_its_owners_alone(sink) -> None:
    publish(sink, 1, follows=False)
    publish(sink, 1, follows=False, owner="copy")
    assert isinstance(publish(sink, 2), CommitDone)  # the first that follows
    assert code(publish(sink, 2, owner="copy")) == "bond_taken"


def test_a_bond_that_was_never_committed_under_is_free(sink) -> None:
    publish(sink, 1, owner="first")
    bound = next(n for n, each in enumerate(sink.records) if isinstance(each, OwnerBound))
    sink.durable = bound + 1
    after = sink.crash()
    assert isinstance(publish(after, 1, owner="second"), CommitDone)
    assert code(publish(after, 1, owner="first")) == "bond_taken"
    after.sync()
    assert code(publish(after.crash(), 1, owner="first")) == "bond_taken"


def test_other_messages_under_a_known_number_are_refused(sink) -> None:
    assert isinstance(publish(sink, 1, contents=7), CommitDone)
    (record,) = [each for each in sink.records if isinstance(each, Committed)]
    assert isinstance(record, ContentsCommitted)
    answer = publish(sink, 1, contents=8)
    assert code(answer) == "contents_differ"
    assert "has committed number 1 with other messages" in answer.detail
    again = publish(sink, 1, contents=7)
    assert isinstance(again, CommitDone)
    assert again.already
    for unsaid in (publish(sink, 1), publish(sink, 2), publish(sink, 2, contents=9)):
        assert isinstance(unsaid, CommitDone)  # nothing to compare with
    assert end(sink) == 2


def test_what_was_committed_survives_a_crash_and_a_checkpoint(sink) -> None:
    publish(sink, 1, contents=7)
    sink.sync()
    after = sink.crash()
    assert code(publish(after, 1, contents=8)) == "contents_differ"
    state = after.shard.owners.capture("lake")
    restored = Shard(7)
    restored.owners.restore(state)
    assert restored.owners.entries["lake"] == after.shard.owners.entries["lake"]
    older = msgspec.structs.replace(state, contents=(), alone=False)  # a checkpoint from before
    restored.owners.restore(older)
    assert [each.contents for each in restored.owners.entries["lake"].recent] == [0]
