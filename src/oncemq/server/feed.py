"""What goes out on the live feed: each batch once, when it is durable, if anyone listens.

Laws: only what is visible to readers is pushed, in the order it became so, as the bytes a get
would give. What is too large to be kept for listeners that do not keep up is announced; so is
what became visible in a way that left no batch at hand: a listener pulls what it lacks.
"""

from collections import deque
from collections.abc import Iterable, Sequence

from oncemq.broker.state.shard import Shard
from oncemq.protocol.names import Micros, Offset, SubscriptionId, TopicId
from oncemq.protocol.records import MessagesStored
from oncemq.protocol.replies import BatchHead, Pushed
from oncemq.protocol.step import Body, Shown
from oncemq.wire import codec

PUSH_BYTES_MAX = 128 << 10  # of one message of the feed
BATCH_BYTES = 200  # what a batch takes besides its body, in a listener's line
WELCOME_MICROS = 50_000  # newcomers are told together where their topics end, at most this often

Kept = tuple[MessagesStored, Body]


class Pushes:
    """From stored batches to messages of the feed."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self.outgoing: list[Sequence[Body]] = []
        self.audience: set[TopicId] = set()  # topics that somebody listens to
        self._newcomers: dict[TopicId, None] = {}
        self._welcome_due = Micros(0)
        self.kept: dict[TopicId, deque[Kept]] = {}  # on their way to the disk

    def changed(self, *, joined: bool, subject: bytes) -> None:
        """Someone listens to a subject, or nobody any more."""
        topic_id = codec.topic_of(subject)
        if topic_id is None:
            return
        if joined:
            self.audience.add(topic_id)
            self._newcomers[topic_id] = None
        else:
            self.audience.discard(topic_id)
            self._newcomers.pop(topic_id, None)

    def stored(self, record: MessagesStored, body: Body) -> None:
        """A batch is on its way to the disk."""
        if record.topic_id in self.audience:
            self.kept.setdefault(record.topic_id, deque()).append((record, body))

    def shown(self, shown: Iterable[Shown]) -> None:
        """These are visible now; not asked where nobody listens and nothing is kept."""
        spans: dict[TopicId, tuple[Offset, Offset]] = {}
        for each in shown:
            first, _ = spans.get(each.topic_id, (each.start, each.end))
            spans[each.topic_id] = first, each.end
        for topic_id, (start, end) in spans.items():
            kept = self._taken(topic_id, end)
            topic = self._shard.topics.get(topic_id)
            if topic_id in self.audience and topic is not None:
                self._push(topic.name, topic_id, kept, start, end)

    def tick(self, now: Micros) -> None:
        """Tell newcomers where their topics end: what was pushed before passed them by."""
        if not self._newcomers or now < self._welcome_due:
            return
        newcomers, self._newcomers = self._newcomers, {}
        self._welcome_due = Micros(now + WELCOME_MICROS)
        for topic_id in newcomers:
            topic = self._shard.topics.get(topic_id)
            if topic is not None:
                self._announce(topic_id, topic.visible)

    def next_deadline(self) -> Micros | None:
        """When `tick` is worth calling again."""
        return self._welcome_due if self._newcomers else None

    def _taken(self, topic_id: TopicId, end: Offset) -> list[Kept]:
        """What was kept of a topic below an end; kept no longer."""
        kept = self.kept.get(topic_id)
        taken: list[Kept] = []
        while kept and kept[0][0].first_offset < end:
            taken.append(kept.popleft())
        if kept is not None and not kept:
            del self.kept[topic_id]
        return taken

    def _push(
        self, topic: str, topic_id: TopicId, kept: list[Kept], start: Offset, end: Offset
    ) -> None:
        """In as few messages as fit. `start`: what listeners have; a gap here is a gap there."""
        heads: list[BatchHead] = []
        bodies: list[Body] = []
        size = 0
        for record, body in kept:
            cost = len(body) + BATCH_BYTES
            if cost > PUSH_BYTES_MAX or record.first_offset != start:
                break  # the rest is announced
            if size + cost > PUSH_BYTES_MAX or len(heads) >= codec.FRAMES_MAX - 1:
                self._send(topic_id, start, heads, bodies)
                heads, bodies, size = [], [], 0
            heads.append(_head(topic, record))
            bodies.append(body)
            size += cost
            start = Offset(record.first_offset + record.count)
        if heads:
            self._send(topic_id, start, heads, bodies)
        if start < end:
            self._announce(topic_id, end)

    def _send(
        self, topic_id: TopicId, end: Offset, heads: list[BatchHead], bodies: list[Body]
    ) -> None:
        pushed = Pushed(topic_id, end, tuple(heads))
        self.outgoing.append(codec.encode_push(pushed, bodies))

    def _announce(self, topic_id: TopicId, end: Offset) -> None:
        self.outgoing.append(codec.encode_push(Pushed(topic_id, end)))


def _head(topic: str, record: MessagesStored) -> BatchHead:
    return BatchHead(
        topic=topic,
        topic_id=record.topic_id,
        subscription_id=SubscriptionId(0),  # of whoever listens
        first_offset=record.first_offset,
        count=record.count,
        columns=record.columns,
        checksum=record.checksum,
        runs=record.runs,
    )
