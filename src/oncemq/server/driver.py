"""Between the frames and the disk: decode, decide, append, and answer only what is committed.

No socket, no thread, no clock in here: the simulator runs this very code.
Law: a reply whose facts are not committed is held; after a failed sync it is never sent. On a
server that is alone everything is committed that is on its disk; among replicas, what is on the
disks of all that are in sync.
"""

import heapq
import logging
from collections.abc import Callable, Sequence

from oncemq.broker.broker import Broker
from oncemq.broker.expiry import UPKEEP_BYTES, Calendar, Rounds
from oncemq.broker.given import Facts
from oncemq.errors import StorageRefused
from oncemq.protocol.generations import in_words
from oncemq.protocol.names import Generation, Micros, Serial, TopicId
from oncemq.protocol.patterns import is_pattern
from oncemq.protocol.records import MessagesLost, MessagesStaged, MessagesStored
from oncemq.protocol.replies import (
    Done,
    RefusedReply,
    Reply,
    Welcome,
)
from oncemq.protocol.requests import (
    START_NEW,
    START_OFFSET,
    START_TIME,
    Hello,
    Put,
    Request,
    Start,
    Subscribe,
)
from oncemq.protocol.step import Body, Caller, Deliver, Step
from oncemq.server.admission import Admission
from oncemq.server.events import Events
from oncemq.server.feed import Pushes
from oncemq.server.held_answers import HeldAnswers
from oncemq.server.reader import Reader, damage_in, unreadable
from oncemq.server.served import Outgoing, sooner
from oncemq.storage.log.log import Group, Log
from oncemq.wire import codec

LAZY_MICROS = 50_000  # how long a fact nobody waits for may gather before it is synced
GATHER_BYTES = 1 << 20  # or how much
READ_BYTES = 16 << 20  # from the log, for answers: then they leave before more is read
LOST_BYTES = 128  # of the log, to note one hole

# An answer that nobody waits for: who gets it is connected, and passes over it.
ARE_YOU_THERE = codec.encode_reply(0, Done(changed=False), ())

logger = logging.getLogger("oncemq.server")


