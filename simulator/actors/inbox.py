"""Consuming into a database in simulated time: the shipped verbs, a pause before every step.

Law: between any two steps the process may die, a twin may take over, the server may fall.
"""

from collections.abc import Callable, Mapping

from oncemq.client.engine.engine import Engine
from oncemq.client.values import Message
from oncemq.client.verbs import inbox_verbs as rules
from oncemq.client.verbs.inbox_verbs import InboxVerb
from oncemq.databases.statements import Bound, Step
from oncemq.errors import HistoryLost, InboxGap, OnceMQError
from oncemq.session.inbox_rule import Inbox
from simulator.actors.calls import ApplicationBusy, T, Waiting, Work
from simulator.actors.shared_world import World
from simulator.clock import MILLISECOND
from simulator.machines.fake_database import FakeConnection, FakeDatabase


class SimulatedInbox:
    """The inbox of one process."""

    def __init__(
        self, engine: Engine, database: FakeDatabase, world: World, wake: Callable[[], None]
    ) -> None:
        self._engine = engine
        self._connection = FakeConnection(database)
        self._inbox = Inbox(engine.losses.over)
        self._world = world
        self._wake = wake

    def consume(
        self,
        topic: str,
        limit: int,
        wait_ms: int,
        hold_ms: int,
        asked: int,
        *,
        fails: bool,
        given: Callable[[list[Message], int, Mapping[str, int]], None],
    ) -> Work[None]:
        """One block, asked for then: the messages take effect when `given` is called."""
        engine, connection = self._engine, self._connection
        connection.asked = asked
        try:
            messages = yield from self._carry_out(
                rules.open_block(engine, self._inbox, connection, topic, limit, wait_ms)
            )
            yield self._at_work(hold_ms * MILLISECOND)
            if not fails:
                spans = rules.spans_of(messages)
                effects = [
                    (span.topic, span.subscription_id, offset)
                    for span in spans
                    for offset in range(span.first, span.end)
                ]
                connection.write(effects, lambda: given(messages, asked, connection.taken))
                yield from self._carry_out(rules.close_block(engine, self._inbox, messages))
                return
        except BaseException as error:
            self._put_back(topic)
            if isinstance(error, HistoryLost | InboxGap) and engine.failure is None:
                self._world.lost_row(connection.database, error.detail)
            raise
        self._put_back(topic)

    def die(self) -> None:
        """The process ended: so does its transaction."""
        self._connection.perform(Bound.ROLLBACK)

    def _put_back(self, topic: str) -> None:
        self._connection.perform(Bound.ROLLBACK)
        self._engine.subscriber.prefetched.put_back(topic)

    def _at_work(self, duration: int) -> Waiting:
        """Whatever becomes of the client meanwhile."""
        clock = self._world.clock
        clock.at(clock.now + duration, self._wake)
        return ApplicationBusy(clock, duration)

    def _rest(self) -> Waiting:
        """What a database takes for a step: now and then long enough for anything."""
        chance = self._world.chance
        longest = 400 * MILLISECOND if chance.random() < 0.05 else 2 * MILLISECOND
        return self._at_work(chance.randrange(longest))

    def _carry_out(self, verb: InboxVerb[T]) -> Work[T]:
        try:
            step = next(verb)
            while True:
                if not isinstance(step, Step):
                    waited = step
                    yield lambda waited=waited: waited.done
                    step = verb.send(None)
                    continue
                yield self._rest()
                try:
                    answer = self._connection.perform(step)
                except OnceMQError as error:
                    step = verb.throw(error)
                else:
                    yield self._rest()  # the answer is on its way: what happened has happened
                    step = verb.send(answer)
        except StopIteration as end:
            return end.value
        finally:
            verb.close()
