"""Whatever is written, rolled back, lost, repeated and crashed, in whatever order: each committed
row is published once, in an order that fits what its transaction saw; and each rule is needed."""

import random
from collections.abc import Callable
from dataclasses import dataclass

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given, settings

from oncemq.protocol.replies import RefusedReply
from oncemq.relay.topic_relay import Row, Send, StandingChange, TopicRelay, TopicStanding
from tests.relay.world import Database, Relay, World

SCHEDULES = st.lists(st.integers(0, 1_000_000), max_size=120)


@given(SCHEDULES, st.booleans(), st.booleans(), st.booleans())
@settings(max_examples=300)
def test_each_committed_row_is_published_once(
    schedule: list[int], sets_aside: bool, own_ids: bool, old_server: bool
) -> None:
    world = World(sets_aside=sets_aside, own_ids=own_ids, old_server=old_server)
    world.play(schedule).end().check()


# The same world with one rule broken.


class FreedBeforeTheReceipt(World):
    def settle_change(self, relay: Relay, change: StandingChange) -> None:
        super().settle_change(relay, change)
        for key in change.after.planned if relay in self.relays else ():
            self.database.rows.pop(key, None)

    def act(self, choice: int) -> None:
        relay = self.relays[choice % len(self.relays)] if self.relays else None
        if relay is not None and isinstance(send := relay.errand.next(), Send):
            texts = [self.texts[key] for key in send.rows]
            self._send(relay, (send.first_sequence, texts))
        else:
            super().act(choice)


class NumberedAfterSending(World):
    """The plan is committed with the receipt only."""

    def settle_change(self, relay: Relay, change: StandingChange) -> None:
        if change.after.planned and not change.freed:
            relay.errand.standing, relay.errand.change = change.after, None
            relay.errand.standing = _versioned(change.after, self.database.standing.version)
        else:
            super().settle_change(relay, change)


class ReadWithACursor(World):
    """Rows by their ids, from the last one on: a small id that commits late is passed over."""

    def __init__(self, **how: bool) -> None:
        super().__init__(**how)
        self.database = _CursorDatabase()


class _CursorDatabase(Database):
    passed = 0

    def candidates(self, standing: TopicStanding) -> list[Row]:
        return sorted(row for row in super().candidates(standing) if row.id > self.passed)

    def commit(self, change: StandingChange) -> bool:
        done = super().commit(change)
        self.passed = max((self.passed, *change.freed)) if done else self.passed
        return done


class OrderedByIds(World):
    def __init__(self, **how: bool) -> None:
        super().__init__(**how)
        self.database = _IdsDatabase()


class _IdsDatabase(Database):
    def candidates(self, standing: TopicStanding) -> list[Row]:
        return sorted(super().candidates(standing))


class TransactionsBrokenOff(World):
    def __init__(self, **how: bool) -> None:
        super().__init__(**how)
        self.database = _PlacesDatabase()


class _PlacesDatabase(Database):
    def candidates(self, standing: TopicStanding) -> list[Row]:
        return sorted(super().candidates(standing), key=lambda row: (row.place, row.id))


class NobodyLooksWhoWasHere(World):
    """Two relays, and the last to write is believed."""

    def __init__(self, **how: bool) -> None:
        super().__init__(**how)
        self.database = _TrustingDatabase()


class _TrustingDatabase(Database):
    def commit(self, change: StandingChange) -> bool:
        before = _versioned(change.before, self.standing.version)
        return super().commit(change._replace(before=before))


@dataclass(slots=True)
class _Believing(TopicRelay):
    def refused(self, refused: RefusedReply) -> None:
        TopicRelay.refused(self, refused)
        if self.refusal:
            reason, self.refusal, self.sure = self.refusal, "", True
            self._set(set_aside=self.standing.planned, reason=reason, planned=())


class SetAsideAtOnce(World):
    """A refusal is believed, though a copy of the put is still on the wire."""

    def make_errand(self, standing: TopicStanding) -> TopicRelay:
        return _Believing(standing, sets_aside=True)

    def hear(self, relay: Relay, reply: object) -> None:
        if isinstance(reply, RefusedReply) and reply.code == "storage_full":
            reply = RefusedReply("limit", "no room")
        super().hear(relay, reply)  # type: ignore[arg-type]


class NothingIsRequired(World):
    """Rows that nobody would get are discarded, and freed."""

    def make_errand(self, standing: TopicStanding) -> TopicRelay:
        return TopicRelay(standing, sets_aside=self.sets_aside, required=False)


class NumbersOfDiscardedRowsKept(World):
    """Rows that were discarded under their numbers are sent under the same ones again."""

    def __init__(self, **how: bool) -> None:
        super().__init__(**how, old_server=True)

    def make_errand(self, standing: TopicStanding) -> TopicRelay:
        return _Insisting(standing)


@dataclass(slots=True)
class _Insisting(TopicRelay):
    def _discarded(self, topic_id: int, moment: int = 0) -> None:
        self._put_off()


def _versioned(standing: TopicStanding, version: int) -> TopicStanding:
    return msgspec.structs.replace(standing, version=version)


PLANTED: list[tuple[Callable[..., World], bool, bool]] = [
    (FreedBeforeTheReceipt, False, False),
    (NumberedAfterSending, False, False),
    (ReadWithACursor, False, False),
    (OrderedByIds, False, False),
    (TransactionsBrokenOff, False, False),
    (NobodyLooksWhoWasHere, False, True),
    (SetAsideAtOnce, True, False),
    (NothingIsRequired, False, False),
    (NumbersOfDiscardedRowsKept, False, False),
]


@pytest.mark.parametrize(
    ("world", "sets_aside", "own_ids"), PLANTED, ids=lambda each: getattr(each, "__name__", "")
)
def test_without_the_rule_it_goes_wrong(
    world: Callable[..., World], sets_aside: bool, own_ids: bool
) -> None:
    assert any(
        _goes_wrong(world(sets_aside=sets_aside, own_ids=own_ids), seed) for seed in range(3_000)
    )


def _goes_wrong(world: World, seed: int) -> bool:
    chance = random.Random(seed)
    try:
        world.play(chance.randrange(1_000_000) for _ in range(150)).end().check()
    except (AssertionError, KeyError):
        return True
    return False


@pytest.mark.parametrize(
    ("sets_aside", "own_ids"), [(False, False), (False, True), (True, False), (True, True)]
)
@pytest.mark.parametrize("old_server", [False, True])
def test_the_same_schedules_do_no_harm_with_it(
    sets_aside: bool, own_ids: bool, old_server: bool
) -> None:
    for seed in range(300):
        chance = random.Random(seed)
        world = World(sets_aside=sets_aside, own_ids=own_ids, old_server=old_server)
        world.play(chance.randrange(1_000_000) for _ in range(150)).end().check()
