"""Subscribing by pattern: one fact for the pattern, one for each topic it matches (G6).

Laws: a pattern subscribes its client to what matches now and to what is made later, from the first
message. Its end ends what it made, but not what was also asked for by name or by another pattern
of the same client. A topic that was left by name stays left: the pattern made it once. A pattern
that is there has all it made, also when the power failed in the middle of it; what it made and
left behind is ended by whoever asks about the pattern next.
"""

from oncemq.broker.recorder import Recorder
from oncemq.broker.state.shard import Shard
from oncemq.broker.state.topic import Topic
from oncemq.broker.waits import LongPolls
from oncemq.protocol.names import NO_SUBSCRIPTION, ClientId, Micros, Offset, SubscriptionId, TopicId
from oncemq.protocol.patterns import among, is_pattern, matches, pattern_fault
from oncemq.protocol.records import (
    PatternSubscribed,
    PatternUnsubscribed,
    SubscriptionDerived,
    SubscriptionEnded,
)
from oncemq.protocol.replies import RefusedReply, Reply, Subscribed, Unsubscribed
from oncemq.protocol.requests import (
    START_EARLIEST,
    START_NEW,
    CreateTopic,
    Request,
    Subscribe,
    Unsubscribe,
)
from oncemq.protocol.step import Step

NO_TOPIC = TopicId(0)
AWAITING_BYTES_MAX = 8 << 20  # of names: one fact about a new topic has room for them all


class PatternSubscriptions:
    """Patterns coming and going; who may ask was checked."""

    def __init__(self, scribe: Recorder, waiting: LongPolls) -> None:
        self._scribe = scribe
        self._shard = scribe.shard
        self._waiting = waiting

    def subscribe(self, step: Step, subscribe: Subscribe, now: Micros) -> Reply:
        """Make a pattern, and subscriptions to what matches; or say it is there already."""
        client, pattern = subscribe.client, subscribe.topic
        there = self._shard.patterns.of(client).get(pattern)
        if there is not None:
            return Subscribed(False, NO_TOPIC, there, Offset(0))
        found = [self._shard.by_name[name] for name in among(pattern, self._shard.names)]
        refusal = self._refusal(subscribe, found)
        if refusal:
            return refusal
        self._end_orphans(step, client, pattern)
        identity = SubscriptionId(self._shard.next_identity())
        earliest = subscribe.start.mode == START_EARLIEST
        missing = [topic for topic in found if client not in topic.subscriptions]
        # The pattern comes last: who finds it finds all it made, whenever the power failed.
        for number, topic in enumerate(missing, identity + 1):
            cursor = topic.low if earliest else topic.end
            derived = SubscriptionDerived(topic.id, SubscriptionId(number), client, cursor, now)
            self._scribe.write(step, derived)
        self._scribe.write(step, PatternSubscribed(identity, client, pattern, now))
        return Subscribed(True, NO_TOPIC, identity, Offset(0))

    def unsubscribe(self, step: Step, client: ClientId, pattern: str) -> Reply:
        """End a pattern and what only it holds."""
        identity = self._shard.patterns.of(client).get(pattern, NO_SUBSCRIPTION)
        there = identity != NO_SUBSCRIPTION
        if there:  # first: if the power fails in between, what it made is seen to be orphaned
            self._scribe.write(step, PatternUnsubscribed(client, pattern))
        ended = self._end_orphans(step, client, pattern)
        if not there and not ended:
            return Unsubscribed(False)
        self._tell(step, client, list(ended))
        return Unsubscribed(there, tuple(ended), (identity, *ended.values()))

    def _end_orphans(self, step: Step, client: ClientId, pattern: str) -> dict[str, SubscriptionId]:
        """End what patterns made and none holds any more: now, or when the power failed."""
        ended: dict[str, SubscriptionId] = {}
        for topic in self._shard.subscribed(client, (pattern,)):
            there = topic.subscriptions[client]
            if there.derived and not self._held(client, topic):
                self._scribe.write(step, SubscriptionEnded(topic.id, client))
                ended[topic.name] = there.id
        return ended

    def _refusal(self, subscribe: Subscribe, found: list[Topic]) -> RefusedReply | None:
        fault = pattern_fault(subscribe.topic)
        if fault:
            return RefusedReply("name_invalid", fault)
        if subscribe.start.mode not in (START_NEW, START_EARLIEST):
            return RefusedReply(
                "malformed", f"{subscribe.topic!r} is many topics: it starts at new or earliest"
            )
        patterns, more = self._shard.patterns, len(subscribe.client.encode())
        if patterns.bytes + more > AWAITING_BYTES_MAX:
            detail = (
                f"the clients of {patterns.count} patterns have names of {patterns.bytes} bytes"
            )
            return RefusedReply("limit", f"{detail}: this server takes no more; end one first")
        if len(found) > self._scribe.rules.pattern_topics_max:
            detail = f"{subscribe.topic!r} matches {len(found)} topics"
            most = self._scribe.rules.pattern_topics_max
            return RefusedReply("limit", f"{detail}, more than the {most} allowed: ask for fewer")
        most = self._scribe.rules.subscriptions_max
        full = next((each for each in found if len(each.subscriptions) >= most), None)
        if full is not None or patterns.count >= most:
            what = f"{full.name!r} has its {most} subscriptions" if full else f"{most} patterns"
            return RefusedReply("limit", f"{what}: this server takes no more; end one first")
        return self._scribe.identity_refusal(1 + len(found))

    def _held(self, client: ClientId, topic: Topic) -> bool:
        """Whether another pattern of the client wants the topic."""
        return any(matches(each, topic.name) for each in self._shard.patterns.of(client))

    def _tell(self, step: Step, client: ClientId, ended: list[str]) -> None:
        """A get that waits for what has ended is told so."""
        waiters = [self._waiting.take((client, name)) for name in ended]
        anything = self._waiting.of((client, ""))
        if anything is not None and not self._may_come(client, anything.get.only):
            waiters.append(self._waiting.take((client, "")))
        for waiter in waiters:
            if waiter is not None:
                gone = RefusedReply("not_subscribed", "the subscription it waited for has ended")
                self._scribe.answer(step, waiter.caller, gone)

    def _may_come(self, client: ClientId, only: tuple[str, ...]) -> bool:
        """Whether a get of these (none: of any) has something to wait for."""
        if not only:
            return self._shard.subscribes(client)
        patterns = self._shard.patterns.of(client)
        return bool(self._shard.subscribed(client, only)) or any(
            is_pattern(name) and name in patterns for name in only
        )


def derived_by(shard: Shard, request: Request) -> int:
    """How many facts may follow from a request because of patterns, beside those of its own."""
    match request:
        case Subscribe() if is_pattern(request.topic):
            return len(among(request.topic, shard.names))
        case Unsubscribe() if is_pattern(request.topic):
            return len(shard.by_client.get(request.client, ()))
        case Subscribe() | CreateTopic() if shard.patterns.count:
            known = request.topic in shard.by_name
            return 0 if known else len(shard.patterns.wanting(request.topic))
        case _:
            return 0
