"""The publisher's side of exactly-once: numbers, order, what is under way, what comes back.

Laws: a topic's puts leave in the order they were given and keep their numbers through every
retry; no more than RECENT_MAX are under way on a topic, so the server still knows each
receipt word for word; numbers change only after the server said it never saw them, and never
silently when it lacks some that it had given receipts for (`missing`). Numbers
that come from a disk are used only after the server said where they stand: the disk may be a copy.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from oncemq.core.names import Micros, ProducerId, Sequence, TopicId
from oncemq.core.producers import RECENT_MAX
from oncemq.core.replies import PutAccepted, Refused, Resumed
from oncemq.core.step import Body

AGAIN = frozenset({"topic_changed", "sequence_gap", "outdated"})  # ask where we stand, renumber
RETRY = frozenset({"checksum", "unknown_client"})  # send the same again
# Another copy may be stored where this one was not.
LATER = frozenset({"storage_full", "limit", "unwanted"})

NEVER = Micros(0)
GUEST_MICROS = 43_200_000_000  # half of the day after which a server forgets a guest


@dataclass(slots=True)
class Parcel:
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
    token: int = 0  # of the exchange it is under way in; 0: not sent
    tried: bool = False  # it may have reached the server under its numbers
    refusal: Refused | None = None  # believed once a resume shows that no copy was stored
    required: bool = False  # refused where nobody would get it, instead of discarded


@dataclass(slots=True)
class Lane:
    """One topic: its parcels in order, and each producer's next number."""

    topic: str
    topic_id: TopicId = TopicId(0)
    parcels: deque[Parcel] = field(default_factory=deque[Parcel])
    next_sequences: dict[ProducerId, Sequence] = field(default_factory=dict[ProducerId, Sequence])
    lost: bool = False  # the server disagrees about the numbers: resume before sending
    permits: dict[ProducerId, int] = field(default_factory=dict[ProducerId, int])
    resume_token: int = 0
    put_off: bool = False  # the server has no room: send nothing until told to try again
    sure: set[ProducerId] = field(default_factory=set[ProducerId])  # see Publisher.from_disk
    acknowledged_at: Micros = NEVER
    counted_on: dict[ProducerId, TopicId] = field(default_factory=dict[ProducerId, TopicId])

    def is_long_ago(self, now: Micros) -> bool:
        """Whether the server may have forgotten a guest that put here last."""
        return now - self.acknowledged_at > GUEST_MICROS

    def is_lost(self, from_disk: set[ProducerId]) -> bool:
        """Whether the server must be asked before the next parcel may leave."""
        if self.lost or not self.parcels:
            return self.lost
        producer = self.parcels[0].producer
        return producer in from_disk and producer not in self.sure


