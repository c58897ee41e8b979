"""The shipped client in simulated time: the real engine and verbs, moved by events.

A `ClientMachine` is what outlives its processes: a machine with a disk, and a journal. A
`Process` is one start of it. Its calls run like threads of a blocking client: gets one at a time,
puts one at a time, subscribing one at a time, the three beside each other.
"""

from collections.abc import Callable, Iterator, Mapping
from operator import attrgetter
from types import MappingProxyType

from oncemq.audit.facts import OpenedFact
from oncemq.client.engine.engine import Engine
from oncemq.client.settings import Settings
from oncemq.client.state.outbox import open_slots
from oncemq.client.state.state import State
from oncemq.client.ticket import Ticket
from oncemq.client.values import Message, Receipts
from oncemq.client.verbs import messages as verbs
from oncemq.errors import Fenced, HistoryLost, OnceMQError, StorageRefused, StorageUnsure
from oncemq.protocol.names import ANONYMOUS, Micros
from oncemq.session.publisher import PutBatch
from oncemq.wire import batch
from simulator.actors.calls import Calls, Work, carry_out, topic_put_to
from simulator.actors.inbox import SimulatedInbox
from simulator.actors.listener_marks import listener_marks
from simulator.actors.shared_world import World
from simulator.clock import MICROSECOND, MILLISECOND
from simulator.history import stories
from simulator.history.stories import HandedOut, PutStory
from simulator.machines.client_machine import ClientMachine
from simulator.machines.machine import Died, ProcessDisk, Trap
from simulator.network.feed import SimulatedFeedSubscriber
from simulator.network.network import SimulatedDealer

PROMPT = 100 * MICROSECOND  # how long a process takes to notice something
GATHER = 2 * MILLISECOND  # how long puts gather that nobody waits for
PAUSE = 5 * MILLISECOND  # when something is overdue and cannot leave
NOTHING: Mapping[str, int] = MappingProxyType({})
UNSURE = Fenced, HistoryLost, StorageUnsure  # what a put meets that may be stored all the same

subscription_of = attrgetter("_origin.head.subscription_id")
topic_id_of = attrgetter("_origin.head.topic_id")
generation_of = attrgetter("_origin.generation")


