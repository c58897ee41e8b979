"""What a person accepts: what is lost of all that a state knows, and where it goes on."""

import os
from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest

from oncemq.client.admin.accepting import ClientFiles, Loss, loss_of, move, questions
from oncemq.client.state.journal import Journal
from oncemq.client.state.outbox import Slot
from oncemq.client.state.unsent import Unsent, parcel_of
from oncemq.protocol.client_replies import LostNumbers, ThereAgain
from oncemq.protocol.client_requests import StartGrant
from oncemq.protocol.generations import continued
from oncemq.protocol.names import (
    ClientId,
    Epoch,
    Generation,
    Offset,
    Sequence,
    SubscriptionId,
    TopicId,
)
from oncemq.protocol.replies import Compared
from oncemq.protocol.structs import Settled
from oncemq.session.handshake import LogSeen
from oncemq.storage.disk import LocalDisk
from tests.harness.storage import still_open

KNOWN, HERE = LogSeen(b"log", continued(1, 5)), LogSeen(b"log", continued(1, 9))


class State:
    """A journal that knows an epoch and a generation, and what it was moved to."""

    def __init__(self, epoch: int) -> None:
        self.epoch, self.moved = epoch, list[object]()

    def log(self) -> LogSeen:
        return KNOWN

    def last_epoch(self) -> Epoch:
        return Epoch(self.epoch)

    def cursors(self) -> dict[str, tuple[SubscriptionId, Offset]]:
        return {}

    def ended(self) -> tuple[Settled, ...]:
        return (Settled("old", SubscriptionId(4), Offset(8)),)

    def grants(self) -> tuple[StartGrant, ...]:
        return (StartGrant(3, Epoch(self.epoch)),)

    def claims(self) -> tuple[int, ...]:
        return (4, 5)

    def accept(
        self,
        log: LogSeen,
        cursors: Iterable[tuple[str, Offset | None]],
        again: Iterable[Settled] = (),
    ) -> None:
        self.moved += [log, *cursors, *again]


def compared(*, parted: bool, granted: int = 7) -> Compared:
    return Compared(b"log", Generation(HERE.generation), Epoch(granted), parted=parted)


@pytest.mark.parametrize(
    ("parted", "granted", "nothing"), [(False, 7, True), (True, 7, False), (False, 6, False)]
)
def test_a_state_of_another_branch_is_accepted_though_nothing_it_names_is_lost(
    parted: bool, granted: int, nothing: bool
) -> None:
    """It is refused with its hello until then, also when its epoch is no higher than granted."""
    loss = loss_of(State(7), [compared(parted=parted, granted=granted)])
    assert loss.is_nothing is nothing


@pytest.mark.parametrize(
    ("last", "there", "numbers"),
    [
        (2, (), (3, 4)),
        (4, (), (5, 6)),
        (9, (), (10, 11)),
        (4, (4,), (4, 5)),
        (7, (4,), (4, 8)),
        (5, (4, 5), (4, 5)),
        (7, (5,), (8, 9)),
    ],
    ids=[
        "receipts are lost",
        "some used here by others",
        "all used here by others",
        "an answer was lost",
        "an answer was lost, others used here by others",
        "both answers were lost",
        "one that looks like ours, behind one that is not",
    ],
)
def test_numbers_go_on_behind_those_that_the_server_has(
    tmp_path: Path, last: int, there: tuple[int, ...], numbers: tuple[int, int]
) -> None:
    slot = Slot(LocalDisk(), str(tmp_path / "1"), os.urandom)
    slot.record(Unsent("orders", TopicId(9), Sequence(each), 1, 0, b"x") for each in (4, 5))
    slot.close()
    slot = Slot(LocalDisk(), str(tmp_path / "1"), os.urandom)
    stored = [parcel_of(put, slot.producer) for put in slot.pending]
    recent = [
        (each.first_sequence, 1, each.checksum ^ (each.first_sequence not in there))
        for each in stored
    ]
    lost = LostNumbers("orders", slot.producer, Sequence(3), Sequence(last), tuple(recent))
    state = State(7)
    move(state, [slot], Loss(KNOWN, HERE, Epoch(7), Epoch(7), [], [lost], parted=True))
    assert state.moved == [HERE]
    slot.close()
    slot = Slot(LocalDisk(), str(tmp_path / "1"), os.urandom)
    assert tuple(each.first_sequence for each in slot.pending) == numbers
    slot.close()


@pytest.mark.parametrize(
    ("known", "agreed", "goes_on"), [(8, 6, 6), (8, 9, 8), (8, -1, 5), (-1, 9, 5), (-1, -1, 5)],
    ids=["some is lost", "all is there", "nobody can say", "nothing was taken", "neither"],
)  # fmt: skip
def test_a_subscription_that_had_ended_goes_on_where_nothing_comes_again(
    known: int, agreed: int, goes_on: int
) -> None:
    state = State(7)
    asked = questions(ClientId("billing"), state, [])
    assert [each.ended for each in asked] == [(), state.ended()]
    assert [(each.grants, each.claims) for each in asked] == [(state.grants(), (4, 5))] * 2
    again = ThereAgain("old", SubscriptionId(4), Offset(known), Offset(agreed), Offset(5))
    answer = msgspec.structs.replace(compared(parted=False), again=(again,))
    loss = loss_of(state, [compared(parted=False), answer])
    assert not loss.is_nothing
    move(state, [], loss)
    assert state.moved == [HERE, Settled("old", SubscriptionId(4), Offset(goes_on))]


def test_a_pattern_that_had_ended_goes_on_without_a_cursor() -> None:
    state, nowhere = State(7), Offset(-1)
    again = ThereAgain("x.*", SubscriptionId(4), nowhere, nowhere, nowhere)
    answer = msgspec.structs.replace(compared(parted=False), again=(again,))
    loss = loss_of(state, [answer])
    assert not loss.is_nothing
    move(state, [], loss)
    assert state.moved == [HERE, Settled("x.*", SubscriptionId(4), nowhere)]


def test_of_many_that_ended_each_question_has_a_page() -> None:
    state, many = (
        State(7),
        tuple(
            Settled(f"t{number}", SubscriptionId(number), Offset(-1)) for number in range(1, 2_001)
        ),
    )
    state.ended = lambda: many  # type: ignore[method-assign]
    asked = [each.ended for each in questions(ClientId("billing"), state, [])]
    assert asked == [(), many[:1_000], many[1_000:]]


def test_the_files_of_a_client_are_let_go(tmp_path: Path) -> None:
    Journal(tmp_path, "shop").close()
    with ClientFiles("shop", tmp_path, os.urandom) as files:
        assert still_open(files.path)
    assert still_open(files.path) == []
