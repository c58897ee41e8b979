"""The inbox while the server goes back in time: a row is of the generation it was compared in."""

from tests.unit.client.conftest import Node, World

from oncemq.client import inbox as rules
from oncemq.client import verbs
from oncemq.core.inbox import Inbox
from oncemq.core.names import Micros, Offset
from oncemq.databases.inbox import Standing, generation_of
from oncemq.databases.statements import Step
from oncemq.testing.fake_database import FakeConnection, FakeDatabase


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

    def consume(self, while_it_waits=lambda: None, wait_ms: int = 0) -> list[bytes]:
        engine, connection = self.node.engine, self._connection
        opening = rules.open_block(engine, self._inbox, connection, "orders", 10, wait_ms)
        messages = self._run(opening, while_it_waits)
        spans = rules.spans_of(messages)
        effects = [(s.topic, s.subscription_id, at) for s in spans for at in range(s.first, s.end)]
        connection.write(effects, lambda: None)
        self._run(rules.close_block(engine, self._inbox, messages))
        return [message.payload for message in messages]

    def _run(self, verb, while_it_waits=lambda: None):
        step = next(verb)
        try:
            for _ in range(500):
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
        if not waited and shop.node.engine.subscriber.drained("orders"):
            waited.append(True)
            begin_generation(world)
            publisher.put("orders", b"b", lasting=False)
            publisher.turn()

    assert shop.consume(goes_back, wait_ms=5_000) == [b"b"]
    assert waited
    ((cursor, fence),) = shop.database.rows.values()
    assert (cursor, generation_of(Standing(Offset(cursor), fence))) == (2, 2)
    publisher.put("orders", b"c", lasting=False)
    publisher.turn()
    assert shop.consume() == [b"c"]  # and nobody is told that b was lost
    assert shop.troubles == []