class Publisher:
    """All lanes of one client."""

    def __init__(self) -> None:
        self._lanes: dict[str, Lane] = {}
        self._busy: dict[str, Lane] = {}  # those with parcels: the others cost nothing
        self.unacknowledged = 0
        self.cancelled: list[int] = []  # tokens whose replies no longer matter
        self.from_disk: set[ProducerId] = set()  # those that earlier starts have used

    def lane(self, topic: str) -> Lane:
        """The topic's lane."""
        lane = self._lanes.get(topic)
        if lane is None:
            lane = self._lanes[topic] = Lane(topic)
        return lane

    def lanes(self) -> list[Lane]:
        """Every lane that has something to send or to learn."""
        return list(self._busy.values())

    def all_lanes(self) -> list[Lane]:
        """Every lane, with or without parcels."""
        return list(self._lanes.values())

    def number(self, parcel: Parcel) -> Sequence:
        """Give a parcel the producer's next numbers on its topic."""
        lane = self.lane(parcel.topic)
        first = lane.next_sequences.get(parcel.producer, Sequence(1))
        parcel.first_sequence = first
        lane.next_sequences[parcel.producer] = Sequence(first + parcel.count)
        return first

    def add(self, parcel: Parcel) -> None:
        """A numbered parcel (recorded, where it lasts) may leave from now on."""
        lane = self._busy[parcel.topic] = self.lane(parcel.topic)
        lane.parcels.append(parcel)
        self.unacknowledged += parcel.count

    def ready(self, lane: Lane) -> Iterator[Parcel]:
        """Parcels that may leave now, in order."""
        if lane.put_off or lane.is_lost(self.from_disk):
            return
        under_way = 0
        for parcel in lane.parcels:
            if parcel.token:
                under_way += 1
            elif under_way >= RECENT_MAX:
                return
            elif under_way and parcel.producer != lane.parcels[0].producer:
                return  # another producer's numbers: order holds only once the others are in
            else:
                under_way += 1
                parcel.tried = True
                yield parcel

    def accepted(self, parcel: Parcel, reply: PutAccepted, now: Micros = NEVER) -> None:
        """The server has it."""
        lane = self.lane(parcel.topic)
        lane.topic_id, lane.acknowledged_at = reply.topic_id, now
        lane.counted_on[parcel.producer] = reply.topic_id
        self._drop(parcel)

    def refused(self, parcel: Parcel, refused: Refused) -> bool:
        """The server said no; True when a resume will tell whether that is final.

        Another copy of it may be stored yet: only what a resume does not find never will be.
        """
        lane = self.lane(parcel.topic)
        parcel.token = 0
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

    def missing(self, lane: Lane, producer: ProducerId, reply: Resumed) -> tuple[int, int] | None:
        """Numbers that have receipts and are not on the server: from, up to; None: it has all.

        On a topic that was deleted and made again they are not missing: it begins anew there.
        """
        first = next((each for each in lane.parcels if each.producer == producer), None)
        acknowledged = first.first_sequence - 1 if first else 0
        counted_on = lane.counted_on.get(producer, 0)
        is_same = counted_on != 0 and reply.topic_id == counted_on
        last = reply.last_sequence if is_same else 0
        return (last + 1, acknowledged) if (is_same or reply.lost) and last < acknowledged else None

    def resumed(self, lane: Lane, producer: ProducerId, reply: Resumed) -> list[Parcel]:
        """Where the server stands: what it has keeps its numbers, the rest is renumbered.

        What it has is sent again all the same: that brings its own receipt. What was refused and
        is not there comes back: that is final now.
        """
        # Numbers given before any answer named the topic are of whichever topic has the name.
        same_topic = lane.topic_id in (0, reply.topic_id)
        lane.topic_id = lane.counted_on[producer] = reply.topic_id
        lane.lost = False
        lane.resume_token = 0
        lane.permits[producer] = reply.permit
        lane.sure.add(producer)
        sequence = Sequence(reply.last_sequence + 1)
        refused: list[Parcel] = []
        for parcel in list(lane.parcels):
            if parcel.producer != producer:
                continue
            end = parcel.first_sequence + parcel.count - 1
            is_there = same_topic and parcel.tried and end <= reply.last_sequence
            if parcel.refusal is not None and not (is_there and parcel.refusal.code in LATER):
                refused.append(parcel)
                self._drop(parcel)
                continue
            parcel.refusal = None
            if is_there:
                continue
            parcel.tried = parcel.tried and parcel.first_sequence == sequence
            parcel.first_sequence = sequence
            sequence = Sequence(sequence + parcel.count)
        lane.next_sequences[producer] = sequence
        return refused

    def unrecorded(self) -> int:
        """Messages under way that no disk of ours holds."""
        return sum(
            parcel.count
            for lane in self._busy.values()
            for parcel in lane.parcels
            if not parcel.lasting
        )

    @property
    def waits_for_room(self) -> bool:
        """Whether a lane was put off until the server has room."""
        return any(lane.put_off for lane in self._busy.values())

    def try_again(self) -> None:
        """Time has passed: lanes that were put off may go on."""
        for lane in self._busy.values():
            lane.put_off = False

    def abandon(self) -> list[Parcel]:
        """Take everything back: the client was fenced, or gives up."""
        parcels = [parcel for lane in self._busy.values() for parcel in lane.parcels]
        for lane in self._busy.values():
            lane.parcels.clear()
        self._busy.clear()
        self.unacknowledged = 0
        return parcels

    def _lose(self, lane: Lane) -> None:
        lane.lost = bool(lane.parcels)
        for parcel in lane.parcels:
            if parcel.token:
                self.cancelled.append(parcel.token)
                parcel.token = 0

    def _drop(self, parcel: Parcel) -> None:
        lane = self.lane(parcel.topic)
        if lane.parcels and lane.parcels[0] is parcel:
            lane.parcels.popleft()
        else:
            lane.parcels.remove(parcel)
        if not lane.parcels:
            self._busy.pop(lane.topic, None)
        self.unacknowledged -= parcel.count