class Driver:
    """One shard of a server, between its socket and its log."""

    has_news = False

    def __init__(self, broker: Broker, log: Log) -> None:
        self.broker = broker
        self.shard = broker.shard
        self.folded = None  # it is where the log ends
        self.log = log
        self.calendar = broker.calendar  # how the clock stands, as far as the shard was told
        self.outgoing: list[Outgoing] = []
        self.reaches: Callable[[bytes, Sequence[Body]], bool] = _reaches_nobody  # as the loop does
        self.takes: Callable[[bytes], bool] = _takes_everything  # whether a peer reads its answers
        self.hand_over: Callable[[], None] = _later  # what is outgoing, as the loop does
        self._read_bytes = 0  # from the log, and outgoing
        self.pushes = Pushes(broker.shard)
        self.connections: Callable[[], Facts] = dict  # the loop knows
        self.events = Events()
        self._disk_is_full = False
        self.admission = Admission(broker.rules, log, broker.shard)
        self.reader = Reader(log)
        self._retained = Rounds()
        self._held = HeldAnswers()
        self.is_alone = True  # no other replica is waited for
        self.damage = ""  # of the log, that a reader met
        self._committed = log.last_serial  # recovery made it so
        self._gathered_bytes = 0
        self._writing_bytes = 0  # of the group under way to the disk
        self._gathered_since: Micros | None = None
        self._sync_due: Micros | None = None  # with sync_ms: of what was told and not synced
        self._marked = Serial(0)  # the newest mark of ours in the log

    def bind(
        self,
        *,
        reaches: Callable[[bytes, Sequence[Body]], bool],
        takes: Callable[[bytes], bool],
        hand_over: Callable[[], None],
        connections: Callable[[], Facts],
    ) -> None:
        """The loop's sockets, and what it knows of them."""
        self.reaches, self.takes = reaches, takes
        self.hand_over, self.connections = hand_over, connections

    def begin(self, now: Micros) -> None:
        """The server starts: when the log went back in time since, that is its first fact."""
        before = self.broker.shard.generation
        self._carry_out(self.broker.begin_generation(Generation(self.log.generation), now), now)
        if self.log.generation > before:
            logger.warning(
                "log went back in time generation=%s before=%s",
                *(in_words(self.log.generation), in_words(before)),
            )

    def may_stop(self, now: Micros) -> bool:
        """Whoever is alone has nothing to give away."""
        return True

    # What comes in

    def take_news(self, now: Micros) -> None:
        """There is nobody else: see `has_news`."""

    def listens(self, *, joined: bool, subject: bytes) -> None:
        """Somebody listens to a subject of the feed, or nobody any more."""
        self.pushes.changed(joined=joined, subject=subject)

    def receive(self, route: bytes, frames: Sequence[Body], now: Micros) -> None:
        """One message from the network, whatever it is."""
        try:
            token, request, body = codec.decode_request(frames)
        except codec.Malformed as fault:
            self._send(Caller(route, fault.token), fault.refusal)
            return
        caller = Caller(route, token)
        start = None
        if isinstance(request, Subscribe) and request.start.mode == START_TIME:
            try:
                start = self._found(request)
            except (StorageRefused, OSError) as trouble:
                self.damage = self.damage or damage_in(trouble)
                self._send(caller, unreadable(trouble))
                return
        step = self.broker.handle(caller, request, body, now, self.admission, start, self)
        if step.refusals or self._disk_is_full or isinstance(request, Hello):
            self._tell(request, step, now)
        if step.writes:
            self._gathered_bytes += len(frames[0])  # facts take about what they were asked in
        self._carry_out(step, now)

    def _tell(self, request: Request, step: Step, now: Micros) -> None:
        """Note what is worth a line in the log."""
        if self._disk_is_full and isinstance(request, Put) and step.writes:
            self._disk_is_full = False
            self.events.note("disk_has_room_again", now)
        for owed in step.replies:
            if isinstance(owed.answer, RefusedReply):
                self._refused(request, owed.answer, now)
            elif isinstance(owed.answer, Welcome) and isinstance(request, Hello) and step.writes:
                epoch = int(owed.answer.client_epoch)
                self.events.note("client_let_in", now, id=request.client, epoch=epoch)

    def _refused(self, request: Request, refusal: RefusedReply, now: Micros) -> None:
        if refusal.code == "storage_full":
            if not self._disk_is_full:
                self.events.note("disk_full", now, used=self.log.bytes_used)
            self._disk_is_full = True
        kind = "client_fenced" if refusal.code == "fenced" else "request_refused"
        client = str(getattr(request, "client", ""))
        name = type(request).__name__
        self.events.note(kind, now, request=name, code=refusal.code, client=client)

    def keep_time(self, calendar: Calendar, now: Micros) -> None:
        """Take over how the clock stands; a step has to be noted, and waits until there is room."""
        if calendar == self.calendar:
            return
        if self.broker.is_step(calendar) and not self.log.has_room(
            0, now_ms=now // 1000, fact=True
        ):
            return
        self._carry_out(self.broker.keep_time(calendar, now), now)
        self.calendar = calendar

    def tick(self, now: Micros) -> None:
        """Time passed."""
        self._carry_out(self.broker.tick(now), now)
        self.pushes.tick(now)

    def upkeep(self, now: Micros) -> None:
        """Let go of what retention and absent guests leave behind; now and then."""
        for client, route in self.broker.silent_guests(now):
            if self.reaches(route, ARE_YOU_THERE):
                self.broker.guest_is_there(client, route, now)
        # More than a segment can hold would end one each time.
        room = min(UPKEEP_BYTES, self.log.options.segment_bytes // 8)
        if not self.log.has_room(room, now_ms=now // 1000, fact=True):
            return
        self._carry_out(self.broker.note_time(now), now)
        self._carry_out(self.broker.forget_guests(now, room), now)
        topics = self.broker.shard.topics
        looked_at = (topics.get(topic_id) for topic_id in self._retained.some(topics))
        for topic in [each for each in looked_at if each and each.retention.keeps]:
            extents = [
                (each.first_offset, each.end_offset, each.last_timestamp, each.message_bytes)
                for each in self.log.extents(topic.id)
            ]
            self._carry_out(self.broker.retain(topic, extents, now), now)  # type: ignore[arg-type]
        if self.settled_serial == self.log.last_serial > self._marked:
            self.mark(now)

    def end_stages(self, stage_ids: Sequence[TopicId], now: Micros) -> bool:
        """Let the log say that these stages are not needed any more; False when it has no room."""
        if not self.log.has_room(GATHER_BYTES // 4, now_ms=now // 1000, fact=True):
            return False
        self._carry_out(self.broker.end_stages(stage_ids), now)
        return True

    def mark(self, now: Micros) -> None:
        """Let the log say that what is in it is durable."""
        if not self.log.has_room(0, now_ms=now // 1000, fact=True):
            return
        self._carry_out(self.broker.mark(), now)
        self._marked = self.log.last_serial

    def lose(self, lost: Sequence[MessagesLost], now: Micros) -> None:
        """Note what a person agreed to go on without: at the start, before anything is served."""
        room = len(lost) * LOST_BYTES
        if lost and not self.log.has_room(room, now_ms=now // 1000, fact=True):
            raise StorageRefused(
                f"there is no room to note {len(lost)} holes in the log; make room on the disk, "
                "then start again",
                code="storage_full",
            )
        self._carry_out(self.broker.lose(lost), now)

    # Commits

    def commit(self, now: Micros) -> Group | None:
        """The group to make durable now, or None when nothing is worth a sync yet."""
        sync = self._sync_due is not None and now >= self._sync_due
        since = self._gathered_since
        if not sync:
            if since is None:
                return None
            is_little = not self._held.waiting and self._gathered_bytes < GATHER_BYTES
            if is_little and now - since < LAZY_MICROS:
                return None
        self._gathered_since = None
        self._writing_bytes, self._gathered_bytes = self._gathered_bytes, 0
        return self.log.take_group(sync=sync)

    @property
    def settled_serial(self) -> Serial:
        """What checkpoints and compaction may rest on: it is committed, and on this disk."""
        return min(self._committed, self.log.durable_serial)

    @property
    def is_full(self) -> bool:
        """Whether so much waits for the disk that nothing more should be received."""
        rules = self.broker.rules
        if len(self._held.waiting) >= rules.held_answers_max:
            return True
        waiting = self._gathered_bytes + self._writing_bytes + self._held.bytes
        return waiting >= rules.gathered_bytes_max

    def written(self, group: Group, now: Micros) -> Serial:
        """A group is on this disk, up to this serial: of a server alone, it is committed."""
        serial = self.log.finished(group)
        self._writing_bytes = 0
        sync_ms = self.log.options.sync_ms
        if not sync_ms or self.log.durable_serial == serial:
            self._sync_due = None
        elif self._sync_due is None:
            # Half of the interval after the first receipt that rests on it: the other half is for
            # the write before it and for the sync itself.
            self._sync_due = Micros(now + sync_ms * 500)
        if self.is_alone:
            self.committed(serial, now)
        return serial

    def committed(self, serial: Serial, now: Micros) -> None:
        """Nothing up to here is ever lost: show its messages, send what waited for it."""
        self._committed = serial
        step = self.broker.synced(serial)
        if step.replies:
            self._carry_out(step, now)
        pushes = self.pushes
        if pushes.audience or pushes.kept:
            pushes.shown(step.shown)
        waiting = self._held.waiting
        while waiting and waiting[0][0] <= serial:
            _, _, caller, answer = heapq.heappop(waiting)
            if isinstance(answer, Deliver):
                self._send(caller, answer)
            else:
                self._held.bytes -= len(answer)
                self.outgoing.append((caller.route, (answer,)))

    def next_deadline(self) -> Micros | None:
        """When the next tick is due."""
        waits = self.broker.next_deadline()
        return sooner(waits, self.pushes.next_deadline()) if self.pushes.audience else waits

    def next_commit(self) -> Micros | None:
        """When the next commit is due, lazily or for its sync."""
        if self._gathered_since is None:
            return self._sync_due
        return sooner(Micros(self._gathered_since + LAZY_MICROS), self._sync_due)

    # Inside

    def _found(self, subscribe: Subscribe) -> Start | None:
        """A start by time becomes an offset here: the broker has no index."""
        if is_pattern(subscribe.topic):
            return None  # many topics have no offset in common: refused
        topic = self.broker.shard.by_name.get(subscribe.topic)
        if topic is None:
            return Start(START_NEW)
        offset = self.log.offset_at(topic.id, Micros(subscribe.start.value))
        return Start(START_NEW) if offset is None else Start(START_OFFSET, max(offset, topic.low))

    def _carry_out(self, step: Step, now: Micros) -> None:
        for write in step.writes:
            record, body = write.record, write.body
            if isinstance(record, MessagesStored):
                assert body is not None
                self.log.append(record, body, seed=write.seed, checksum=record.checksum)
                self._gathered_bytes += len(body)
                # What is staged nobody may see yet.
                if self.pushes.audience and not isinstance(record, MessagesStaged):
                    self.pushes.stored(record, body)
            else:
                self.log.append(record)
        if step.writes and self._gathered_since is None:
            self._gathered_since = now
        for owed in step.replies:
            if owed.after <= self._committed:
                self._send(owed.caller, owed.answer)
            else:
                self._held.hold(owed)

    def _send(self, caller: Caller, answer: Reply | Deliver) -> None:
        bodies: Sequence[Body] = ()
        if isinstance(answer, Deliver):
            if not self.takes(caller.route):
                return  # it asks again, once it has read what it is owed
            try:
                answer, bodies = self.reader.read(answer)
                self._read_bytes += sum(map(len, bodies))
                self.broker.counters.sent += sum(head.count for head in answer.batches)
            except (StorageRefused, OSError) as trouble:
                self.damage = self.damage or damage_in(trouble)
                answer = unreadable(trouble)
        self.outgoing.append((caller.route, codec.encode_reply(caller.token, answer, bodies)))
        if self._read_bytes > READ_BYTES:
            self._read_bytes = 0
            self.hand_over()

    # What the broker is told of the disk

    def stored_bytes(self, topic_id: TopicId) -> int:
        """Of a topic's messages."""
        return sum(each.message_bytes for each in self.log.extents(topic_id))

    def status(self) -> Facts:
        """The server's state, beside the broker's."""
        options = self.log.options
        sync = f"interval {options.sync_ms} ms" if options.sync_ms else "always"
        gives_up = (
            f"a power cut may lose up to the last {options.sync_ms} ms of acknowledged puts"
            if options.sync_ms
            else "nothing: every acknowledged put is synced"
        )
        return {
            **self.connections(),
            **self.events.counts,
            "listening": len(self.broker.listeners),
            "feed": self.broker.listeners.feed or "none",
            "durable_serial": self._committed,
            "disk_bytes": self.log.bytes_used,
            "gathered_bytes": self._gathered_bytes + self._writing_bytes,
            "gathered_bytes_max": self.broker.rules.gathered_bytes_max,
            "held_answers": len(self._held.waiting),
            "held_answers_max": self.broker.rules.held_answers_max,
            "sync": sync,
            "sync_gives_up": gives_up,
        }


def _takes_everything(_route: bytes) -> bool:
    return True


def _later() -> None:
    """Whoever drives takes what is outgoing when it likes."""


def _reaches_nobody(_route: bytes, _frames: Sequence[Body]) -> bool:
    return False
