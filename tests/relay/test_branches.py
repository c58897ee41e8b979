"""An outbox whose server goes back in time, again and again, to any copy and to branches that it
left: the relay keeps no generation, and needs none. Its numbers are tied to rows before they are
sent, so one number is one row in every branch: who has the last number has all rows before it."""

# pyright: reportArgumentType=false
# Names and numbers are written plainly here.

import random
from dataclasses import dataclass

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given, settings
from tests.relay.world import TOPIC, Relay, Server, World

from oncemq.core import snapshot
from oncemq.core.broker import Broker
from oncemq.core.generations import continued
from oncemq.core.names import Micros, Serial
from oncemq.core.records import Retention
from oncemq.core.replies import Refused, Reply, Resumed, Welcome
from oncemq.core.requests import CreateTopic, DeleteTopic, Hello
from oncemq.core.shard import Shard
from oncemq.relay.errand import Change, Errand, Standing

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
    server.durable, server.stored = copy.durable, list(copy.stored)
    generation = continued(copy.shard.generation, tag)
    step = server.broker.begin_generation(generation, Micros(1_000))
    server.durable += len(step.writes)
    server.broker.synced(Serial(server.durable))
    return server


class Branching(World):
    """Servers are copied, gone back to, and left again for one of before."""

    def __init__(self) -> None:
        super().__init__(own_ids=True)
        self.copies: list[Server] = []
        self.branches = [self.server]
        self.freed: dict[int, int] = {}  # since a person last decided: row, its topic's id
        self._tags = 7

    def copy(self, _: int) -> None:
        """A backup; it is kept as it is."""
        self.copies = [*self.copies[-2:], self._next(self.server)]

    def go_back(self, choice: int) -> None:
        if self.copies and len(self.branches) < BRANCHES_MAX:
            self.branches.append(self._next(self.copies[choice % len(self.copies)]))
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

    def settle_change(self, relay: Relay, change: Change) -> None:
        before = self.database.standing.version
        super().settle_change(relay, change)
        if self.database.standing.version != before:
            self.freed |= dict.fromkeys(change.freed, change.after.topic_id)

    def hear(self, relay: Relay, reply: Reply) -> None:
        """Of copies from before, the engine takes no answer for its own."""
        if not isinstance(reply, Refused) or reply.code not in ("fenced", "unknown_client"):
            super().hear(relay, reply)

    ACTIONS = (
        *World.ACTIONS, copy, go_back, go_over, make_anew, decide,
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
    def make_errand(self, standing: Standing) -> Errand:
        return _Believing(standing)


@dataclass(slots=True)
class _Believing(Errand):
    """It takes any number that the server has for its own."""

    def resumed(self, reply: Resumed) -> None:
        number = max(reply.last_sequence, self.standing.acknowledged)
        if reply.topic_id == self.standing.topic_id:
            reply = msgspec.structs.replace(reply, last_sequence=number)
        Errand.resumed(self, reply)


class LossNotLookedAt(Branching):
    def make_errand(self, standing: Standing) -> Errand:
        return _Unaware(standing)


class LossOfAnEmptyTopicNotLookedAt(Branching):
    """Though rows are acknowledged on the one that had its name before."""

    def make_errand(self, standing: Standing) -> Errand:
        return _Forgetful(standing)


@dataclass(slots=True)
class _Forgetful(Errand):
    def resumed(self, reply: Resumed) -> None:
        lost = reply.lost and self.standing.acknowledged > 0
        Errand.resumed(self, msgspec.structs.replace(reply, lost=lost))


@dataclass(slots=True)
class _Unaware(Errand):
    """A topic that the server lost is one that was deleted."""

    def resumed(self, reply: Resumed) -> None:
        Errand.resumed(self, msgspec.structs.replace(reply, lost=False))


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
