"""A committer that knows of a commit which the server does not have: another branch of its log."""

# pyright: reportArgumentType=false
# Names and numbers are written plainly here.

import msgspec
import pytest

from oncemq.broker.state.owners import RECENT_MAX
from oncemq.broker.state.shard import Shard
from oncemq.protocol.records import Retention
from oncemq.protocol.replies import CommitDone, RefusedReply


@pytest.fixture
def lake(desk):
    """A desk with a topic to publish to, whose clock goes on."""
    desk.create("a", Retention(forever=True))
    desk.hello("publisher")
    return desk


def publish(desk, number: int, *, after: int = 0, moment: int = 0, **how: object):
    """Stage one message and commit it; the answer."""
    desk.pass_time(1)
    stage = b"%d-%d" % (number, len(desk.records))
    desk.stage(stage, b"x")
    commit = desk.committing(("a", stage, 0, 1), owner="load", number=number)
    commit = msgspec.structs.replace(commit, after=after, after_moment=moment, **how)
    return desk.ask(commit)


def lost(answer) -> str:
    assert isinstance(answer, RefusedReply), answer
    assert answer.code == "history_lost"
    assert "nothing was committed" in answer.detail
    return answer.detail


def parted(desk):
    """Two servers that go on from one state."""
    desk.sync()
    other = desk.crash()
    other.epochs, other.sequences = dict(desk.epochs), dict(desk.sequences)
    other.pass_time(3600)
    return desk, other


def test_a_commit_goes_on_from_the_one_that_its_committer_knows(lake) -> None:
    first = publish(lake, 17)
    second = publish(lake, 30, after=17, moment=first.moment)
    assert isinstance(second, CommitDone)
    assert second.moment > first.moment
    again = publish(lake, 30, after=17, moment=first.moment)
    assert (again.already, again.moment) == (True, second.moment)
    again = publish(lake, 30, after=30, moment=second.moment)
    assert again.already, "the one that is repeated may be the one that is known"


def test_numbers_that_a_restore_lost_are_missed(lake) -> None:
    before, restored = parted(lake)
    moment = publish(before, 17).moment
    detail = lost(publish(restored, 18, after=17, moment=moment))
    assert "'load' has committed number 17" in detail
    assert "its last number is 0" in detail
    lost(publish(restored, 18, after=17))  # its number alone
    assert isinstance(publish(restored, 18), CommitDone), "who says nothing is not told"


@pytest.mark.parametrize("follows", [True, False])
def test_as_many_commits_on_another_branch_are_told_apart(lake, follows: bool) -> None:
    how = {"bond": "query-1", "follows": follows}
    publish(lake, 1, **how)
    here, there = parted(lake)
    moment = publish(here, 2, **how).moment
    publish(there, 2, **how)
    detail = lost(publish(there, 3, after=2, moment=moment, **how))
    assert "recorded another one under that number" in detail
    lost(publish(there, 2, after=2, moment=moment, **how))
    assert isinstance(publish(here, 3, after=2, moment=moment, **how), CommitDone)


def test_a_number_that_was_passed_over_is_missed(lake) -> None:
    here, there = parted(lake)
    moment = publish(here, 5).moment
    publish(there, 4)
    publish(there, 9)
    lost(publish(there, 10, after=5, moment=moment))


def test_of_what_was_long_ago_nobody_can_say(lake) -> None:
    for number in range(1, RECENT_MAX + 2):
        publish(lake, number)
    assert isinstance(publish(lake, 90, after=1, moment=5), CommitDone)
    lost(publish(lake, 91, after=RECENT_MAX + 1, moment=5))


def test_between_the_commits_that_are_known_there_were_no_others(lake) -> None:
    numbers = range(10, 10 * RECENT_MAX + 1, 10)
    for number in numbers:
        publish(lake, number)
    for never in (numbers[0] + 1, numbers[1] - 1, numbers[-1] - 1):
        lost(publish(lake, 90, after=never))
    assert isinstance(publish(lake, 90, after=numbers[0] - 1), CommitDone), "forgotten by now"


def test_moments_survive_a_crash_and_a_checkpoint(lake) -> None:
    publish(lake, 1)
    moment = publish(lake, 2).moment
    lake.sync()
    after = lake.crash()
    assert after.shard.owners.moment("load", 2) == moment
    state = after.shard.owners.capture("load")
    restored = Shard(7)
    restored.owners.restore(state)
    assert restored.owners.entries["load"] == after.shard.owners.entries["load"]
    restored.owners.restore(
        msgspec.structs.replace(state, moments=())
    )  # from before there were any
    assert [each.moment for each in restored.owners.entries["load"].recent] == [0, moment]
