"""An outbox whose server goes back in time, again and again, to any copy and to branches that it
left; its database too. One number may be two rows in two branches, so the relay notes the moment at
which the server stored the last acknowledged one: who has that moment has all rows before it."""

# pyright: reportArgumentType=false
# Names and numbers are written plainly here.

import random
from dataclasses import dataclass
from typing import NamedTuple

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given, settings

from oncemq.broker.broker import Broker
from oncemq.broker.state import snapshot
from oncemq.broker.state.shard import Shard
from oncemq.protocol.generations import continued
from oncemq.protocol.names import Micros, Serial
from oncemq.protocol.records import Retention
from oncemq.protocol.replies import RefusedReply, Reply, Resumed, Welcome
from oncemq.protocol.requests import CreateTopic, DeleteTopic, Hello, Put
from oncemq.relay.topic_relay import StandingChange, TopicRelay, TopicStanding
from oncemq.wire import batch
from tests.relay.world import TOPIC, Relay, Server, World

BRANCHES_MAX = 6


def restored(copy: Server, tag: int) -> Server:
    """The server that goes on from this state, in a generation of its own."""
    server = Server()
    server.shard = Shard(tag)
    for blob in snapshot.capture(copy.shard):
        snapshot.restore(server.shard, blob)
    server.shard.serial = Serial(copy.durable)
    server.broker = Broker(server.shard)
    server.broker.recovered(Micros(0))
    server.durable, server.stored, server.clock = copy.durable, list(copy.stored), copy.clock
    generation = continued(copy.shard.generation, tag)
    step = server.broker.begin_generation(generation, Micros(next(server.clock)))
    server.durable += len(step.writes)
    server.broker.synced(Serial(server.durable))
    return server


class Backup(NamedTuple):
    """Server and database, as they were at one moment."""

    server: Server
    rows: dict[int, tuple[int, bytes]]
    failed: dict[int, str]
    standing: TopicStanding
    freed: dict[int, int]


