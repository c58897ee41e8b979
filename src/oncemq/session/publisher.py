"""The publisher's side of exactly-once: numbers, order, what is under way, what comes back.

Laws: a topic's puts leave in the order they were given and keep their numbers through every
retry; no more than PUTS_UNDER_WAY_MAX are under way on a topic, so the server still knows each
receipt word for word; numbers change only after the server said it never saw them, and never
silently when it lacks some that it had given receipts for (`missing`). Numbers
that come from a disk are used only after the server said where they stand: the disk may be a copy.
New numbers are planned first and used second: between the two they are put on the disk.
Numbers are forgotten only while nothing waits under them, and once the server said that the very
topic they count on was deleted; a producer that forgot some is used for no topic that it does not
know: it may have used any number there. Such topics get a new producer.
"""

from collections import deque
from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from oncemq.errors import Corrupt
from oncemq.protocol.client_requests import KnownNumbers as Known
from oncemq.protocol.limits import PUTS_UNDER_WAY_MAX
from oncemq.protocol.names import Micros, ProducerId, Sequence, TopicId
from oncemq.protocol.replies import PutAccepted, RefusedReply, Resumed
from oncemq.protocol.step import Body

AGAIN = frozenset({"topic_changed", "sequence_gap", "outdated"})  # ask where we stand, renumber
RETRY = frozenset({"checksum", "unknown_client"})  # send the same again
# Another copy may be stored where this one was not.
LATER = frozenset({"storage_full", "limit", "unwanted"})

NEVER = Micros(0)
GUEST_MICROS = 43_200_000_000  # half of the day after which a server forgets a guest

DAMAGED = "lost_by_damage"  # the refusal of a put that the client's own disk does not have whole


class PutBatch(msgspec.Struct):
    """A batch on its way. `ticket` is whatever the shell waits on; None after a restart."""

    topic: str
    producer: ProducerId
    lasting: bool
    count: int
    columns: int
    body: Body
    first_sequence: Sequence = Sequence(0)
    checksum: int = 0
    ticket: Any = None
    under_way: bool = False  # it was sent, or is about to be, and has no answer
    tried: bool = False  # it may have reached the server under its numbers
    refusal: RefusedReply | None = None  # believed once a resume shows that no copy was stored
    required: bool = False  # refused where nobody would get it, instead of discarded


@dataclass(slots=True)
class ProducerNumbers:
    """Where one producer stands on one topic."""

    # Two producers of a client may know of two topics: one was deleted, and made anew, since.
    topic_id: TopicId = TopicId(0)  # the topic they count on; 0: it has not been named yet
    next: Sequence = Sequence(1)
    sure: bool = True  # no earlier start has used them, or the server said where they stand
    permit: int = 0

    def take(self, count: int) -> Sequence:
        """The first of the next `count` numbers, which are used from now on."""
        first = self.next
        self.next = Sequence(first + count)
        return first


@dataclass(slots=True)
class TopicPuts:
    """One topic: its parcels in order, and where each producer stands."""

    topic: str
    parcels: deque[PutBatch] = field(default_factory=deque[PutBatch])
    numbers: dict[ProducerId, ProducerNumbers] = field(
        default_factory=dict[ProducerId, ProducerNumbers]
    )
    lost: bool = False  # the server disagrees about the numbers: resume before sending
    resume: "WhereNumbersStand | None" = None  # the question, while it has no answer
    put_off: bool = False  # there is no room: send nothing until told to try again
    acknowledged_at: Micros = NEVER

    def is_long_ago(self, now: Micros) -> bool:
        """Whether the server may have forgotten a guest that put here last."""
        return now - self.acknowledged_at > GUEST_MICROS

    @property
    def is_lost(self) -> bool:
        """Whether the server must be asked before the next parcel may leave."""
        if self.lost or not self.parcels:
            return self.lost
        return not self.numbers[self.parcels[0].producer].sure


class WhereNumbersStand(NamedTuple):
    """The question, numbered, where a producer stands on a topic."""

    lane: TopicPuts
    producer: ProducerId
    number: int


@dataclass(frozen=True, slots=True)
class Renumbering:
    """What a resume showed of one producer's parcels on a topic: the numbers they get."""

    topic_id: TopicId
    permit: int
    kept_below: Sequence  # what has numbers below this is at the server, and keeps them
    first: Sequence  # the others get numbers from here on, in their order
    next: Sequence
    gone: list[PutBatch]  # they were refused, and are not there: that is final now
    stored: list[PutBatch]  # the topic had them that was deleted since: they are not sent again
    is_change: bool


def wrong_receipt(topic: str, reply: PutAccepted, count: int) -> Corrupt:
    """Why a receipt for more or fewer messages than were put is not believed."""
    return Corrupt(
        f"{count} messages were put to {topic!r} at once, and the server gave a receipt for "
        f"{reply.count}: nobody knows what it has stored. Is it a OnceMQ server?"
    )


