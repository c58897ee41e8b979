"""The inbox while the server goes back in time: a row is of the generation it was compared in."""

from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from oncemq.client.values import Message
from oncemq.client.verbs import inbox_verbs as rules
from oncemq.client.verbs import messages as verbs
from oncemq.databases import inbox as table
from oncemq.databases.inbox import InboxRow, SubscriptionPlace, generation_of
from oncemq.databases.statements import Step, Tell
from oncemq.errors import DatabaseRefused, Fenced, InboxGap, InvalidRequest, StorageFull
from oncemq.protocol.names import Micros, Offset, SubscriptionId
from oncemq.protocol.records import Retention
from oncemq.session.inbox_rule import Inbox, Mark
from simulator.machines.fake_database import FakeConnection, FakeDatabase
from tests.harness.client import Node, World


def begin_generation(world: World) -> None:
    """The server starts, and its log goes on from an earlier state, as after a restore."""
    world.server.crash()
    world.server.log.generation = 2
    world.server.driver.begin(Micros(world.server.now))
    world.server.commit()


class Consumer:
    """A client with an inbox, moved step by step."""

    def __init__(self, world: World) -> None:
        self.node: Node = world.client("shop")
        self.node.run(verbs.subscribe(self.node.engine, "orders", "new"))
        self.troubles: list[str] = []
        self.database = FakeDatabase(self.troubles.append)
        self._connection = FakeConnection(self.database)
        self._inbox = Inbox(self.node.engine.losses.over)

    def consume(
        self, while_it_waits=lambda: None, wait_ms: int = 0, topic: str = "orders"
    ) -> list[bytes]:
        engine, connection = self.node.engine, self._connection
        opening = rules.open_block(engine, self._inbox, connection, topic, 10, wait_ms)
        messages = self._run(opening, while_it_waits)
        spans = rules.spans_of(messages)
        effects = [(s.topic, s.subscription_id, at) for s in spans for at in range(s.first, s.end)]
        connection.write(effects, lambda: None)
        self._run(rules.close_block(engine, self._inbox, messages))
        return [message.payload for message in messages]

    def _run(self, verb, while_it_waits=lambda: None):
        step = next(verb)
        try:
            for _ in range(2_000):
                if isinstance(step, Step):
                    step = verb.send(self._connection.perform(step))
                elif step.done:
                    step = verb.send(None)
                else:
                    self.node.turn(1)
                    if not step.done:
                        while_it_waits()
                        self.node.server.now += 50_000
                        self.node.server.driver.tick(Micros(self.node.server.now))
        except StopIteration as end:
            return end.value
        raise AssertionError("the verb did not end")


def test_what_comes_after_the_server_went_back_during_a_wait_is_of_the_new_generation(
    world: World,
) -> None:
    shop, publisher = Consumer(world), world.client()
    publisher.put("orders", b"a", lasting=False)
    publisher.turn()
    assert shop.consume() == [b"a"]
    waited: list[bool] = []

    def goes_back() -> None:
        if not waited and shop.node.engine.subscriber.prefetched.drained("orders"):
            waited.append(True)
            begin_generation(world)
            publisher.put("orders", b"b", lasting=False)
            publisher.turn()

    assert shop.consume(goes_back, wait_ms=5_000) == [b"b"]
    assert waited
    ((cursor, fence),) = shop.database.rows.values()
    assert (cursor, generation_of(InboxRow(Offset(cursor), fence))) == (2, 2)
    publisher.put("orders", b"c", lasting=False)
    publisher.turn()
    assert shop.consume() == [b"c"]  # and nobody is told that b was lost
    assert shop.troubles == []


def consumer(world: World) -> Consumer:
    """One that has a message before it."""
    shop, publisher = Consumer(world), world.client()
    publisher.put("orders", b"a", lasting=False)
    publisher.turn()
    return shop


