"""Puts on their way out: gathered, numbered, recorded, sent, and their receipts.

Law: a lasting put is in the outbox before it is sent, and out of it only after its answer.
"""

from collections.abc import Sequence as Many
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

from oncemq.client.lost_history import numbers_in_words, with_way_out
from oncemq.client.puts.deleted_topics import Forgetting
from oncemq.client.puts.discards import Discards, discarded
from oncemq.client.puts.open_batch import OpenBatch, OpenBatches
from oncemq.client.puts.producers import Producers
from oncemq.client.puts.put_limits import check_limits, outbox_full
from oncemq.client.puts.unread_failures import Unseen
from oncemq.client.refusals import error_of
from oncemq.client.state.unsent import parcel_of, sign, unsent
from oncemq.client.ticket import Ticket
from oncemq.client.values import Receipts, receipts_of
from oncemq.errors import HistoryLost, OnceMQError, StorageFull, StorageRefused, StorageUnsure
from oncemq.protocol.limits import PUTS_UNDER_WAY_MAX
from oncemq.protocol.names import ANONYMOUS_EPOCH, Micros, ProducerId, TopicId
from oncemq.protocol.replies import NO_OFFSET, PutAccepted, RefusedReply, Reply, Resumed
from oncemq.protocol.requests import Put, Request, Resume
from oncemq.protocol.step import Body
from oncemq.session.publisher import Publisher, PutBatch, TopicPuts
from oncemq.wire import batch

if TYPE_CHECKING:
    from oncemq.client.engine.engine import Engine

ROOM_MICROS = 1_000_000  # until a put that nobody waits for is tried again on a full server
FLOW_BYTES = 32 << 20  # unsent puts over this make `put(wait=False)` take its time


