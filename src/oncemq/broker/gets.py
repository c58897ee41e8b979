"""Gets: each subscription gets each message once, in order, and only what is durable (G1, G4).

Laws: a get moves the cursor to what the client says it settled and no further; the messages
it answers with stay the subscription's until a later request settles them.
"""

from collections import deque

from msgspec.structs import replace

from oncemq.broker import queries
from oncemq.broker.end_watches import EndWatches
from oncemq.broker.recorder import Recorder
from oncemq.broker.state.topic import Topic
from oncemq.broker.waits import LongPoll, LongPolls, PollKey, WaitMoments
from oncemq.protocol.names import ClientId, Micros, Offset, Serial, SubscriptionId, TopicId
from oncemq.protocol.patterns import is_pattern
from oncemq.protocol.records import CursorMoved
from oncemq.protocol.replies import Done, Messages, RefusedReply, Reply
from oncemq.protocol.requests import Get, Read, Settle, Settled
from oncemq.protocol.step import Caller, Deliver, Owed, Shown, Span, Step

NOTHING_NEW = Messages((), more=False)


class Gets:
    """The subscribers' side of the broker."""

    def __init__(self, scribe: Recorder, moments: WaitMoments) -> None:
        self._scribe = scribe
        self._shard = scribe.shard
        self._moments = moments
        self.waiting = LongPolls(moments)
        self.watching = EndWatches(scribe, moments)
        self._unsynced: deque[tuple[Serial, Topic, Offset]] = deque()

    def stored(self, topic: Topic) -> None:
        """New messages are in the log, not yet durable."""
        self._unsynced.append((self._shard.serial, topic, topic.end))

    def synced(self, serial: Serial) -> Step:
        """The log is durable up to `serial`: show what it holds, and wake who waits for it."""
        step = Step()
        moved: dict[TopicId, Topic] = {}
        while self._unsynced and self._unsynced[0][0] <= serial:
            _, topic, end = self._unsynced.popleft()
            step.shown.append(Shown(topic.id, topic.visible, end))
            topic.visible = end
            moved[topic.id] = topic
        if not self._moments.by_key:  # nobody waits
            return step
        for topic in moved.values():  # all of a commit is visible before anyone hears of it
            for waiter in self.waiting.on_topic(topic.name, topic.subscriptions):
                if not self._deliver(step, waiter.caller, waiter.get):
                    self.waiting.add(waiter)  # it subscribed after these messages
            self.watching.moved(step, topic.name)
        return step

    def expire(self, step: Step, key: PollKey) -> None:
        """End a wait that is over: nothing new is an answer, not an error."""
        waiter = self.waiting.take(key)
        if waiter is not None:
            step.replies.append(Owed(waiter.caller, NOTHING_NEW))

    def get(self, step: Step, caller: Caller, get: Get, now: Micros) -> None:
        """The next messages, now or when they come."""
        if is_pattern(get.topic):
            get = replace(get, topic="", only=(get.topic,), start=-1)
        refusal = self._shard.clients.refusal(get.client, get.client_epoch)
        refusal = refusal or self.move_cursors(step, get.client, get.settled)
        for name in (get.topic, *get.only):
            refusal = refusal or self.not_subscribed(get.client, name)
        if refusal:
            self._scribe.answer(step, caller, refusal)
        elif not self._deliver(step, caller, get):
            wait_ms = min(get.wait_ms, self._scribe.rules.wait_ms_max)
            if wait_ms > 0:
                self._wait(LongPoll(caller, get, Micros(now + wait_ms * 1000)))
            else:
                step.replies.append(Owed(caller, NOTHING_NEW))

    def settle(self, step: Step, settle: Settle) -> Reply:
        """Move cursors; the answer comes when that is durable."""
        refusal = self._shard.clients.refusal(settle.client, settle.client_epoch)
        refusal = refusal or self.move_cursors(step, settle.client, settle.settled)
        return refusal or Done(bool(step.writes), self._ended(settle))

    def read(self, step: Step, caller: Caller, read: Read) -> None:
        """Stored messages by offset, for those who keep their own cursor."""
        topic = self._shard.by_name.get(read.topic)
        if topic is None:
            answer = queries.no_such_topic(self._shard, read.topic)
        elif not topic.low <= read.offset <= topic.visible:
            answer = RefusedReply(
                "offset_out_of_range",
                f"{read.topic!r} holds offsets {topic.low} up to {topic.visible}, "
                f"not {read.offset}",
            )
        elif read.offset == topic.visible:
            answer = NOTHING_NEW
        else:
            span = _span(topic, SubscriptionId(0), read.offset)
            deliver = self._deliver_of((span,), read.limit, read.bytes_max)
            answer = deliver._replace(whole=read.whole)
        if isinstance(answer, RefusedReply):  # a deletion that it rests on has to be durable first
            self._scribe.answer(step, caller, answer)
        else:
            step.replies.append(Owed(caller, answer))

    def _deliver(self, step: Step, caller: Caller, get: Get) -> bool:
        """Answer a get with what is there; False when nothing is."""
        topics = self._shard.subscribed(get.client, (get.topic,) if get.topic else get.only)
        spans: list[Span] = []
        made = Serial(0)
        for topic in topics:
            subscription = topic.subscriptions[get.client]
            same = get.topic and get.subscription_id in (0, subscription.id)
            start = max(subscription.cursor, get.start) if same else subscription.cursor
            if topic.lost.over(Offset(start)) < topic.visible:
                spans.append(_span(topic, subscription.id, Offset(start)))
                made = max(made, subscription.made)
        if spans:
            deliver = self._deliver_of(tuple(spans), get.limit, get.bytes_max)
            # The messages are durable; the subscription that gets them has to be, too.
            step.replies.append(Owed(caller, deliver, made))
        return bool(spans)

    def _wait(self, waiter: LongPoll) -> None:
        """Let a get wait; one that is sent again does not begin to wait anew.

        Of what it names only that is kept which it waits for: its client's subscriptions, once.
        """
        get = waiter.get
        if get.settled or get.only:
            only = () if get.topic else tuple(dict.fromkeys(get.only))
            waiter = waiter._replace(get=replace(get, settled=(), only=only))
        before = self.waiting.of((waiter.get.client, waiter.get.topic))
        if before is not None and before.caller.token == waiter.caller.token:
            waiter = waiter._replace(deadline=min(waiter.deadline, before.deadline))
        self.waiting.add(waiter)

    def _deliver_of(self, spans: tuple[Span, ...], limit: int, bytes_max: int) -> Deliver:
        """At least something, and no more at once than a batch may have (G8)."""
        bytes_max = min(max(1, bytes_max), self._scribe.rules.batch_bytes_max)
        return Deliver(spans, max(1, limit), bytes_max)

    def not_subscribed(self, client: ClientId, name: str) -> RefusedReply | None:
        """Why a client gets nothing of a topic, or (empty) of any; None when it does."""
        if not name:
            if self._shard.subscribes(client):
                return None
            return RefusedReply(
                "not_subscribed", f"{client!r} has no subscription: subscribe first"
            )
        if self._shard.subscribed(client, (name,)) or name in self._shard.patterns.of(client):
            return None
        return RefusedReply(
            "not_subscribed", f"{client!r} is not subscribed to {name!r}: subscribe first"
        )

    def move_cursors(
        self, step: Step, client: ClientId, settled: tuple[Settled, ...]
    ) -> RefusedReply | None:
        """Everything below these took effect at the client; all of them move, or none."""
        moves: dict[TopicId, CursorMoved] = {}  # the furthest, when a topic is named twice
        for each in settled:
            topic = self._shard.by_name.get(each.topic)
            if topic is None or not _is_of(topic, client, each.subscription_id):
                continue  # of a subscription that ended: settling it changes nothing (G6)
            if each.cursor > topic.end:
                return RefusedReply(
                    "cursor_beyond_end",
                    f"cursor {topic.name}/{client}@{each.cursor} is beyond the end "
                    f"@{topic.end}: this server has lost messages it once gave out. End this "
                    "client, see what is lost, and go on with what is there: "
                    f"`once client accept --id {client}`",
                )
            stands = topic.subscriptions[client].cursor
            before = moves[topic.id].cursor if topic.id in moves else stands
            if each.cursor > before:
                moves[topic.id] = CursorMoved(topic.id, client, each.cursor)
        for move in moves.values():
            self._scribe.write(step, move)
        return None

    def _ended(self, settle: Settle) -> tuple[SubscriptionId, ...]:
        """Which of the subscriptions named have ended.

        One that a later history made, which this log has lost, is not named: its client is told
        what was lost with it when it starts (`core.comparing`), and must know of it until then.
        """
        named = ((each, self._shard.by_name.get(each.topic)) for each in settle.settled)
        return tuple(
            each.subscription_id
            for each, topic in named
            if (topic is None or not _is_of(topic, settle.client, each.subscription_id))
            and not self._shard.identities.is_lost(each.subscription_id)
        )


def _is_of(topic: Topic, client: ClientId, subscription_id: SubscriptionId) -> bool:
    """Whether this is the subscription that a client has on a topic."""
    subscription = topic.subscriptions.get(client)
    return subscription is not None and subscription.id == subscription_id


def _span(topic: Topic, subscription_id: SubscriptionId, offset: Offset) -> Span:
    """What is visible of a topic from `offset` on, up to the next hole."""
    start = topic.lost.over(offset)
    end = topic.lost.up_to(start, topic.visible)
    lost = topic.lost.ending_at(start)
    goes_on = topic.lost.over(end) < topic.visible
    return Span(topic.name, topic.id, subscription_id, start, end, lost, goes_on)