class Process:
    """One start of a client; it runs from the moment it exists, unless `dead` says otherwise."""

    engine: Engine
    calls: Calls

    def __init__(
        self,
        world: World,
        client: ClientMachine,
        *,
        sprung: Callable[[Trap], None],
        trap: Trap | None = None,
        abreast: bool = False,
    ) -> None:
        world.processes += 1
        self.number = client.newest = world.processes
        # Another one is not let in yet: of these two, either may be the first.
        self._abreast = abreast
        self.client = client
        self.dead = False
        self.failure: OnceMQError | None = None
        self.is_stopping = False
        self.inbox: SimulatedInbox | None = None
        self.disk = ProcessDisk(client.machine, sprung)
        self.disk.trap = trap
        self.world = world
        self.clock = world.clock
        self.history = world.history
        self._watched: list[tuple[Ticket[Receipts], int, PutStory]] = []
        self._refused: list[Ticket[Receipts]] = []  # as of before a failure: to be dropped
        self.numbered: set[str] = set()  # topics whose last number the server surely has
        self._wake_at = -1
        self.is_let_in = not client.lasting
        self._line = SimulatedDealer(world.network, client.name, self.wake)
        self._feed_subscriber = SimulatedFeedSubscriber(world.network.air, client.name, self.wake)
        self._alive(self._open)

    def _open(self) -> None:
        try:
            self._start()
        except StorageRefused as error:
            self.world.tell(f"client start {error.code}")
            self.die()  # somebody starts it again

    def _start(self) -> None:
        chance, client = self.world.chance, self.client
        state = State(
            client.name if client.lasting else f"{ANONYMOUS}{self.number}",
            journal=client.journal if client.lasting else None,
            slots=open_slots(self.disk, "/outbox", chance.randbytes) if client.lasting else [],
            directory="/", random_bytes=chance.randbytes, close=lambda: None,
        )  # fmt: skip
        settings = Settings(self.world.servers_of(client.name), 4.0, 1 << 20, chance.random)
        settings.lanes_kept = 1 if self.history.lives.mortal else settings.lanes_kept
        self.engine = Engine(settings, state, self._line, self._now, self._feed_subscriber)
        self.calls = Calls(self.clock, self.engine, self.world.tell)
        if client.database is not None:
            self.inbox = SimulatedInbox(self.engine, client.database, self.world, self.wake)
        self.wake()

    def die(self) -> None:
        """The process ends here and now."""
        self.dead = True
        self.disk.die()
        self._line.close()
        self._feed_subscriber.close()
        if hasattr(self, "calls"):
            self.calls.end()
            self.count_marks()
        if self.inbox is not None:
            self.inbox.die()
        for mark in self.client.marks:
            self.world.tell(mark)
        for ticket, _, story in self._watched:
            if isinstance(ticket.error, UNSURE):
                continue
            if ticket.error is not None or self._was_refused(ticket):
                story.recorded = False  # it was refused, and nobody heard of it: either is right

    def _was_refused(self, ticket: Ticket[Receipts]) -> bool:
        """Whether its end came while a refused put was dropped, or before that was said."""
        kept = [each.ticket for each in self._parcels() if each.refusal is None]
        return not ticket.done and not any(each is ticket for each in kept)

    def _parcels(self) -> Iterator[PutBatch]:
        for lane in vars(self.engine.outflow)["_publisher"].all_lanes():
            yield from lane.parcels

    def moment(self) -> int:
        """A point in the order of events."""
        return self.history.moment()

    @property
    def seen(self) -> int:
        """How much there was to see so far."""
        return len(self.history.seen)

    def count_marks(self) -> None:
        """What befell it as a listener."""
        for name, count in listener_marks(self.engine.listening).items():
            for _ in range(count):
                self.world.tell(name)

    @property
    def idle(self) -> bool:
        """Whether every put has its answer and no call is under way."""
        return self.engine.outflow.idle and not self.calls

    @property
    def is_whole(self) -> bool:
        """Whether it goes on, and holds every slot of the outbox: a twin may have left one."""
        if not self.client.lasting:
            return not self.is_stopping
        slots = [name for name in self.disk.names("/outbox") if name.isdigit()]
        return not self.is_stopping and len(slots) == len(self.engine.state.slots)

    # What applications do

    def put(
        self, number: int, topic: str, *, count: int, size: int, durable: bool, wait: bool,
        required: bool = False,
    ) -> None:  # fmt: skip
        """Put a batch, waiting for the receipt or not."""
        work = self._put(number, topic, count, size, durable=durable, wait=wait, required=required)
        self.calls.begin("put", work)
        self.wake()

    def begin(self, strand: str, work: Work[None], *, wait_ms: int = 0) -> None:
        """Any work of an application."""
        self.calls.begin(strand, work, wait=wait_ms * MILLISECOND)
        self.wake()

    def get(
        self, topic: str, limit: int, wait_ms: int, hold_ms: int = 0, fails: bool = False
    ) -> None:
        """Get messages: settled at once, or after `hold_ms`, or (`fails`) put back then."""
        work = self._get(topic, limit, wait_ms, hold_ms, fails=fails)
        self.calls.begin("get", work, wait=(wait_ms + hold_ms) * MILLISECOND)
        self.wake()

    def drain(self, topic: str) -> None:
        """Get everything that is there."""
        self.calls.begin("get", self._drain(topic))
        self.wake()

    def stop(self) -> None:
        """Close as an application does: send the rest, tell what is settled, let go."""
        if not self.is_stopping:
            self.is_stopping = True
            self.calls.begin("stop", self._stop(), then=self._close)
        self.wake()

    def _put(
        self, number: int, topic: str, count: int, size: int, *, durable: bool, wait: bool,
        required: bool,
    ) -> Work[None]:  # fmt: skip
        outflow = self.engine.outflow
        payloads = stories.payloads(number, count, size)
        story = PutStory(
            number, self.client.name, self.number, topic, count, size, self.history.moment(),
            lasting=durable and self.client.lasting, required=required,
        )  # fmt: skip
        self.history.puts[number] = story
        place = 0
        try:
            outflow.check(topic, size)
            if wait or stories.key(number, 0) is not None:
                keys = [stories.key(number, place) for place in range(count)]
                columns, body = batch.encode(list(map(batch.Item, payloads, keys)))
                ticket = outflow.put(
                    topic, count=count, columns=columns, body=body, lasting=durable,
                    required=required,
                )  # fmt: skip
                # A required one may be refused after a restart, when nobody waits for it.
                story.recorded = story.lasting and not required
            else:
                gathered = outflow.gather(topic, payloads, None, lasting=durable, required=required)
                ticket, place, _ = gathered
        except OnceMQError as error:
            if not isinstance(error, StorageUnsure):
                story.refused = error.code
            raise
        self._watched.append((ticket, place, story))
        if wait:
            ticket.looked_at = True
            yield lambda: ticket.done

    def _get(
        self, topic: str, limit: int, wait_ms: int, hold_ms: int, *, fails: bool
    ) -> Work[None]:
        asked = self.history.moment()
        if self.inbox is not None:
            yield from self.inbox.consume(
                topic, limit, wait_ms, hold_ms, asked, fails=fails, given=self.hand_out
            )
            return
        messages = yield from carry_out(verbs.take(self.engine, topic, limit, wait_ms))
        if hold_ms:
            yield from self.hold(hold_ms * MILLISECOND)
        if fails:
            self.world.tell("put back")
            self.engine.subscriber.prefetched.put_back(topic)
            return
        verbs.settle(self.engine, messages)
        self.hand_out(messages, asked)

    def hold(self, delay: int) -> Work[None]:
        """Take so long over something."""
        until = self.clock.now + delay
        self.clock.at(until, self.wake)
        yield lambda: self.clock.now >= until

    def _drain(self, topic: str) -> Work[None]:
        before = -1
        while before != self.seen:
            before = self.seen
            yield from self._get(topic, 500, 0, 0, fails=False)

    def hand_out(
        self, messages: list[Message], asked: int, allowed: Mapping[str, int] = NOTHING
    ) -> None:
        """These reached the application; `allowed`: of each topic, see `Given`."""
        for message in messages:
            self.clock.note(f"given {self.client.name} {message.id}")
            given = HandedOut(
                self.client.name, self.number, self._life(message), subscription_of(message),
                message.offset, message.payload, message.key, asked, self.history.moment(),
                generation_of(message), allowed.get(message.topic, 0),
            )  # fmt: skip
            self.history.seen.append(given)

    def _life(self, message: Message) -> str:
        """Its topic for the checker; the first message of one is looked at."""
        lives, topic = self.history.lives, message.topic
        life = lives.name(topic, topic_id_of(message))
        if message.offset == 0 and topic not in self.client.interests.all:
            self.world.tell("topic of a pattern")
        if message.offset == 0 and life != lives.of(topic)[0]:
            self.world.tell("topic made anew")
        return life

    def _stop(self) -> Work[None]:
        yield lambda: self.engine.outflow.idle
        yield from carry_out(verbs.leave(self.engine))

    def _close(self) -> None:
        self.engine.close()
        if self.failure is None:
            for _, _, story in self._watched:
                story.recorded = story.lasting  # a close leaves nothing unrecorded
        self.die()

    # Moving the engine

    def wake(self) -> None:
        """Look at what came, soon."""
        self._wake(self.world.chance.randrange(PROMPT // 10, PROMPT))

    def _wake(self, delay: int) -> None:
        moment = self.clock.now + delay
        if self._wake_at < 0 or moment < self._wake_at:
            self._wake_at = moment
            self.clock.at(moment, lambda: self._alive(lambda: self._due(moment)))

    def _alive(self, event: Callable[[], None]) -> None:
        if self.dead:
            return
        try:
            event()
        except Died:
            self.die()
        except Exception as error:
            self.history.error(f"process {self.number} of {self.client.name}", error)
            self.die()

    def _due(self, moment: int) -> None:
        if moment != self._wake_at:
            return
        self._wake_at = -1
        moved = True
        while moved and not self.dead:
            self.engine.pump()
            self._look()
            moved = self.calls.move()
        if not self.dead:
            self._wake_for_next()

    def _wake_for_next(self) -> None:
        deadline = self.engine.next_deadline()
        if deadline is not None and self.failure is None:
            self._wake(max(PAUSE, (deadline - self._now()) * MICROSECOND))
        if self.engine.outflow.gathering:
            self._wake(GATHER)
        gives_up = self.calls.next_deadline()
        if gives_up is not None:
            self._wake(max(PAUSE, gives_up - self.clock.now))

    def _now(self) -> Micros:
        return Micros(self.clock.now // MICROSECOND)

    def _look(self) -> None:
        """What became of the greeting, of the whole client, of its puts."""
        engine = self.engine
        if engine.failure is None:
            self._refused = [each.ticket for each in self._parcels() if each.refusal is not None]
        if self.client.lasting and self.is_let_in != (engine.client_epoch is not None):
            self.is_let_in = not self.is_let_in
            if engine.client_epoch is not None:
                moment = self.history.moment()
                opened = OpenedFact(self.client.name, self.number, engine.client_epoch, moment)
                self.history.seen.append(opened)
                self.history.back.let_in(self.client, engine.generation, self.number)
        if engine.failure is not None and self.failure is None:
            self.failure = engine.failure
            self.world.tell(f"client {engine.failure.code}")
            newest = self.number == self.client.newest
            overtaken = self._abreast or self.history.back.may_be_overtaken(self.client.name)
            if engine.failure.code == "fenced" and newest and not overtaken:
                self.history.trouble(f"fenced: {self.client.name}, though nothing newer began")
            if engine.failure.code == "history_lost":
                self.world.lost_history(self.client.name)
        done = [each for each in self._watched if each[0].done]
        self._watched = [each for each in self._watched if not each[0].done]
        for each in done:
            self._answered(*each)

    def _answered(self, ticket: Ticket[Receipts], place: int, story: PutStory) -> None:
        if isinstance(ticket.error, UNSURE):
            if any(each is ticket for each in self._refused):
                story.recorded = False  # its disk may have dropped it, or not: either is right
            return  # the next start sends what was recorded
        story.answered = self.history.moment()
        self.numbered.discard(story.topic)
        if ticket.error is not None:
            story.refused = ticket.error.code
            self.world.tell(f"put {ticket.error.code}")
            return
        receipt = ticket.result()[place]
        if self.history.lives.is_over(story.topic, receipt):
            self.world.tell("put known from a deleted topic")
            return
        story.first_offset, story.stored = receipt.offset, receipt.stored
        self.history.back.accepted(story, self.client)
        put_to = topic_put_to(self.engine, story.topic, lasting=story.lasting)
        story.life = self.history.lives.name(story.topic, put_to)
        if story.lasting and self.engine.outflow.idle:
            self.numbered.add(story.topic)
        self.world.tell("put duplicate" if receipt.duplicate else "put new")
        if not receipt.stored:
            self.world.tell("put nobody wants")
        self.clock.note(f"receipt {story.number} {receipt.offset} {receipt.duplicate}")
