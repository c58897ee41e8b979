"""A small world for the relay's rules: a database, a wire that keeps copies, and the real broker.

Nothing here waits: `play` takes a schedule of numbers and does what they say, whatever that is.
`end` then lets one last relay finish its work in peace, and compares what was committed with
what was published.
"""

# pyright: reportArgumentType=false
# Names and numbers are written plainly here.

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import count

import msgspec

from oncemq.broker.broker import Broker
from oncemq.broker.state.shard import Shard
from oncemq.protocol.names import Micros, Serial
from oncemq.protocol.records import MessagesStored, Retention
from oncemq.protocol.replies import PutAccepted, RefusedReply, Reply, Resumed, Welcome
from oncemq.protocol.requests import (
    ConfigureTopic,
    CreateTopic,
    Hello,
    Put,
    Request,
    Resume,
    StagePut,
)
from oncemq.protocol.step import Body, Caller, Deliver
from oncemq.relay.topic_relay import (
    AskStanding,
    NumberRows,
    Row,
    Send,
    StandingChange,
    TopicRelay,
    TopicStanding,
)
from oncemq.wire import batch

TOPIC = "orders"
PRODUCER = b"outbox of a test"
OPEN_MAX, RELAYS_MAX, WIRE_MAX = 4, 2, 6


@dataclass
class Transaction:
    """A user's transaction: its rows, the place it got when it began to commit, what it saw."""

    name: int
    rows: list[int] = field(default_factory=list)
    place: int = 0
    saw: frozenset[int] = frozenset()


class Database:
    """Committed rows and the standing, changed only if it is what it was."""

    def __init__(self) -> None:
        self.rows: dict[int, tuple[int, bytes]] = {}  # id: place, payload
        self.failed: dict[int, str] = {}
        self.standing = TopicStanding(TOPIC, PRODUCER)

    def candidates(self, standing: TopicStanding) -> list[Row]:
        """What may be numbered next: the rest of a transaction that was broken off goes first."""
        taken = {*standing.planned, *self.failed}
        return sorted(
            (Row(key, place, len(text)) for key, (place, text) in self.rows.items()
             if key not in taken),
            key=lambda row: (row.place != standing.last_place, row.place, row.id),
        )  # fmt: skip

    def commit(self, change: StandingChange) -> bool:
        if self.standing.version != change.before.version:
            return False
        self.standing = change.after
        for key in change.freed:
            self.rows.pop(key, None)
        self.failed |= dict.fromkeys(change.set_aside, change.reason)
        return True


class FullDisk:
    """Lets no new message in."""

    def check(self, request: Request, now: Micros, *, derived: int = 0) -> None:
        """Facts have room left."""

    def check_put(
        self, put: Put | StagePut, body: Body, now: Micros, seed: int, *, derived: int = 0
    ) -> RefusedReply:
        return RefusedReply("storage_full", "no room")


class Server:
    """The real broker, always synced, that refuses poison, and everything while it is full.

    `old`: it does not know that a put may be required.
    """

    def __init__(self, *, old: bool = False) -> None:
        self.old = old
        self.shard = Shard(7)
        self.broker = Broker(self.shard)
        self.broker.recovered(Micros(0))
        self.full = False
        self.poison = b"poison"  # with it ends what is refused here
        self.stored: list[bytes] = []
        self.durable = 0
        self.clock = count(1_000)  # copies of a server share it: none has a moment of another's
        self._tokens = count(1)
        self.ask(CreateTopic(TOPIC, Retention(forever=True)), None)

    def keep(self, *, keeps: bool) -> None:
        """Whether the topic, to which nobody subscribes, keeps what is put."""
        self.ask(ConfigureTopic(TOPIC, Retention(forever=keeps)), None)

    def ask(self, request: Request, body: bytes | None) -> Reply | Deliver:
        if isinstance(request, Put):
            if self.old:
                request = msgspec.structs.replace(request, required=False)
            payloads = batch.payloads_of(body or b"", request.count, request.columns)
            if any(payload.endswith(self.poison) for payload in payloads):
                return RefusedReply("too_large", "poison")
        now = Micros(next(self.clock))
        gate = FullDisk() if self.full else None
        step = self.broker.handle(Caller(b"", next(self._tokens)), request, body, now, gate)
        for write in step.writes:
            if isinstance(write.record, MessagesStored):
                self.stored += batch.payloads_of(body or b"", write.record.count, 0)
        self.durable += len(step.writes)
        self.broker.synced(Serial(self.durable))
        (owed,) = step.replies
        return owed.answer


