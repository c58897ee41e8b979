"""What every memory of a client does: on SQLite, for one process, and the simulator's."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from oncemq.client.state.journal import Journal
from oncemq.client.state.known import ClaimStanding, Known, Memory
from oncemq.client.state.memory_journal import MemoryJournal as ProcessJournal
from oncemq.errors import Fenced
from oncemq.protocol.client_requests import StartGrant
from oncemq.protocol.names import NO_SUBSCRIPTION, Epoch, Generation, Micros, Offset, SubscriptionId
from oncemq.protocol.structs import Settled
from oncemq.session.handshake import NO_LOG, LogSeen
from simulator.machines.memory_journal import SimulatedJournal

MEMORIES: dict[str, Callable[[Path], Memory]] = {
    "sqlite": lambda path: Journal(path, "me"),
    "in one process": lambda path: ProcessJournal(),
    "simulated": lambda path: SimulatedJournal(),
}


@pytest.fixture(params=list(MEMORIES))
def memory(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Memory]:
    made = MEMORIES[request.param](tmp_path)
    yield made
    if isinstance(made, Journal):
        made.close()


def test_a_new_one_knows_nothing(memory: Memory) -> None:
    assert (memory.last_epoch(), memory.known().cursors) == (0, {})
    assert memory.claim(7) == ClaimStanding(Epoch(0), ())


def test_a_grant_settles_its_claim_and_those_before_it(memory: Memory) -> None:
    found = [memory.claim(nonce) for nonce in (30, 10, 20)]
    assert [each[:2] for each in found] == [
        (0, ()),
        (0, (30,)),
        (0, (30, 10)),
    ]  # what stood before each
    starts = (StartGrant(30), StartGrant(10, Epoch(4), Micros(7)))  # of the first nobody heard
    assert memory.granted(Epoch(4), 10, Micros(7)) == Known(NO_LOG, {}, grants=starts)
    assert memory.claim(40) == ClaimStanding(Epoch(4), (20,), last_nonce=10)
    late = StartGrant(99, Epoch(3))
    assert memory.granted(Epoch(3), 99).grants == (*starts, late)
    assert memory.claim(50) == ClaimStanding(Epoch(4), (20, 40), last_nonce=10)
    assert memory.last_epoch() == 4


def test_cursors_are_moved_by_the_current_epoch_only(memory: Memory) -> None:
    memory.granted(Epoch(2), 1)
    memory.settle(
        Epoch(2), [("a", SubscriptionId(7), Offset(3)), ("b", SubscriptionId(8), Offset(1))]
    )
    for other in (1, 3):
        with pytest.raises(Fenced):
            memory.settle(Epoch(other), [("a", SubscriptionId(7), Offset(9))])
        with pytest.raises(Fenced):
            memory.settle(Epoch(other), [("a", SubscriptionId(7), Offset(9))] * 2)
    assert memory.known().cursors == {"a": (7, 3), "b": (8, 1)}


def test_the_log_that_a_state_is_about_is_found_by_the_next_claim(memory: Memory) -> None:
    here = LogSeen(b"log", Generation(3))
    memory.know(here)
    assert memory.claim(1).log == here
    memory.know(LogSeen(b"log", Generation(4)))
    assert memory.claim(2).log.generation == 4


def test_a_grant_gives_the_log_and_the_cursors_as_they_are_by_then(memory: Memory) -> None:
    memory.granted(Epoch(1), 1)
    here = LogSeen(b"log", Generation(3))
    memory.claim(2)
    memory.settle(Epoch(1), [("a", SubscriptionId(7), Offset(3))])
    memory.know(here)
    starts = (StartGrant(1, Epoch(1)), StartGrant(2, Epoch(2)))
    cursors = {"a": (SubscriptionId(7), Offset(3))}
    assert memory.granted(Epoch(2), 2) == Known(here, cursors, grants=starts)


def test_an_ended_subscription_is_forgotten(memory: Memory) -> None:
    memory.granted(Epoch(1), 1)
    memory.settle(Epoch(1), [("a", SubscriptionId(7), Offset(3))])
    memory.forget(Epoch(1), [("a", SubscriptionId(7)), ("unknown", NO_SUBSCRIPTION)])
    memory.forget(Epoch(1), [("unknown", NO_SUBSCRIPTION)])
    ended = Settled("a", SubscriptionId(7), Offset(3))
    starts = (StartGrant(1, Epoch(1)),)
    assert memory.known() == Known(NO_LOG, {}, (ended,), starts)  # one that goes back has it again


def test_one_whose_end_nobody_noted_has_ended_when_another_has_its_place(memory: Memory) -> None:
    """Killed before the answer to its unsubscribe, it subscribed again: two cursors, one topic."""
    memory.granted(Epoch(1), 1)
    memory.settle(Epoch(1), [("a", SubscriptionId(7), Offset(3))])
    memory.settle(Epoch(1), [("a", SubscriptionId(7), Offset(4))])
    memory.settle(Epoch(1), [("a", SubscriptionId(8), Offset(1))])
    known = memory.known()
    assert (known.cursors, known.ended) == (
        {"a": (8, 1)},
        (Settled("a", SubscriptionId(7), Offset(4)),),
    )


def test_a_client_that_was_fenced_does_not_forget_the_newer_ones_cursor(memory: Memory) -> None:
    memory.granted(Epoch(2), 1)
    memory.settle(Epoch(2), [("a", SubscriptionId(7), Offset(3))])
    memory.forget(Epoch(1), [("a", SubscriptionId(7)), ("b", SubscriptionId(8))])
    assert (memory.known().cursors, memory.known().ended) == ({"a": (7, 3)}, ())


def test_one_that_ended_with_nothing_taken_and_a_pattern_are_known_by_their_identities(
    memory: Memory,
) -> None:
    memory.granted(Epoch(1), 1)
    memory.settle(Epoch(1), [("c", SubscriptionId(5), Offset(3))])
    for _ in range(2):  # one is noted once
        memory.forget(Epoch(1), [("a", SubscriptionId(7))])
    memory.forget(Epoch(1), [("a.*", SubscriptionId(8)), ("b", NO_SUBSCRIPTION)])
    memory.forget(Epoch(1), [("c", SubscriptionId(6))])  # another one than it has a cursor of
    ended = [("c", 5, 3), ("a", 7, -1), ("a.*", 8, -1), ("c", 6, -1)]
    assert memory.known().ended == tuple(
        Settled(name, SubscriptionId(id), Offset(at)) for name, id, at in ended
    )
