"""Who numbers a client's puts: its producers, and the slots of the outbox that keep their numbers.

Laws: a topic that a producer of the slot has numbers on stays with that producer. A topic without
numbers gets the slot's newest producer, which has forgotten none: once any numbers of a slot are
forgotten, a new one takes the place. So no number is ever used twice for one topic, and nothing
that is unsent can be taken for a put that a deleted topic had. Puts that do not last have no slot,
and producers of their own.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from oncemq.client.state.unsent import Unsent, unsent
from oncemq.protocol.names import ProducerId
from oncemq.session.publisher import Publisher

if TYPE_CHECKING:
    from oncemq.client.state.outbox import Slot
    from oncemq.client.state.outbox_contents import LaneKept
    from oncemq.client.state.state import State


class Producers:
    """Those of one client."""

    def __init__(self, state: "State", publisher: Publisher) -> None:
        self._state = state
        self._publisher = publisher
        self._slots: dict[ProducerId, Slot] = {}

    def add(self, producer: ProducerId, slot: "Slot") -> None:
        """A slot keeps the numbers of this producer."""
        self._slots[producer] = slot
        if not slot.is_new:
            self._publisher.from_disk.add(producer)

    def slot(self, producer: ProducerId) -> "Slot | None":
        """Where a producer's numbers are kept; None: in memory only."""
        return self._slots.get(producer)

    def slot_of(self, producer: ProducerId) -> "Slot":
        """The slot of a producer whose puts last."""
        return self._slots[producer]

    def kept_in(self, slot: "Slot") -> "tuple[dict[str, LaneKept], list[Unsent]]":
        """What a slot has to keep: where numbers go on, and what has no answer."""
        lanes: dict[str, LaneKept] = {}
        pending: list[Unsent] = []
        for lane in self._publisher.all_lanes():
            for producer, numbers in lane.numbers.items():
                if self._slots.get(producer) is slot:
                    lanes[lane.topic] = (numbers.topic_id, numbers.next, producer)
                    mine = (each for each in lane.parcels if each.producer == producer)
                    pending += [unsent(parcel, numbers.topic_id) for parcel in mine]
        return lanes, pending

    def for_topic(self, topic: str, *, lasting: bool) -> ProducerId:
        """Whose numbers the next put to a topic gets."""
        slot = self._state.slots[0] if lasting else None
        lane = self._publisher.by_topic.get(topic)
        for producer in lane.numbers if lane is not None else ():
            if self._slots.get(producer) is slot:
                return producer
        return self._state.guest if slot is None else slot.producer

    def replace(self, forgot: Iterable[ProducerId]) -> None:
        """These have forgotten numbers: topics without any get new producers from now on."""
        slots = {id(slot): slot for slot in map(self._slots.get, forgot)}
        for slot in slots.values():
            if slot is None:
                self._state.renew_guest()
            else:
                self._slots[slot.renew()] = slot
        if slots:
            self._drop_unused()

    def _drop_unused(self) -> None:
        used = {each for lane in self._publisher.all_lanes() for each in lane.numbers}
        used.update(slot.producer for slot in self._state.slots)
        self._slots = {each: slot for each, slot in self._slots.items() if each in used}
        self._publisher.from_disk &= used