@dataclass
class Relay:
    """One relay: an errand, its epoch, and the one request it waits for."""

    errand: TopicRelay
    client: str
    client_epoch: int
    numbers: Iterable[int] = field(default_factory=lambda: count(1))
    token: int = 0
    request: tuple[Request, bytes | None] | None = None


@dataclass
class Envelope:
    token: int
    content: tuple[Request, bytes | None] | Reply


class World:
    """Writers, relays, wire, server. `own_ids`: no relay is fenced by the server."""

    def __init__(
        self, *, sets_aside: bool = False, own_ids: bool = False, old_server: bool = False
    ) -> None:
        self.database = Database()
        self.server = Server(old=old_server)
        self.sets_aside = sets_aside
        self.own_ids = own_ids
        self.relays: list[Relay] = []
        self.wire: list[Envelope] = []
        self.open: list[Transaction] = []
        self.committed: list[Transaction] = []
        self.texts: dict[int, bytes] = {}
        self._keys, self._places, self._names = count(1), count(1), count(1)
        self._tokens, self._starts = count(1), count(1)
        self._epochs: dict[str, int] = {}

    # Writers

    def write(self, choice: int) -> None:
        if not self.open or (choice % 3 == 0 and len(self.open) < OPEN_MAX):
            self.open.append(Transaction(next(self._names)))
        writer = self.open[choice % len(self.open)]
        if writer.place == 0:
            key = next(self._keys)
            poison = self.sets_aside and choice % 11 == 5
            self.texts[key] = b"%d %d%s" % (writer.name, key, b" poison" if poison else b"")
            writer.rows.append(key)

    def prepare(self, choice: int) -> None:
        """A transaction begins to commit: it gets its place, and has seen all it ever will."""
        waiting = [each for each in self.open if not each.place]
        if waiting:
            writer = waiting[choice % len(waiting)]
            writer.place = next(self._places)
            writer.saw = frozenset(each.name for each in self.committed)

    def commit(self, choice: int) -> None:
        ready = [each for each in self.open if each.place]
        if ready:
            writer = ready[choice % len(ready)]
            self.open.remove(writer)
            self.committed.append(writer)
            self.database.rows |= {key: (writer.place, self.texts[key]) for key in writer.rows}

    def roll_back(self, choice: int) -> None:
        if self.open:
            self.open.pop(choice % len(self.open))

    # Relays

    def start(self, _: int) -> None:
        if len(self.relays) < RELAYS_MAX:
            number = next(self._starts)
            client = f"relay-{number}" if self.own_ids else "relay"
            welcome = self.server.ask(Hello(client, self._epochs.get(client, 0), number), None)
            assert isinstance(welcome, Welcome)
            self._epochs[client] = welcome.client_epoch
            errand = self.make_errand(self.database.standing)
            self.relays.append(Relay(errand, client, welcome.client_epoch))

    def make_errand(self, standing: TopicStanding) -> TopicRelay:
        return TopicRelay(standing, sets_aside=self.sets_aside)

    def crash(self, choice: int) -> None:
        if self.relays:
            self.relays.pop(choice % len(self.relays))

    def act(self, choice: int) -> None:
        """A relay does the next thing: commits, asks, plans or sends."""
        if not self.relays:
            return
        relay = self.relays[choice % len(self.relays)]
        errand = relay.errand
        errand.put_off = False
        if errand.change is not None:
            self.settle_change(relay, errand.change)
            return
        match errand.next():
            case AskStanding():
                self._send(relay, None)
            case NumberRows():
                rows = self.database.candidates(errand.standing)
                errand.plan(rows, rows_max=3, bytes_max=40)
            case Send(first, rows):
                if not all(key in self.database.rows for key in rows):
                    self.relays.remove(relay)  # another relay has freed them: begin again
                    return
                self._send(relay, (first, [self.database.rows[key][1] for key in rows]))
            case None:
                pass

    def settle_change(self, relay: Relay, change: StandingChange) -> None:
        if self.database.commit(change):
            relay.errand.committed()
        else:
            self.relays.remove(relay)  # another relay was here: this one begins again

    def _send(self, relay: Relay, what: tuple[int, list[bytes]] | None) -> None:
        standing = relay.errand.standing
        if what is None:
            number = next(iter(relay.numbers))
            resume = Resume(
                relay.client, relay.client_epoch, TOPIC, standing.producer, number,
                standing.topic_id,
            )  # fmt: skip
            relay.request = (resume, None)
        else:
            first, payloads = what
            body = batch.encode_payloads(payloads)
            seed = batch.seed(TOPIC, standing.producer, first, len(payloads))
            relay.request = (
                Put(relay.client, relay.client_epoch, TOPIC, standing.topic_id, standing.producer,
                    True, first, len(payloads), 0, batch.checksum(body, seed),
                    relay.errand.permit, required=relay.errand.required, after=standing.moment),
                body,
            )  # fmt: skip
        relay.token = next(self._tokens)
        relay.errand.under_way = True
        self.send_again(self.relays.index(relay))

    def send_again(self, choice: int) -> None:
        """The engine sends once more what has no answer yet."""
        if self.relays and len(self.wire) < WIRE_MAX:
            relay = self.relays[choice % len(self.relays)]
            if relay.request is not None and relay.errand.under_way:
                request, body = relay.request
                relay.errand.sends += isinstance(request, Put)
                self.wire.append(Envelope(relay.token, (request, body)))

    # The wire

    def deliver(self, choice: int) -> None:
        """Something arrives; a copy of it may stay on the wire, and arrive again, late."""
        if not self.wire:
            return
        envelope = self.wire[choice % len(self.wire)]
        if choice % 5 or isinstance(envelope.content, Reply):
            self.wire.remove(envelope)
        if isinstance(envelope.content, Reply):
            self._answer(envelope.token, envelope.content)
        else:
            reply = self.server.ask(*envelope.content)
            assert isinstance(reply, Reply)
            self.wire.append(Envelope(envelope.token, reply))

    def lose(self, choice: int) -> None:
        if self.wire:
            self.wire.pop(choice % len(self.wire))

    def fill(self, choice: int) -> None:
        self.server.full = choice % 2 == 0

    def want(self, choice: int) -> None:
        """Somebody would get the messages from now on, or nobody would."""
        self.server.keep(keeps=choice % 2 == 0)

    def _answer(self, token: int, reply: Reply) -> None:
        for relay in self.relays:
            if relay.token == token and relay.errand.under_way:
                self.hear(relay, reply)

    def hear(self, relay: Relay, reply: Reply) -> None:
        errand = relay.errand
        match reply:
            case RefusedReply(code="fenced"):
                self.relays.remove(relay)
            case RefusedReply():
                errand.refused(reply)
            case Resumed():
                errand.resumed(reply)
            case PutAccepted():
                errand.accepted(reply)
            case _:
                raise AssertionError(reply)

    # The whole

    ACTIONS = (write, write, prepare, commit, roll_back, start, start, crash,
               act, act, act, act, send_again, deliver, deliver, deliver, lose, fill,
               want)  # fmt: skip

    def play(self, schedule: Iterable[int]) -> "World":
        for number in schedule:
            choice, action = divmod(number, len(self.ACTIONS))
            getattr(self, self.ACTIONS[action].__name__)(choice)
        return self

    def end(self) -> "World":
        """Everybody commits, late copies arrive, and one relay finishes what is left."""
        self.server.full = False
        self.server.keep(keeps=True)
        for writer in list(self.open):
            if not writer.place:
                self.prepare([each for each in self.open if not each.place].index(writer))
        while self.open:
            self.commit(0)
        while self.wire:
            self.deliver(1)
        for _ in range(200 + 30 * len(self.texts)):
            if not self.relays:
                self.start(0)
            self.act(0)
            self.send_again(0)
            while self.wire:
                self.deliver(1)
            if self._at_rest():
                break
        return self

    def _at_rest(self) -> bool:
        left = [key for key in self.database.rows if key not in self.database.failed]
        standing = self.database.standing
        return not left or bool(standing.stopped and not standing.waits)

    def check(self) -> None:
        """Each committed row once, a transaction's together and in order, what it saw before it."""
        assert not self.database.standing.stopped, self.database.standing.stopped
        published = [int(text.split()[1]) for text in self.server.stored]
        expected = {key for each in self.committed for key in each.rows}
        expected -= self.database.failed.keys()
        assert all(self.texts[key].endswith(b"poison") for key in self.database.failed)
        assert sorted(published) == sorted(expected), "each committed row once, no other"
        spot = {key: at for at, key in enumerate(published)}
        spans: dict[int, list[int]] = {}
        for each in self.committed:
            spots = [spot[key] for key in each.rows if key in spot]
            if spots:
                assert spots == list(range(spots[0], spots[0] + len(spots))), "not together"
                spans[each.name] = spots
        for each in self.committed:
            for seen in each.saw & spans.keys():
                if each.name in spans:
                    assert spans[seen][-1] < spans[each.name][0], "seen, and published after"
