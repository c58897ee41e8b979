"""Bugs planted in the client: in what publishes, and in what gets; see `planted`."""

from typing import Any

from oncemq.client.engine.engine import Engine
from oncemq.client.puts.put_buffer import PutBuffer
from oncemq.client.state import outbox
from oncemq.client.state.outbox import Slot
from oncemq.client.state.state import State
from oncemq.client.state.unsent import sign, unsent
from oncemq.protocol.names import ANONYMOUS_EPOCH, ClientId, Epoch, TopicId
from oncemq.protocol.requests import Settled
from oncemq.session.handshake import Handshake
from oncemq.session.prefetched import Prefetched
from oncemq.session.publisher import Publisher, PutBatch
from oncemq.session.subscriber import Subscriber
from simulator.planted.plant import instead

# The publisher


@instead(Slot, "record")
def _sends_before_recording(_: Any) -> Any:
    def record(self: Any, puts: Any) -> None:
        for put in puts:
            vars(outbox)["_append"](self._log, put)

    return record


@instead(PutBuffer, "request", "blackout")
def _forgets_before_the_receipt(original: Any) -> Any:
    def request(self: Any, parcel: Any) -> Any:
        if isinstance(parcel, PutBatch) and parcel.lasting:
            self.producers.slot(parcel.producer).done(unsent(parcel, TopicId(0)))
        return original(self, parcel)

    return request


@instead(PutBuffer, "request")
def _numbers_a_retry_anew(original: Any) -> Any:
    def request(self: Any, parcel: Any) -> Any:
        if not isinstance(parcel, PutBatch):
            return original(self, parcel)
        made: dict[int, PutBatch] = self.__dict__.setdefault("made", {})
        if id(parcel) in made:
            numbers = self._publisher.numbers(parcel.topic, parcel.producer)
            parcel.first_sequence = numbers.take(parcel.count)
            sign(parcel)  # the checksum covers the numbers
        made[id(parcel)] = parcel
        return original(self, parcel)

    return request


@instead(PutBuffer, "_adopt", "wild and client_disk")
def _takes_the_topic_id_from_another_slot(original: Any) -> Any:
    def adopt(self: Any) -> None:
        original(self)
        for lane in self._publisher.all_lanes():
            last = list(lane.numbers.values())[-1].topic_id
            for numbers in lane.numbers.values():
                numbers.topic_id = last

    return adopt


@instead(Slot, "renumber", "wild and client_disk")
def _uses_new_numbers_before_they_are_on_disk(_: Any) -> Any:
    def renumber(self: Any, *args: Any, **kwargs: Any) -> None:
        """Nothing: the memory alone has them."""

    return renumber


@instead(Publisher, "forget", "wild")
def _forgets_numbers_on_topics_that_are_there(_: Any) -> Any:
    def forget(self: Any, asked: Any, deleted: Any) -> Any:
        idle = [lane.topic for lane in self.all_lanes() if not lane.parcels]
        for topic in idle:
            del self.by_topic[topic]
        return ()

    return forget


@instead(PutBuffer, "_see_to_failure", "client_disk")
def _takes_a_failed_record_for_sent(_: Any) -> Any:
    def see_to_failure(self: Any, producer: Any) -> None:
        """Nobody is told, and the client goes on."""

    return see_to_failure


@instead(State, "greeting")
def _claims_without_recording(_: Any) -> Any:
    def greeting(self: Any, over: Epoch = ANONYMOUS_EPOCH) -> Handshake:
        claim = int.from_bytes(self.random_bytes(8)) >> 2
        last_epoch, earlier, log, last_nonce = self.journal.copy().claim(claim)
        return Handshake(
            ClientId(self.client),
            last_epoch=last_epoch,
            earlier=earlier,
            claim=claim,
            last_nonce=last_nonce,
            over=over,
            log=log,
        )

    return greeting


# The subscriber


@instead(Subscriber, "recall")
def _ignores_its_cursors(_: Any) -> Any:
    def recall(self: Any, cursors: Any) -> None:
        self.ended(self.cursors.topics)

    return recall


@instead(Engine, "settle")
def _hands_out_before_recording(_: Any) -> Any:
    def settle(self: Any, messages: Any, **options: Any) -> None:
        self.subscriber.move(self.subscriber.cursors.moves(messages))

    return settle


@instead(Engine, "settle", "twin")
def _settles_though_fenced(original: Any) -> Any:
    def settle(self: Any, messages: Any, **options: Any) -> None:
        own = self.context.granted
        if self.state.journal is not None:
            self.context.granted = self.state.journal.last_epoch()
        try:
            original(self, messages, **options)
        finally:
            self.context.granted = own

    return settle


@instead(Subscriber, "__init__")
def _settles_before_delivery(original: Any) -> Any:
    def begin(self: Any, cursors: Any = None) -> None:
        original(self, cursors)

        def untold() -> tuple[Settled, ...]:
            feeds: dict[str, Any] = self.prefetched._feeds
            cursors: dict[str, Any] = self.cursors.by_topic
            ahead = {topic: feed.ahead for topic, feed in feeds.items()}
            return tuple(
                Settled(topic, cursor.subscription_id, max(cursor.next, ahead.get(topic, 0)))
                for topic, cursor in cursors.items()
            )

        self.told.untold = untold

    return begin


@instead(Subscriber, "forget", "moving")
def _keeps_what_was_fetched_when_it_unsubscribes(_: Any) -> Any:
    def forget(self: Any, topic: str) -> None:
        del self, topic

    return forget


@instead(Prefetched, "want")
def _takes_a_fetch_that_was_put_back(original: Any) -> Any:
    def want(self: Any, topic: str, limit: int) -> int:
        count = original(self, topic, limit)
        self._asked[topic] = -1
        return count

    return want