class PutBuffer:
    """The publisher of one client, with its disk."""

    def __init__(self, engine: "Engine") -> None:
        self._engine = engine
        self._publisher = Publisher()
        self.producers = Producers(engine.state, self._publisher)
        self._forgetting = Forgetting(engine, self._publisher, self.producers)
        self.open_batches = OpenBatches()
        self.discards = Discards()
        self._resumes = count(1)
        self._sealed_bytes = 0
        self.duplicates = 0
        self._unseen = Unseen()
        self.trouble = ""  # why puts wait: a disk without room, the server's or this client's
        self._try_again_at = Micros(0)
        self._adopt()

    @property
    def unsent(self) -> int:
        """Messages put here that have no answer yet."""
        return self._publisher.unacknowledged + self.open_batches.messages

    @property
    def unsent_bytes(self) -> int:
        """Their bytes."""
        return self._sealed_bytes + self.open_batches.size

    @property
    def idle(self) -> bool:
        """Whether every put has its answer."""
        return self.unsent == 0

    @property
    def gathering(self) -> bool:
        """Whether single puts wait to leave as a batch."""
        return bool(self.open_batches)

    @property
    def next_try(self) -> Micros | None:
        """When puts that wait for room at the server go again."""
        return self._try_again_at if self._publisher.waits_for_room else None

    @property
    def unrecorded(self) -> int:
        """Messages without an answer that are on no disk: a close would lose them."""
        return self._publisher.unrecorded() + self.open_batches.messages

    def take_failure(self) -> OnceMQError | None:
        """What a put met whose receipt nobody asked for."""
        return self._unseen.take()

    def check(self, topic: str, payload_bytes: int, size: int | None = None) -> None:
        """Refuse here what the server would refuse, before anything is recorded."""
        if self._engine.failure is not None:
            raise self._engine.failure
        size = payload_bytes if size is None else size
        limits = self._engine.settings.limits
        check_limits(limits, topic, payload_bytes=payload_bytes, batch_bytes=size)
        waiting, most = self.unsent_bytes, self._engine.settings.outbox_bytes_max
        if self.open_batches and waiting + size + self.open_batches.granted > most:
            self.open_batches.withdraw_grants()
        full = outbox_full(waiting, size, most)
        if full is not None:
            self._engine.news.full(full.detail, self._engine.now())
            raise full

    def gather(
        self,
        topic: str,
        payloads: Many[bytes],
        item: batch.Item | None,
        *,
        lasting: bool,
        required: bool = False,
    ) -> tuple[Ticket[Receipts], int, bool]:
        """Add to the next batch: its ticket, the place in it, whether the batch is full.

        `item` is the message itself, where it is a single one with a key or headers.
        """
        settings = self._engine.settings
        durable, lasting = lasting, lasting and self._engine.state.lasting
        opened = self.open_batches.get(topic)
        if opened and (opened.lasting, opened.required) != (lasting, required):
            self._seal(topic)  # these came first: one client's order holds (G3)
            opened = None
        if opened is None:
            opened = OpenBatch(lasting=lasting, required=required)
        ticket = opened.ticket
        with self.open_batches.lock:
            place = len(opened.payloads)
            opened.add(payloads, item)
            # Only now: an interrupt before this leaves no empty batch.
            self.open_batches.open(topic, opened)
            most = min(settings.outbox_bytes_max, FLOW_BYTES)
            opened.grant(0)
            spare = most - self.unsent_bytes - self.open_batches.granted
            opened.grant_some(spare, durable=durable, largest=settings.limits.message_bytes)
        return ticket, place, opened.full

    def put(
        self,
        topic: str,
        *,
        count: int,
        columns: int,
        body: bytes,
        lasting: bool,
        required: bool = False,
    ) -> Ticket[Receipts]:
        """Send a batch as it is, after what was gathered for its topic."""
        self._seal(topic)
        ticket: Ticket[Receipts] = Ticket()
        parcel = self._parcel(topic, count, columns, body, lasting=lasting, required=required)
        self._add(parcel, ticket)
        return ticket

    def start(self) -> None:
        """Seal what was gathered where there is room on the way, and begin the exchanges."""
        for topic in self.open_batches.topics():
            lane, opened = self._publisher.lane(topic), self.open_batches.get(topic)
            if (opened and opened.full) or len(lane.parcels) < PUTS_UNDER_WAY_MAX // 2:
                self._seal(topic)
        if self._engine.now() >= self._try_again_at:
            self._publisher.try_again()
        self._forgetting.begin()
        for lane in self._publisher.lanes():
            if lane.is_lost and not lane.put_off:
                self._resume(lane)
            for parcel in list(self._publisher.ready(lane)):
                make = partial(self._make, parcel)
                parcel.token = self._engine.begin(make, partial(self._answered, parcel))

    def seal_all(self) -> None:
        """Make parcels of everything gathered."""
        for topic in self.open_batches.topics():
            self._seal(topic)

    def fail(self, error: OnceMQError) -> None:
        """The client is done for; what the outbox holds stays there."""
        opened = map(self.open_batches.take_out, self.open_batches.topics())
        tickets: list[Ticket[Any]] = [each.ticket for each in opened if each is not None]
        parcels = self._publisher.abandon()
        tickets += [parcel.ticket for parcel in parcels if parcel.ticket is not None]
        for ticket in tickets:
            self._unseen.fail(ticket, error)
        self._sealed_bytes = 0

    # Recording and numbering

    def _adopt(self) -> None:
        """Take over what earlier starts left unsent."""
        for slot in self._engine.state.slots:
            self.producers.add(slot.producer, slot)
            for topic, (topic_id, next_sequence, producer) in slot.lanes.items():
                self.producers.add(producer or slot.producer, slot)
                numbers = self._publisher.numbers(topic, producer or slot.producer)
                numbers.topic_id, numbers.next = topic_id, next_sequence
            for put in slot.pending:
                self._publisher.add(parcel_of(put, put.producer or slot.producer))
                self._sealed_bytes += len(put.body)
            slot.pending, slot.lanes = [], {}  # the publisher has them from here on
        if unsent := self._publisher.unacknowledged:
            self._engine.news.taken_over(self._engine.state.directory, unsent)

    def _seal(self, topic: str) -> None:
        """Make a parcel of what was gathered; whatever comes of it, its ticket knows."""
        gathering = self.open_batches.take_out(topic)
        if gathering is None:
            return  # none is open, or the client failed with the one before it
        try:
            columns, body = gathering.encode()
            parcel = self._parcel(
                topic, len(gathering.payloads), columns, body,
                lasting=gathering.lasting, required=gathering.required,
            )  # fmt: skip
            self._add(parcel, gathering.ticket)
        except OnceMQError as error:
            self._unseen.fail(gathering.ticket, error)
        except BaseException as error:
            self._unseen.fail(gathering.ticket, OnceMQError(f"not put, because of {error!r}"))
            raise

    def _parcel(
        self, topic: str, count: int, columns: int, body: bytes, *, lasting: bool, required: bool
    ) -> PutBatch:
        lasting = lasting and self._engine.state.lasting
        producer = self.producers.for_topic(topic, lasting=lasting)
        return PutBatch(topic, producer, lasting, count, columns, body, required=required)

    def _add(self, parcel: PutBatch, ticket: Ticket[Any]) -> None:
        parcel.ticket = ticket
        self._publisher.number(parcel)
        sign(parcel)
        if parcel.lasting:
            producer = parcel.producer
            numbers = self._publisher.numbers(parcel.topic, producer)
            try:
                self.producers.slot_of(producer).record([unsent(parcel, numbers.topic_id)])
            except BaseException as error:
                # Not recorded, so not sent: its numbers are free again.
                numbers.next = parcel.first_sequence
                if isinstance(error, StorageFull):
                    self._engine.news.full(error.detail, self._engine.now())
                self._see_to_failure(producer)
                raise
        self._publisher.add(parcel)
        self._sealed_bytes += len(parcel.body)

    def _see_to_failure(self, producer: ProducerId) -> None:
        """A disk of ours that failed is the end of this client: it cannot promise any more."""
        failure = self.producers.slot_of(producer).failure
        if failure is None or self._engine.failure is not None:
            return
        unsure = StorageUnsure(
            f"{failure.detail}. This put was sent, or was about to be, and has no answer: it may "
            "be stored, and the next start sends it again (once, G2) if it was recorded"
        )
        for parcel in self._publisher.abandon():
            if parcel.ticket is not None:
                self._unseen.fail(parcel.ticket, unsure)
        self._engine.fail(failure)  # what was only gathered learns that it is not recorded

    def _make(self, parcel: PutBatch) -> tuple[Request, Body]:
        engine = self._engine
        numbers = self._publisher.numbers(parcel.topic, parcel.producer)
        put = Put(
            client=engine.client,
            client_epoch=engine.client_epoch or ANONYMOUS_EPOCH,
            topic=parcel.topic,
            topic_id=numbers.topic_id,
            producer=parcel.producer,
            lasting=parcel.lasting,
            first_sequence=parcel.first_sequence,
            count=parcel.count,
            columns=parcel.columns,
            checksum=parcel.checksum,
            permit=numbers.permit,
            required=parcel.required,
        )
        return put, parcel.body

    # Answers

    def _answered(self, parcel: PutBatch, reply: Reply, _: Many[Body]) -> None:
        if isinstance(reply, PutAccepted):
            self.trouble = ""
            self._publisher.accepted(parcel, reply, self._engine.now())
            self._finish(parcel, receipts_of(parcel.topic, reply))
            return
        assert isinstance(reply, RefusedReply)
        if self._engine.failure is not None:
            return
        is_final = self._publisher.refused(parcel, reply)
        if reply.code == "storage_full" and not is_final:
            self.trouble = reply.detail
            self._engine.news.full(f"puts wait: {reply.detail}", self._engine.now())
        self._try_again_at = Micros(self._engine.now() + ROOM_MICROS)
        for token in self._publisher.cancelled:
            self._engine.drop(token)
        self._publisher.cancelled.clear()

    def _refuse(self, parcel: PutBatch, refusal: RefusedReply) -> None:
        """It is not stored, and never will be."""
        self._sealed_bytes -= len(parcel.body)
        self._fail(parcel, error_of(refusal))

    def _fail(self, parcel: PutBatch, error: OnceMQError) -> None:
        self._engine.news.refused(parcel.topic, error, awaited=parcel.ticket is not None)
        # One of an earlier start has no ticket: `flush` raises it.
        self._unseen.fail(parcel.ticket or Ticket(), error)

    def _stored_before(self, parcel: PutBatch, topic_id: TopicId) -> None:
        """The topic that was deleted since had it; nobody knows the place any more."""
        self._sealed_bytes -= len(parcel.body)
        self.duplicates += parcel.count
        if parcel.ticket is not None:
            reply = PutAccepted(topic_id, NO_OFFSET, parcel.count, True, True, 0)
            parcel.ticket.fill(receipts_of(parcel.topic, reply))

    def _finish(self, parcel: PutBatch, receipts: Receipts) -> None:
        self._sealed_bytes -= len(parcel.body)
        self.discards.note(receipts[0])
        self.duplicates += parcel.count if receipts[0].duplicate else 0
        if parcel.lasting:
            numbers = self._publisher.numbers(parcel.topic, parcel.producer)
            slot = self.producers.slot_of(parcel.producer)
            slot.done(unsent(parcel, numbers.topic_id))
            if slot.rotate_due:
                slot.rotate(*self.producers.kept_in(slot))
                self._see_to_failure(parcel.producer)
        if parcel.required and (unwanted := discarded(receipts[:1])):
            self._fail(parcel, unwanted)
        elif parcel.ticket is not None:
            parcel.ticket.fill(receipts)

    def _resume(self, lane: TopicPuts) -> None:
        if lane.resume_token and lane.resume_token in self._engine.exchanges:
            return
        producer = lane.parcels[0].producer
        engine = self._engine
        number = next(self._resumes)

        def make() -> tuple[Request, None]:
            epoch = engine.client_epoch or ANONYMOUS_EPOCH
            about = lane.topic, producer, number, lane.numbers[producer].topic_id
            return Resume(engine.client, epoch, *about), None

        lane.resume_token = engine.begin(make, partial(self._resumed, lane, producer))

    def _resumed(self, lane: TopicPuts, producer: ProducerId, reply: Reply, _: Many[Body]) -> None:
        if isinstance(reply, RefusedReply):
            lane.resume_token = 0
            return
        assert isinstance(reply, Resumed)
        if lost := self._lost(lane, producer, reply):
            self._engine.fail(lost)
            return
        counted_on = lane.numbers[producer].topic_id
        plan = self._publisher.plan(lane, producer, reply)
        slot = self.producers.slot(producer)
        if plan.is_change and slot is not None:
            try:  # the new numbers are on disk before they are used
                slot.renumber(
                    lane.topic, plan.topic_id, kept_below=plan.kept_below, first=plan.first,
                    gone=[parcel.first_sequence for parcel in (*plan.gone, *plan.stored)],
                )  # fmt: skip
            except StorageRefused as error:
                self._put_off(lane, error)
                self._see_to_failure(producer)
                return
        self.trouble = ""
        self._publisher.carry_out(lane, producer, plan)
        for parcel in lane.parcels:
            if parcel.producer == producer:
                sign(parcel)
        for parcel in plan.gone:
            assert parcel.refusal is not None
            self._refuse(parcel, parcel.refusal)
        for parcel in plan.stored:
            self._stored_before(parcel, counted_on)

    def _lost(self, lane: TopicPuts, producer: ProducerId, reply: Resumed) -> OnceMQError | None:
        """Why a producer may not go on: the server lost puts of it that have receipts."""
        missing = self._publisher.missing(lane, producer, reply)
        if missing is None:
            return None
        if not lane.parcels[0].lasting and lane.is_long_ago(self._engine.now()):
            return None  # the server forgets guests after a day
        return with_way_out(HistoryLost(numbers_in_words(lane.topic, *missing)), self._engine)

    def _put_off(self, lane: TopicPuts, error: StorageRefused) -> None:
        """The own disk has no room for new numbers: the server is asked anew when it may have."""
        lane.resume_token = 0
        lane.put_off = True
        self.trouble = error.detail
        self._engine.news.full(error.detail, self._engine.now())
        self._try_again_at = Micros(self._engine.now() + ROOM_MICROS)