def test_rows_that_others_change_all_the_time_are_not_taken_over_for_ever(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = consumer(world)
    assert shop.consume() == [b"a"]
    perform, taken = shop._connection.perform, count()

    def overtaken(step: Step) -> Any:
        if isinstance(step, Tell) and step.sql == table.TAKE:
            next(taken)
            ((key, (cursor, fence)),) = shop.database.rows.items()
            shop.database.rows[key] = (cursor, fence + 1)
        return perform(step)

    monkeypatch.setattr(shop._connection, "perform", overtaken)
    shop._inbox = Inbox()  # as another start of the client has it
    with pytest.raises(DatabaseRefused, match="let one of them run"):
        shop.consume()
    assert next(taken) == rules.TAKES_MAX


def test_a_subscription_that_is_made_anew_all_the_time_is_not_looked_at_for_ever(
    world: World,
) -> None:
    shop = consumer(world)
    subscriber, kept = shop.node.engine.subscriber, Retention(forever=True)
    shop.node.run(verbs.configure_topic(shop.node.engine, "orders", kept))

    def subscribes_again() -> None:
        mark = shop._inbox.marks.get("orders")
        if mark is not None and subscriber.cursors.subscription("orders") == mark.subscription_id:
            shop.node.run(verbs.unsubscribe(shop.node.engine, "orders"))
            shop.node.run(verbs.subscribe(shop.node.engine, "orders", "earliest"))

    with pytest.raises(DatabaseRefused, match="use one or the other"):
        shop.consume(subscribes_again, wait_ms=60_000)


@pytest.mark.parametrize(("topic", "knows_all"), [("orders", False), ("", True)])
def test_every_subscription_is_known_once_messages_of_any_were_asked_for(
    world: World, topic: str, knows_all: bool
) -> None:
    shop = consumer(world)
    assert shop.consume(topic=topic) == [b"a"]
    assert (shop._inbox.knows("orders"), shop._inbox.knows("")) == (True, knows_all)


@pytest.mark.parametrize("topic", ["", "eu.*"])
def test_a_pattern_has_no_row_its_topics_have(world: World, topic: str) -> None:
    shop, publisher = Consumer(world), world.client()
    shop.node.run(verbs.subscribe(shop.node.engine, "eu.*", "new"))
    for each in ("eu.b", "eu.a"):
        publisher.put(each, b"x", lasting=False)
        publisher.turn()
    assert shop.consume(topic=topic) == [b"x", b"x"]
    assert {key[1] for key in shop.database.rows} == {"eu.a", "eu.b", "orders"}


def failing(shop: Consumer, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def settle(*_: Any, **options: Any) -> None:
        raise error

    monkeypatch.setattr(shop.node.engine.state.journal, "settle", settle)


def test_a_client_that_is_fenced_when_its_block_is_committed_says_so_with_the_next(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop, fenced = consumer(world), Fenced("a newer client uses this state")
    failing(shop, monkeypatch, fenced)
    assert shop.consume() == [b"a"]
    assert shop.node.engine.failure is fenced


def test_a_block_whose_end_the_client_could_not_note_is_known_by_the_database(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = consumer(world)
    with monkeypatch.context() as patch:
        failing(shop, patch, StorageFull("no room"))
        assert shop.consume() == [b"a"]
    assert (shop.node.engine.failure, list(shop._inbox.doubted("orders"))) == (None, ["orders"])
    assert shop.consume() == []
    assert (shop.troubles, shop._inbox.doubted("orders")) == ([], {})


def refusing(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    def read(*_: Any) -> verbs.Verb[list[Message]]:
        raise InvalidRequest("not that", code=code)
        yield

    monkeypatch.setattr(verbs, "read", read)


def another(world: World) -> Any:
    """Whether the server has another message than the database took last."""
    place = SubscriptionPlace(
        "orders", SubscriptionId(1), Offset(5), has_settled=True, served=Offset(4)
    )
    row = InboxRow(Offset(5), 1, "4@7")
    assert row.note is not None
    engine = world.client("shop").engine
    verb = rules._has_another(engine, place, row)
    try:
        next(verb)
    except StopIteration as end:
        return end.value
    raise AssertionError("it waits")


def test_a_message_that_is_not_kept_cannot_be_another_and_other_refusals_are_told(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusing(monkeypatch, "offset_out_of_range")
    assert another(world) is False
    refusing(monkeypatch, "invalid")
    with pytest.raises(InvalidRequest, match="not that"):
        another(world)


def test_a_client_that_is_fenced_while_it_catches_up_with_its_database_stops(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop, fenced = consumer(world), Fenced("a newer client uses this state")
    engine = shop.node.engine
    failing(shop, monkeypatch, fenced)
    with pytest.raises(Fenced, match="newer client"):
        rules._catch_up(engine, "orders", Mark(SubscriptionId(99), 1, Offset(9), Offset(9)))
    assert engine.failure is fenced


MARK = Mark(SubscriptionId(1), 1, cursor=Offset(3), reached=Offset(8))


@pytest.mark.parametrize(
    ("code", "low", "error", "said"),
    [
        ("invalid", 5, InvalidRequest, "not that"),
        ("offset_out_of_range", 3, InvalidRequest, "not that"),
        ("offset_out_of_range", 4, InboxGap, "SET cursor = 4 WHERE"),
        ("offset_out_of_range", 9, InboxGap, "SET cursor = 8 WHERE"),
    ],
)
def test_messages_that_the_database_lacks_and_nobody_has_are_told_with_a_way_out(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    code: str,
    low: int,
    error: type[Exception],
    said: str,
) -> None:
    """Unless it is the server that lacks them: what it refused is told as it is."""

    def topic(*_: Any) -> verbs.Verb[Any]:
        return SimpleNamespace(topic=SimpleNamespace(low=Offset(low)))
        yield

    def is_there(*_: Any) -> verbs.Verb[bool]:
        return True
        yield

    forgotten: list[list[str]] = []
    inbox: Any = SimpleNamespace(behind=lambda _: ("orders", MARK), forget=forgotten.append)
    refusing(monkeypatch, code)
    monkeypatch.setattr(verbs, "topic", topic)
    monkeypatch.setattr("oncemq.client.verbs.inbox_verbs._is_there", is_there)
    with pytest.raises(error, match=said):
        next(rules._again(world.client("shop").engine, inbox, "orders", 10))
    assert forgotten == ([["orders"]] if code == "offset_out_of_range" else [])
