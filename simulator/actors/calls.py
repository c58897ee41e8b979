"""The calls of one simulated process: what its threads are doing, and until when they wait.

Laws: calls of one strand run one after the other, strands beside each other. As in
`client.turns`, a wait ends when it is over, when the client failed, or when time is up; then the
verb takes its request back.
"""

from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TypeVar

from oncemq.client.engine.engine import Engine
from oncemq.client.verbs.messages import Verb
from oncemq.errors import OnceMQError, StorageFull
from oncemq.protocol.names import TopicId
from simulator.clock import SECOND, Clock

T = TypeVar("T")

Waiting = Callable[[], bool]
Work = Generator[Waiting, None, T]  # yields what it waits for


def at_once() -> bool:
    """Nothing to wait for."""
    return True


class ApplicationBusy:
    """The application is at work, or waits for something of its own: only time ends that."""

    def __init__(self, clock: Clock, duration: int) -> None:
        self._clock = clock
        self._until = clock.now + duration

    def __call__(self) -> bool:
        return self._clock.now >= self._until


def carry_out(verb: Verb[T]) -> Work[T]:
    """A verb of the client as work: waits for each ticket it yields."""
    try:
        ticket = next(verb)
        while True:
            yield lambda waited=ticket: waited.done
            ticket = verb.send(None)
    except StopIteration as end:
        return end.value
    finally:
        verb.close()


def until_there_is_room(
    begin: Callable[[], Work[None]], pause: Callable[[], Work[None]]
) -> Work[None]:
    """Begin it anew, after a pause, as long as the server says that its disk is full.

    The server may say so for a moment after there is room again: it asks the disk once a second,
    and not while a checkpoint uses the room that it was lent. Who is refused then asks again.
    """
    while True:
        try:
            return (yield from begin())
        except StorageFull:
            yield from pause()


@dataclass(slots=True, eq=False)
class Call:
    """One call of an application."""

    work: Work[None]
    patience: int  # how long it waits for any one thing
    then: Callable[[], None]  # whatever became of it
    ready: Waiting = at_once
    deadline: int = 1 << 62


class Calls:
    """Every call of a process that has not returned."""

    def __init__(self, clock: Clock, engine: Engine, told: Callable[[str], None]) -> None:
        self._clock = clock
        self._engine = engine
        self._told = told
        self._strands: dict[str, deque[Call]] = {}
        self.returned = 0

    def __bool__(self) -> bool:
        return any(self._strands.values())

    def begin(
        self,
        strand: str,
        work: Work[None],
        *,
        wait: int = 0,
        then: Callable[[], object] = at_once,
        patience: int = 4 * SECOND,
    ) -> None:
        """A new call; `wait` is what the application itself is ready to wait longer."""
        call = Call(work, patience + wait, lambda: (then(), None)[1])
        self._strands.setdefault(strand, deque()).append(call)

    def end(self) -> None:
        """The process is no more: none of them goes on."""
        for calls in self._strands.values():
            calls.clear()

    def next_deadline(self) -> int | None:
        """When the first of them gives up."""
        return min((calls[0].deadline for calls in self._strands.values() if calls), default=None)

    def move(self) -> bool:
        """Let every call go on that can; whether any did."""
        moved = False
        for calls in list(self._strands.values()):
            while calls and self._can_move(calls[0]):
                moved = True
                call = calls[0]
                if not self._step(call):
                    calls.popleft()
                    self.returned += 1
                    call.then()
        return moved

    def _can_move(self, call: Call) -> bool:
        if call.ready() or isinstance(call.ready, ApplicationBusy):
            return call.ready()
        return self._engine.failure is not None or call.deadline <= self._clock.now

    def _step(self, call: Call) -> bool:
        """One step of a call; False when that was its last."""
        try:
            if not call.ready():
                call.work.close()
                if self._engine.failure is not None:
                    raise self._engine.failure
                raise self._engine.gave_up(call.patience / SECOND, "an answer")
            call.ready = next(call.work)
            call.deadline = self._clock.now + call.patience
        except StopIteration:
            return False
        except OnceMQError as error:
            self._told(error.code)
            return False
        return True


def topic_put_to(engine: Engine, topic: str, *, lasting: bool) -> TopicId:
    """Which topic of that name the client's puts go to, as far as it knows."""
    producer = engine.outflow.producers.for_topic(topic, lasting=lasting)
    return vars(engine.outflow)["_publisher"].numbers(topic, producer).topic_id
