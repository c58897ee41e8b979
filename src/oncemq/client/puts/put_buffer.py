"""Puts on their way out: gathered, numbered, recorded, sent, and their receipts.

How it works. A put becomes a batch (`PutBatch`), alone or with others that nobody waits for
(`open_batch`). A batch is numbered: each producer counts its messages on each topic, and the server
stores a number once. Then it is recorded, where it lasts, and only then may it leave. A few batches
of a topic are under way at a time, in order. The answer ends it: it is struck from the outbox with
the next record, and its ticket has the receipts.

What can go wrong, and what happens then. The answer is lost: the same batch goes again under the
same numbers. The server says that it lacks numbers before these, or has another topic of the name:
the lane is lost, nothing more of it leaves, and a Resume asks where the producer stands. What the
server has keeps its numbers, the rest gets new ones; those are on the disk before they are used.
The server refuses a batch for good: believed only after a Resume shows that no copy of it was
stored. It has no room: the lane waits. Our disk takes no record: the numbers are free again and the
caller is told. Our disk fails: the client ends, since it cannot promise anything any more.

Law: a lasting put is in the outbox before it is sent, and out of it only after its answer.
"""

from collections.abc import Sequence as Many
from itertools import count
from typing import Any

from oncemq.client.context import ClientContext
from oncemq.client.lost_history import numbers_in_words, with_way_out
from oncemq.client.puts.deleted_topics import Forgetting
from oncemq.client.puts.open_batch import OpenBatch, OpenBatches
from oncemq.client.puts.producers import Producers
from oncemq.client.puts.put_limits import check_limits, outbox_full
from oncemq.client.puts.put_outcomes import PutOutcomes
from oncemq.client.state.unsent import parcel_of, sign, unsent
from oncemq.client.ticket import Ticket
from oncemq.client.values import Receipts
from oncemq.errors import HistoryLost, OnceMQError, StorageFull, StorageRefused, StorageUnsure
from oncemq.protocol.names import ANONYMOUS_EPOCH, Micros, ProducerId
from oncemq.protocol.replies import PutAccepted, RefusedReply, Reply, Resumed
from oncemq.protocol.requests import Put, Request, Resume
from oncemq.protocol.step import Body
from oncemq.session.outgoing import Outgoing
from oncemq.session.publisher import Publisher, PutBatch, TopicPuts, WhereNumbersStand
from oncemq.wire import batch

ROOM_MICROS = 1_000_000  # until a put that nobody waits for is tried again on a full server
GATHERED_UNDER_WAY = 2  # with so many batches of a topic on the way, others gather until full
FLOW_BYTES = 32 << 20  # unsent puts over this make `put(wait=False)` take its time