class Branching(World):
    """Servers are copied, gone back to, and left again for one of before; databases too."""

    def __init__(self) -> None:
        super().__init__(own_ids=True)
        self.copies: list[Backup] = []
        self.branches = [self.server]
        self.freed: dict[int, int] = {}  # since a person last decided: row, its topic's id
        self._tags = 7

    def copy(self, _: int) -> None:
        """A backup; it is kept as it is."""
        home = self.database
        backup = Backup(
            self._next(self.server), dict(home.rows), dict(home.failed), home.standing,
            dict(self.freed),
        )  # fmt: skip
        self.copies = [*self.copies[-2:], backup]

    def go_back(self, choice: int) -> None:
        if self.copies and len(self.branches) < BRANCHES_MAX:
            self.branches.append(self._next(self.copies[choice % len(self.copies)].server))
            self._meet(self.branches[-1])

    def go_back_with_the_database(self, choice: int) -> None:
        """Whoever restores both finds nothing amiss: one is as old as the other.

        What was said to the database or the server of before does not arrive at the new one.
        """
        if choice % 3 == 0 and self.copies and len(self.branches) < BRANCHES_MAX:
            backup = self.copies[choice // 3 % len(self.copies)]
            self.relays.clear()
            self.wire.clear()
            home = self.database
            home.rows, home.failed = dict(backup.rows), dict(backup.failed)
            home.standing, self.freed = backup.standing, dict(backup.freed)
            self.branches.append(self._next(backup.server))
            self._meet(self.branches[-1])

    def go_over(self, choice: int) -> None:
        """A branch that was left, just as it was."""
        self._meet(self.branches[choice % len(self.branches)])

    def make_anew(self, choice: int) -> None:
        if choice % 4 == 0:
            self.server.ask(DeleteTopic(TOPIC), None)
            self.server.ask(CreateTopic(TOPIC, Retention(forever=True)), None)

    def decide(self, _: int) -> None:
        """A person accepts what the topic was stopped for."""
        standing = self.database.standing
        if standing.stopped and not standing.waits:
            self._tags += 1
            self.database.standing = standing.anew(b"producer %7d" % self._tags)
            self.freed.clear()
            self.relays.clear()

    def _next(self, server: Server) -> Server:
        self._tags += 1
        return restored(server, self._tags)

    def _meet(self, server: Server) -> None:
        """Relays that live on say hello, and send once more what has no answer."""
        self.server = server
        for relay in self.relays:
            number = next(self._starts)
            relay.client = f"relay-{number}"
            welcome = server.ask(Hello(relay.client, 0, number, compares=True), None)
            assert isinstance(welcome, Welcome)
            relay.client_epoch = welcome.client_epoch
            if relay.request is not None:
                request = msgspec.structs.replace(
                    relay.request[0], client=relay.client, client_epoch=relay.client_epoch
                )
                relay.request = (request, relay.request[1])

    def settle_change(self, relay: Relay, change: StandingChange) -> None:
        before = self.database.standing.version
        super().settle_change(relay, change)
        if self.database.standing.version != before:
            self.freed |= dict.fromkeys(change.freed, change.after.topic_id)

    def hear(self, relay: Relay, reply: Reply) -> None:
        """Of copies from before, the engine takes no answer for its own."""
        if not isinstance(reply, RefusedReply) or reply.code not in ("fenced", "unknown_client"):
            super().hear(relay, reply)

    ACTIONS = (
        *World.ACTIONS, copy, go_back, go_back_with_the_database, go_over, make_anew, decide,
        World.act, World.act, World.act, World.deliver, World.deliver, World.deliver,
    )  # fmt: skip

    def check(self) -> None:
        """Who goes on has not lost anything that no person knows of."""
        if self.database.standing.stopped:
            return
        there = {int(text.split()[1]) for text in self.server.stored}
        missing = {row for row, topic in self.freed.items() if not self._was_deleted(topic)}
        assert missing <= there, "acknowledged, not there, and nobody was told"

    def _was_deleted(self, topic: int) -> bool:
        """Whether the topic ended here as well: what was in it elsewhere would be gone too."""
        shard = self.server.shard
        return topic not in shard.topics and not shard.identities.is_lost(topic)


def play(world: Branching, schedule: "list[int]") -> None:
    world.play(schedule)
    world.open.clear()
    world.write(0)  # one more row, so that somebody has to go on
    world.end().check()


@given(st.lists(st.integers(0, 1_000_000), max_size=150))
@settings(max_examples=300)
def test_a_relay_that_goes_on_has_all_its_acknowledged_rows_there(schedule: list[int]) -> None:
    play(Branching(), schedule)


def chances(seed: int) -> "list[int]":
    chance = random.Random(seed)
    return [chance.randrange(1_000_000) for _ in range(250)]


def test_of_many_schedules_none_goes_on_without_its_rows() -> None:
    stopped = 0
    for seed in range(400):
        world = Branching()
        play(world, chances(seed))
        stopped += bool(world.database.standing.stopped)
    assert 20 < stopped < 380  # some are told, some go on


class NumbersNotCompared(Branching):
    def make_errand(self, standing: TopicStanding) -> TopicRelay:
        return _Believing(standing)


@dataclass(slots=True)
class _Believing(TopicRelay):
    """It takes any number that the server has for its own."""

    def resumed(self, reply: Resumed) -> None:
        number = max(reply.last_sequence, self.standing.acknowledged)
        if reply.topic_id == self.standing.topic_id:
            reply = msgspec.structs.replace(reply, last_sequence=number)
        TopicRelay.resumed(self, reply)


class LossNotLookedAt(Branching):
    def make_errand(self, standing: TopicStanding) -> TopicRelay:
        return _Unaware(standing)


class LossOfAnEmptyTopicNotLookedAt(Branching):
    """Though rows are acknowledged on the one that had its name before."""

    def make_errand(self, standing: TopicStanding) -> TopicRelay:
        return _Forgetful(standing)


@dataclass(slots=True)
class _Forgetful(TopicRelay):
    def resumed(self, reply: Resumed) -> None:
        lost = reply.lost and self.standing.acknowledged > 0
        TopicRelay.resumed(self, msgspec.structs.replace(reply, lost=lost))


@dataclass(slots=True)
class _Unaware(TopicRelay):
    """A topic that the server lost is one that was deleted."""

    def resumed(self, reply: Resumed) -> None:
        TopicRelay.resumed(self, msgspec.structs.replace(reply, lost=False))


@pytest.mark.parametrize(
    "world", [NumbersNotCompared, LossNotLookedAt, LossOfAnEmptyTopicNotLookedAt]
)
def test_without_the_rule_one_does(world: type[Branching]) -> None:
    def goes_wrong(seed: int) -> bool:
        try:
            play(world(), chances(seed))
        except AssertionError as error:
            return "nobody was told" in str(error)
        return False

    assert any(goes_wrong(seed) for seed in range(2_000))


class Told(Branching):
    """A story, told in large steps."""

    def publish(self, rows: int) -> None:
        """So many rows are written, and a relay that starts sends each in a batch of its own."""
        self.relays.clear()
        self.start(0)
        for _ in range(rows):
            self.add()
            self.work()

    def add(self, *, poison: bool = False) -> None:
        self.write(5 if poison else 0)
        self.prepare(0)
        self.commit(0)

    def work(self) -> None:
        """The relay does all that it can."""
        for _ in range(40):
            self.act(0)
            while self.wire:
                self.deliver(1)

    def store_without_an_answer(self) -> None:
        """A relay sends its plan, dies, and never hears that it was stored."""
        self.relays.clear()
        self.start(0)
        before = len(self.server.stored)
        while len(self.server.stored) == before:
            self.act(0)
            while self.wire and len(self.server.stored) == before:
                self.deliver(1)
        self.wire.clear()
        self.relays.clear()

    @property
    def stopped(self) -> str:
        return self.database.standing.stopped

    def tell(self, story: "list[int]") -> None:
        """Until it stops. Whoever goes on after each step has asked the server."""
        for number in story:
            choice, step = divmod(number, 4)
            match step:
                case 0:
                    self.copy(0)
                case 1:
                    self.go_back_with_the_database(3 * choice)
                case 2:
                    self.go_over(choice)
                case _:
                    pass
            self.publish(1 + choice % 2)
            self.check()
            if self.stopped:
                return


def both_restored() -> Told:
    """Three rows, a backup of server and database, and two more, on each side of the restore."""
    world = Told()
    world.publish(3)
    world.copy(0)
    world.publish(2)
    world.go_back_with_the_database(0)
    world.publish(2)
    assert world.server.stored == [b"1 1", b"2 2", b"3 3", b"6 6", b"7 7"]
    assert world.database.standing.acknowledged == 5
    return world


def test_a_branch_with_as_many_numbers_of_other_rows_is_told() -> None:
    """Database and server were restored together; then the first server is served again."""
    world = both_restored()
    world.go_over(0)
    world.publish(1)
    assert "the server has a number 5 of this outbox" in world.stopped
    assert "other rows" in world.stopped
    assert world.server.stored == [b"1 1", b"2 2", b"3 3", b"4 4", b"5 5"]
    world.check()


def test_a_relay_that_lives_on_through_it_is_told_too() -> None:
    world = both_restored()
    world.go_over(0)
    world.add()
    world.work()
    assert "other rows" in world.stopped
    world.check()


def test_a_batch_of_the_same_bytes_on_both_branches_does_not_hide_it() -> None:
    """The rows under way are stored there, from the other database; those before are others."""
    world = both_restored()
    same = b"8 8"
    world.add()
    world.store_without_an_answer()
    planned = world.database.standing
    assert world.texts[planned.planned[0]] == same
    world.go_over(0)
    world.relays.clear()
    world.server.ask(*forged(world, same))
    world.publish(0)
    world.work()
    assert "the server has a number 5 of this outbox" in world.stopped


def forged(world: Told, payload: bytes) -> "tuple[Put, bytes]":
    """The put of the planned row, as the relay of the other database made it."""
    standing = world.database.standing
    body = batch.encode_payloads([payload])
    seed = batch.seed(TOPIC, standing.producer, standing.first_sequence, 1)
    put = Put(
        "_other", 0, TOPIC, standing.topic_id, standing.producer, True, standing.first_sequence, 1,
        0, batch.checksum(body, seed),
    )  # fmt: skip
    return put, body


def test_numbers_that_a_refusal_gave_to_other_rows_are_told() -> None:
    """One branch stored a row, and its answer was lost; another one refused it."""
    world = Told()
    world.sets_aside = True
    world.server.poison = b"nothing"
    world.publish(1)
    world.copy(0)
    world.add(poison=True)
    world.store_without_an_answer()
    world.go_back(0)
    world.publish(1)
    assert world.server.stored == [b"1 1", b"3 3"]
    assert list(world.database.failed) == [2]
    world.go_over(0)
    assert world.server.stored == [b"1 1", b"2 2 poison"]
    world.publish(1)
    assert "the server has a number 2 of this outbox" in world.stopped
    world.check()


def test_where_nothing_parted_nothing_is_told() -> None:
    """Neither a restart of the relay nor an answer that was lost, nor a plain copy."""
    world = Told()
    world.publish(3)
    world.add()
    world.store_without_an_answer()
    world.copy(0)
    world.publish(1)
    world.go_back_with_the_database(0)
    world.publish(2)
    assert not world.stopped
    world.check()


@given(st.lists(st.integers(0, 1_000), max_size=14))
@settings(max_examples=200)
def test_of_rows_that_other_branches_have_somebody_is_told(story: list[int]) -> None:
    Told().tell(story)


class MomentsNotCompared(Told):
    def make_errand(self, standing: TopicStanding) -> TopicRelay:
        return _Timeless(standing, notes=False)


@dataclass(slots=True)
class _Timeless(TopicRelay):
    """Numbers alone."""


def test_without_moments_nobody_is() -> None:
    def goes_wrong(seed: int) -> bool:
        try:
            MomentsNotCompared().tell(chances(seed)[:14])
        except AssertionError as error:
            return "nobody was told" in str(error)
        return False

    assert any(goes_wrong(seed) for seed in range(300))