class Publisher:
    """All lanes of one client."""

    def __init__(self) -> None:
        self.by_topic: dict[str, TopicPuts] = {}  # what was put to, and is remembered
        self.busy: dict[str, TopicPuts] = {}  # those with parcels: the others cost nothing
        self.unacknowledged = 0
        self.cancelled: list[PutBatch] = []  # those whose replies no longer matter
        # Those of earlier starts: an old copy of their disk has numbers that were used since.
        self.from_disk: set[ProducerId] = set()

    def lane(self, topic: str) -> TopicPuts:
        """The topic's lane."""
        lane = self.by_topic.get(topic)
        if lane is None:
            lane = self.by_topic[topic] = TopicPuts(topic)
        return lane

    def all_lanes(self) -> list[TopicPuts]:
        """Every lane, with or without parcels."""
        return list(self.by_topic.values())

    def numbers(self, topic: str, producer: ProducerId) -> ProducerNumbers:
        """Where a producer stands on a topic; at the beginning, if it never put to it."""
        lane = self.by_topic.get(topic)
        numbers = lane.numbers.get(producer) if lane is not None else None
        if numbers is None:
            numbers = ProducerNumbers(sure=producer not in self.from_disk)
            self.lane(topic).numbers[producer] = numbers
        return numbers

    def idle(self) -> list[Known]:
        """Where producers stand on topics that nothing is on its way to."""
        return [
            Known(lane.topic, numbers.topic_id, producer, Sequence(numbers.next - 1))
            for lane in self.by_topic.values()
            if not lane.parcels and lane.resume is None
            for producer, numbers in lane.numbers.items()
        ]

    def forget(self, asked: Iterable[Known], deleted: Container[TopicId]) -> set[ProducerId]:
        """Forget numbers that were asked about, where the topic they count on was deleted.

        Those that count on no topic have no receipt, and nothing to tell. Whatever has been put,
        or made anew, since the question keeps its numbers. Whose were forgotten: they must not
        be used for a topic that they have no numbers on.
        """
        forgot: set[ProducerId] = set()
        for known in asked:
            lane = self.by_topic.get(known.topic)
            numbers = lane.numbers.get(known.producer) if lane else None
            if lane is None or numbers is None or lane.parcels or lane.resume is not None:
                continue
            if numbers.topic_id and numbers.topic_id not in deleted:
                continue
            del lane.numbers[known.producer]
            forgot.add(known.producer)
            if not lane.numbers:
                del self.by_topic[known.topic]
        return forgot

    def add(self, parcel: PutBatch) -> None:
        """A numbered parcel (recorded, where it lasts) may leave from now on."""
        lane = self.busy[parcel.topic] = self.by_topic.get(parcel.topic) or self.lane(parcel.topic)
        lane.parcels.append(parcel)
        self.unacknowledged += parcel.count

    def ready(self, lane: TopicPuts) -> list[PutBatch]:
        """Parcels that leave now, in order; they are under way from here on."""
        leaving: list[PutBatch] = []
        if lane.put_off or lane.is_lost:
            return leaving
        for under_way, parcel in enumerate(lane.parcels):
            if parcel.under_way:
                continue  # those that are come first: each is told apart as it leaves
            if under_way >= PUTS_UNDER_WAY_MAX:
                break
            if under_way and parcel.producer != lane.parcels[0].producer:
                break  # another producer's numbers: order holds only once the others are in
            parcel.tried = parcel.under_way = True
            leaving.append(parcel)
        return leaving

    def accepted(self, parcel: PutBatch, reply: PutAccepted, now: Micros = NEVER) -> None:
        """The server has it; one whose receipt is of other messages cannot be believed."""
        if reply.count != parcel.count:
            raise wrong_receipt(parcel.topic, reply, parcel.count)
        lane = self.by_topic.get(parcel.topic) or self.lane(parcel.topic)
        numbers = lane.numbers.get(parcel.producer) or self.numbers(parcel.topic, parcel.producer)
        numbers.topic_id = reply.topic_id
        lane.acknowledged_at = now
        self._drop(lane, parcel)

    def refused(self, parcel: PutBatch, refused: RefusedReply) -> bool:
        """The server said no; True when a resume will tell whether that is final.

        Another copy of it may be stored yet: only what a resume does not find never will be.
        """
        lane = self.lane(parcel.topic)
        parcel.under_way = False
        if refused.code in AGAIN:
            self._lose(lane)
            return False
        if refused.code in RETRY:
            return False
        final = parcel.ticket is not None or refused.code not in ("storage_full", "fenced")
        lane.put_off = not final  # nobody waits for it: it goes again when the lane is let go on
        if final:
            parcel.refusal = refused
            self._lose(lane)  # those behind it are numbered as if it had been stored
        return final

    def missing(
        self, lane: TopicPuts, producer: ProducerId, reply: Resumed
    ) -> tuple[int, int] | None:
        """Numbers that have receipts and are not on the server: from, up to; None: it has all.

        On a topic that was deleted and made again they are not missing, unless the deleted one
        is known to have had fewer: the server went back in time before.
        """
        first = next((each for each in lane.parcels if each.producer == producer), None)
        acknowledged = first.first_sequence - 1 if first else 0
        counted_on = lane.numbers[producer].topic_id
        is_same = counted_on != 0 and reply.topic_id == counted_on
        was_deleted = counted_on != 0 and reply.deleted_after > 0
        last = reply.last_sequence if is_same else reply.deleted_after
        is_known = is_same or reply.lost or was_deleted
        return (last + 1, acknowledged) if is_known and last < acknowledged else None

    def plan(self, lane: TopicPuts, producer: ProducerId, reply: Resumed) -> Renumbering:
        """Where the server stands: what it has keeps its numbers, the rest is renumbered.

        What it has is sent again all the same: that brings its own receipt.
        """
        numbers = lane.numbers[producer]
        # Numbers given before any answer named the topic are of whichever topic has the name.
        same_topic = numbers.topic_id in (0, reply.topic_id)
        first = sequence = Sequence(max(reply.last_sequence, reply.above) + 1)
        kept_below: Sequence | None = None
        gone: list[PutBatch] = []
        stored: list[PutBatch] = []
        for parcel in lane.parcels:
            if parcel.producer != producer:
                continue
            end = parcel.first_sequence + parcel.count - 1
            was_there = parcel.tried and end <= reply.deleted_after
            is_there = same_topic and parcel.tried and end <= reply.last_sequence
            is_damaged = parcel.refusal is not None and parcel.refusal.code == DAMAGED
            if was_there and (parcel.refusal is None or parcel.refusal.code in LATER):
                stored.append(parcel)
            elif is_damaged and (was_there or is_there):
                stored.append(parcel)  # it cannot be sent again for a receipt of its own
            elif parcel.refusal is not None and not (is_there and parcel.refusal.code in LATER):
                gone.append(parcel)
            elif is_there:
                assert kept_below is None, "parcels are sent, and stored, in their order"
            else:
                kept_below = kept_below or parcel.first_sequence
                sequence = Sequence(sequence + parcel.count)
        # Parcels follow each other without a gap: if the last keeps its numbers, all do.
        is_change = bool(gone or stored) or (reply.topic_id, sequence) != (
            numbers.topic_id,
            numbers.next,
        )
        if kept_below is None:
            kept_below = numbers.next
        return Renumbering(
            reply.topic_id, reply.permit, kept_below, first, sequence, gone, stored, is_change
        )

    def carry_out(self, lane: TopicPuts, producer: ProducerId, plan: Renumbering) -> None:
        """The disk has what is planned, where it lasts: the lane goes on under its new numbers."""
        for parcel in (*plan.gone, *plan.stored):
            self._drop(lane, parcel)
        sequence = plan.first
        for parcel in lane.parcels:
            if parcel.producer != producer:
                continue
            parcel.refusal = None
            if parcel.first_sequence >= plan.kept_below:
                parcel.tried = parcel.tried and parcel.first_sequence == sequence
                parcel.first_sequence = sequence
                sequence = Sequence(sequence + parcel.count)
        lane.lost = False
        lane.resume = None
        lane.numbers[producer] = ProducerNumbers(
            plan.topic_id, plan.next, sure=True, permit=plan.permit
        )

    def unrecorded(self) -> int:
        """Messages under way that no disk of ours holds."""
        return sum(
            parcel.count
            for lane in self.busy.values()
            for parcel in lane.parcels
            if not parcel.lasting
        )

    @property
    def waits_for_room(self) -> bool:
        """Whether a lane was put off until there is room, at the server or on the own disk."""
        return any(lane.put_off for lane in self.busy.values())

    def try_again(self) -> None:
        """Time has passed: lanes that were put off may go on."""
        for lane in self.busy.values():
            lane.put_off = False

    def abandon(self) -> list[PutBatch]:
        """Take everything back: the client was fenced, or gives up."""
        parcels = [parcel for lane in self.busy.values() for parcel in lane.parcels]
        for lane in self.busy.values():
            lane.parcels.clear()
        self.busy.clear()
        self.unacknowledged = 0
        return parcels

    def _lose(self, lane: TopicPuts) -> None:
        lane.lost = bool(lane.parcels)
        for parcel in lane.parcels:
            if parcel.under_way:
                self.cancelled.append(parcel)
                parcel.under_way = False

    def _drop(self, lane: TopicPuts, parcel: PutBatch) -> None:
        if lane.parcels and lane.parcels[0] is parcel:
            lane.parcels.popleft()
        else:
            lane.parcels.remove(parcel)
        if not lane.parcels:
            self.busy.pop(lane.topic, None)
        self.unacknowledged -= parcel.count