class PutBuffer:
    """The publisher of one client, with its disk."""

    def __init__(self, client: ClientContext, outgoing: Outgoing) -> None:
        self._client = client
        self._outgoing = outgoing
        self._publisher = Publisher()
        self.producers = Producers(client.state, self._publisher)
        self._forgetting = Forgetting(client, outgoing, self._publisher, self.producers)
        self.open_batches = OpenBatches()
        self.outcomes = PutOutcomes(client.news)
        self._resumes = count(1)
        self._sealed_bytes = 0
        self.trouble = ""  # why puts wait: a disk without room, a server's or this client's
        self.try_again_at: Micros | None = None  # when puts that wait for room go again
        self._adopt()

    @property
    def unsent(self) -> int:
        """Messages put here that have no answer yet."""
        return self._publisher.unacknowledged + self.open_batches.messages

    @property
    def unsent_bytes(self) -> int:
        """Their bytes."""
        return self._sealed_bytes + (self.open_batches.size if self.open_batches.by_topic else 0)

    @property
    def idle(self) -> bool:
        """Whether every put has its answer."""
        return self.unsent == 0

    @property
    def gathering(self) -> bool:
        """Whether single puts wait to leave as a batch."""
        return bool(self.open_batches.by_topic)

    @property
    def next_try(self) -> Micros | None:
        """When puts that wait for room at the server go again."""
        return self.try_again_at if self._publisher.waits_for_room else None

    @property
    def unrecorded(self) -> int:
        """Messages without an answer that are on no disk: a close would lose them."""
        return self._publisher.unrecorded() + self.open_batches.messages

    @property
    def duplicates(self) -> int:
        """Messages that the server had before."""
        return self.outcomes.duplicates

    def take_failure(self) -> OnceMQError | None:
        """What a put met whose receipt nobody asked for."""
        return self.outcomes.unseen.take()

    def check(self, topic: str, payload_bytes: int, size: int | None = None) -> int:
        """Refuse here what the server would refuse, before anything is recorded.

        The bytes that wait, for who wants to wait until they are fewer.
        """
        client = self._client
        if client.failure is not None:
            raise client.failure.with_traceback(None)
        size = payload_bytes if size is None else size
        limits, most = client.settings.limits, client.settings.outbox_bytes_max
        is_known = topic in self._publisher.by_topic  # so its name was looked at before
        if not is_known or payload_bytes > limits.message_bytes or size > limits.batch_bytes:
            check_limits(limits, topic, payload_bytes=payload_bytes, batch_bytes=size)
        waiting = self._sealed_bytes
        if self.open_batches.by_topic:
            waiting += self.open_batches.size
            if waiting + size + self.open_batches.granted > most:
                self.open_batches.withdraw_grants()
        if waiting + size > most:
            full = outbox_full(waiting, most)
            client.news.full(full.detail, client.now())
            raise full
        return waiting

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
        settings = self._client.settings
        durable, lasting = lasting, lasting and self._client.state.lasting
        opened = self.open_batches.get(topic)
        if opened and (opened.lasting, opened.required) != (lasting, required):
            self._seal(topic)  # these came first: one client's order holds (G3)
            opened = None
        if opened is None:
            opened = OpenBatch(lasting=lasting, required=required)
        ticket = opened.ticket
        place = opened.add(payloads, item)
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
        if self.open_batches.by_topic:
            self._seal(topic)
        ticket: Ticket[Receipts] = Ticket()
        self._add(ticket, topic, count, columns, body, lasting=lasting, required=required)
        return ticket

    def start(self, now: Micros) -> None:
        """Seal what was gathered where there is room on the way, and let puts leave."""
        if self.open_batches.by_topic:
            for topic in self.open_batches.topics():
                lane, opened = self._publisher.lane(topic), self.open_batches.get(topic)
                if (opened and opened.full) or len(lane.parcels) < GATHERED_UNDER_WAY:
                    self._seal(topic)
        if self.try_again_at is not None and now >= self.try_again_at:
            self.try_again_at = None
            self._publisher.try_again()
        publisher = self._publisher
        if len(publisher.by_topic) > self._forgetting.most:
            self._forgetting.begin()
        for lane in list(publisher.busy.values()):
            leaving = publisher.ready(lane)
            for parcel in leaving:
                self._outgoing.wanted.append((self, parcel, 0))  # as `begin`, without the call
            if not leaving and lane.is_lost and not lane.put_off and lane.resume is None:
                self._resume(lane)

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
            self.outcomes.unseen.fail(ticket, error)
        self._sealed_bytes = 0

    # Recording and numbering

    def _adopt(self) -> None:
        """Take over what earlier starts left unsent."""
        for slot in self._client.state.slots:
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
            self._client.news.taken_over(self._client.state.directory, unsent)

    def _seal(self, topic: str) -> None:
        """Make a parcel of what was gathered; whatever comes of it, its ticket knows."""
        gathering = self.open_batches.take_out(topic)
        if gathering is None:
            return  # none is open, or the client failed with the one before it
        try:
            columns, body = gathering.encode()
            self._add(
                gathering.ticket, topic, gathering.count, columns, body,
                lasting=gathering.lasting, required=gathering.required,
            )  # fmt: skip
        except OnceMQError as error:
            self.outcomes.unseen.fail(gathering.ticket, error)
        except BaseException as error:
            self.outcomes.unseen.fail(
                gathering.ticket, OnceMQError(f"not put, because of {error!r}")
            )
            raise

    def _add(
        self, ticket: Ticket[Any], topic: str, count: int, columns: int, body: bytes, *,
        lasting: bool, required: bool,
    ) -> None:  # fmt: skip
        """Number a batch and record it, if it lasts: from here on it may leave."""
        lasting = lasting and self._client.state.lasting
        producer = self.producers.for_topic(topic, lasting=lasting)
        numbers = self._publisher.numbers(topic, producer)
        parcel = PutBatch(
            topic, producer, lasting, count, columns, body, numbers.take(count),
            ticket=ticket, required=required,
        )  # fmt: skip
        sign(parcel)
        if lasting:
            try:
                self.producers.slot_of(producer).record([unsent(parcel, numbers.topic_id)])
            except BaseException as error:
                # Not recorded, so not sent: its numbers are free again.
                numbers.next = parcel.first_sequence
                if isinstance(error, StorageFull):
                    self._client.news.full(error.detail, self._client.now())
                self._see_to_failure(producer)
                raise
        self._publisher.add(parcel)
        self._sealed_bytes += len(parcel.body)

    def _see_to_failure(self, producer: ProducerId) -> None:
        """A disk of ours that failed is the end of this client: it cannot promise any more."""
        failure = self.producers.slot_of(producer).failure
        if failure is None or self._client.failure is not None:
            return
        unsure = StorageUnsure(
            f"{failure.detail}. This put was sent, or was about to be, and has no answer: it may "
            "be stored, and the next start sends it again (once, G2) if it was recorded"
        )
        for parcel in self._publisher.abandon():
            if parcel.ticket is not None:
                self.outcomes.unseen.fail(parcel.ticket, unsure)
        self._client.fail(failure)
        self.fail(failure)  # what was only gathered learns that it is not recorded

    def request(self, key: PutBatch | WhereNumbersStand) -> tuple[Request, Body | None]:
        """A put, or the question where its numbers stand."""
        client, parcel = self._client, key
        if isinstance(parcel, WhereNumbersStand):
            lane, producer, number = parcel
            about = lane.topic, producer, number, lane.numbers[producer].topic_id
            return Resume(client.client, client.epoch_to_send, *about), None
        numbers = self._publisher.numbers(parcel.topic, parcel.producer)
        put = Put(
            client=client.client,
            client_epoch=client.client_epoch or ANONYMOUS_EPOCH,
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

    def on_reply(self, key: PutBatch | WhereNumbersStand, reply: Reply, bodies: Many[Body]) -> None:
        """The server has it, refuses it, or says where its numbers stand."""
        del bodies
        if isinstance(key, WhereNumbersStand):
            self._resumed(key.lane, key.producer, reply)
        elif isinstance(reply, PutAccepted):
            self.trouble = ""
            self._publisher.accepted(key, reply, self._client.now())
            self._finish(key, reply)
        else:
            assert isinstance(reply, RefusedReply)
            self._refused(key, reply)

    def _refused(self, parcel: PutBatch, reply: RefusedReply) -> None:
        if self._client.failure is not None:
            return
        is_final = self._publisher.refused(parcel, reply)
        if reply.code == "storage_full":
            self.trouble = reply.detail  # what is final is so only once a resume is answered
            if not is_final:
                self._client.news.full(f"puts wait: {reply.detail}", self._client.now())
        self.try_again_at = Micros(self._client.now() + ROOM_MICROS)
        for each in self._publisher.cancelled:
            self._outgoing.give_up(each)
        self._publisher.cancelled.clear()

    def _finish(self, parcel: PutBatch, reply: PutAccepted) -> None:
        self._sealed_bytes -= len(parcel.body)
        if parcel.lasting:
            slot = self.producers.slot_of(parcel.producer)
            slot.done(parcel)
            if slot.rotate_due:
                slot.rotate(*self.producers.kept_in(slot))
                self._see_to_failure(parcel.producer)
        self.outcomes.accepted(parcel, reply)

    def _resume(self, lane: TopicPuts) -> None:
        lane.resume = WhereNumbersStand(lane, lane.parcels[0].producer, next(self._resumes))
        self._outgoing.begin(self, lane.resume)

    def _resumed(self, lane: TopicPuts, producer: ProducerId, reply: Reply) -> None:
        lane.resume = None
        if isinstance(reply, RefusedReply):
            return
        assert isinstance(reply, Resumed)
        if lost := self._lost(lane, producer, reply):
            self._client.fail(lost)
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
        for parcel in (each for each in lane.parcels if each.producer == producer):
            sign(parcel)
        for parcel in plan.gone:
            self._sealed_bytes -= len(parcel.body)
            self.outcomes.refused(parcel)
        for parcel in plan.stored:
            self._sealed_bytes -= len(parcel.body)
            self.outcomes.stored_before(parcel, counted_on)

    def _lost(self, lane: TopicPuts, producer: ProducerId, reply: Resumed) -> OnceMQError | None:
        """Why a producer may not go on: the server lost puts of it that have receipts."""
        missing = self._publisher.missing(lane, producer, reply)
        if missing is None:
            return None
        if not lane.parcels[0].lasting and lane.is_long_ago(self._client.now()):
            return None  # the server forgets guests after a day
        return with_way_out(HistoryLost(numbers_in_words(lane.topic, *missing)), self._client)

    def _put_off(self, lane: TopicPuts, error: StorageRefused) -> None:
        """The own disk has no room for new numbers: the server is asked anew when it may have."""
        lane.put_off = True
        self.trouble = error.detail
        self._client.news.full(error.detail, self._client.now())
        self.try_again_at = Micros(self._client.now() + ROOM_MICROS)
