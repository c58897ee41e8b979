"""What every state of a client does when a person accepts what the server lost."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from oncemq.client.admin.accepting import Accepting
from oncemq.client.state.journal import Journal
from oncemq.errors import Fenced
from oncemq.protocol.names import Epoch, Generation, Offset, SubscriptionId
from oncemq.protocol.replies import NO_OFFSET
from oncemq.protocol.structs import Settled
from oncemq.session.handshake import NO_LOG, LogSeen
from simulator.machines.memory_journal import SimulatedJournal

State = Journal | SimulatedJournal  # each is an Accepting, and a Memory to begin with
STATES: dict[str, Callable[[Path], State]] = {
    "sqlite": lambda path: Journal(path, "me"),
    "simulated": lambda path: SimulatedJournal(),
}
HERE = LogSeen(b"log", Generation(2))
ENDED = Settled("c", SubscriptionId(9), Offset(4))


@pytest.fixture(params=list(STATES))
def state(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[State]:
    """Epoch 2, cursors on a and b, and c that has ended; a start under way."""
    made = STATES[request.param](tmp_path)
    made.claim(10)
    made.granted(Epoch(2), 10)
    made.know(LogSeen(b"log", Generation(1)))
    made.settle(
        Epoch(2),
        [
            ("a", SubscriptionId(7), Offset(3)),
            ("b", SubscriptionId(8), Offset(5)),
            ("c", SubscriptionId(9), Offset(4)),
        ],
    )
    made.forget(Epoch(2), [("c", SubscriptionId(9))])
    made.claim(20)
    yield made
    if isinstance(made, Journal):
        made.close()


def test_a_new_one_has_nothing_to_accept(tmp_path: Path) -> None:
    for make in STATES.values():
        new: Accepting = make(tmp_path)
        found = new.log(), new.last_epoch(), new.cursors(), new.ended()
        assert found == (NO_LOG, 0, {}, ())
        if isinstance(new, Journal):
            new.close()


def test_it_says_what_it_knows(state: State) -> None:
    known: Accepting = state
    assert (known.log(), known.last_epoch()) == (LogSeen(b"log", Generation(1)), 2)
    assert (known.cursors(), known.ended()) == ({"a": (7, 3), "b": (8, 5)}, (ENDED,))


def test_what_is_accepted_is_known_and_the_rest_stays(state: State) -> None:
    state.accept(HERE, [("a", Offset(1))])
    assert (state.log(), state.last_epoch()) == (HERE, 0)
    assert (state.cursors(), state.ended()) == ({"a": (7, 1), "b": (8, 5)}, (ENDED,))


def test_a_subscription_that_is_lost_is_forgotten(state: State) -> None:
    state.accept(HERE, [("b", None)])
    assert (state.cursors(), state.ended()) == ({"a": (7, 3)}, (ENDED,))


def test_a_subscription_that_is_there_again_has_a_cursor_and_has_not_ended(state: State) -> None:
    state.accept(HERE, [], [Settled("c", SubscriptionId(9), Offset(2))])
    assert (state.cursors(), state.ended()) == ({"a": (7, 3), "b": (8, 5), "c": (9, 2)}, ())


def test_it_takes_its_id_over_anew_and_nobody_of_before_may_write(state: State) -> None:
    state.accept(HERE, [])
    with pytest.raises(Fenced):
        state.settle(Epoch(2), [("a", SubscriptionId(7), Offset(9))])
    standing = state.claim(30)
    assert (standing.last_epoch, standing.claims, standing.log) == (0, (), HERE)
    assert state.granted(Epoch(9), 30).cursors == {"a": (7, 3), "b": (8, 5)}
    assert state.last_epoch() == 9


def test_nothing_to_accept_is_accepted_as_well(state: State) -> None:
    state.accept(HERE, [], [])
    assert (state.cursors(), state.ended()) == ({"a": (7, 3), "b": (8, 5)}, (ENDED,))


def test_of_what_had_ended_with_nothing_taken_a_topic_gets_a_cursor_and_a_pattern_none(
    state: State,
) -> None:
    untaken = [("d", SubscriptionId(11)), ("e", SubscriptionId(12)), ("x.*", SubscriptionId(13))]
    state.forget(Epoch(2), untaken)
    nothing = Offset(-1)
    again = [
        Settled("d", SubscriptionId(11), Offset(6)),
        Settled("x.*", SubscriptionId(13), nothing),
    ]
    state.accept(HERE, [], again)
    assert state.cursors() == {"a": (7, 3), "b": (8, 5), "d": (11, 6)}
    assert state.ended() == (ENDED, Settled("e", SubscriptionId(12), nothing))


@pytest.mark.parametrize("synced", [True, False])
def test_what_was_worked_on_while_its_subscription_ended_was_taken(
    state: State, synced: bool
) -> None:
    state.forget(Epoch(2), [("x.*", SubscriptionId(10)), ("d", SubscriptionId(11))])
    moved = [("a", SubscriptionId(7), Offset(4))]
    over = [
        ("c", SubscriptionId(9), Offset(6)),  # some of it was taken before
        ("d", SubscriptionId(11), Offset(2)),  # nothing was
        ("x.e", SubscriptionId(12), Offset(1)),  # it ended with the pattern
        ("b", SubscriptionId(8), Offset(7)),  # its cursor is there still
        ("a", SubscriptionId(6), Offset(9)),  # the one before
    ]
    state.settle(Epoch(2), moved, synced=synced, ended=over)
    state.settle(Epoch(2), [], ended=[("c", SubscriptionId(9), Offset(5))])  # known
    assert state.cursors() == {"a": (7, 4), "b": (8, 7)}
    assert {(each.topic, each.subscription_id, each.cursor) for each in state.ended()} == {
        *(("c", 9, 6), ("d", 11, 2), ("x.e", 12, 1), ("a", 6, 9)),
        ("x.*", 10, NO_OFFSET),
    }


def test_only_the_current_process_takes_of_what_ended(state: State) -> None:
    with pytest.raises(Fenced, match="this one must stop"):
        state.settle(Epoch(1), [], ended=[("c", SubscriptionId(9), Offset(6))])
    assert state.ended() == (ENDED,)
