"""Who listens: joined, nudged when it lags behind, gone when it says so. The seeds' hello, goodbye.

Laws: a client listens at most once, the newest Listen counts; a listener that has settled nothing
for `retry_ms` though there is something for it is told again where its topics end, forever, and
nobody waits for it. In memory only: a server that starts again is asked again.
"""

from dataclasses import dataclass

from msgspec.structs import replace

from oncemq.broker.gets import Gets
from oncemq.broker.recorder import Recorder
from oncemq.broker.waits import LISTEN, WaitList, WaitMoments
from oncemq.protocol.names import ClientId, Micros
from oncemq.protocol.records import (
    ClientOpened,
    PatternUnsubscribed,
    SubscriptionDerived,
    SubscriptionEnded,
    SubscriptionMade,
    TopicAwaited,
    TopicDeleted,
)
from oncemq.protocol.replies import Done, ListenedAnswer, ListeningAnswer, RefusedReply, Reply
from oncemq.protocol.requests import Leave, Listen
from oncemq.protocol.step import Caller, Owed, Step

STILL_LISTENING = Done(changed=False)  # the wait is over and nothing lags: ask again


@dataclass(slots=True)
class Listener:
    """A Listen whose answer is put off."""

    caller: Caller
    listen: Listen
    deadline: Micros
    stands: int | None = None  # the sum of its cursors when it was last seen to lag


class Listeners:
    """All listeners of a server."""

    def __init__(self, scribe: Recorder, delivery: Gets, moments: WaitMoments) -> None:
        self._scribe = scribe
        self._shard = scribe.shard
        self._delivery = delivery
        self._look_micros = max(1, scribe.rules.retry_ms * 500)  # two looks make one retry
        # Each is due when it is time to look whether it lags.
        self._listeners: WaitList[ClientId, Listener] = WaitList(LISTEN, moments)
        self.feed = ""  # the address of the live feed, once there is one

    def __len__(self) -> int:
        return len(self._listeners)

    def __contains__(self, client: ClientId) -> bool:
        return client in self._listeners

    def listen(self, step: Step, caller: Caller, listen: Listen, now: Micros) -> None:
        """Join, go on listening, or acknowledge: the answer, now or when there is reason."""
        client = listen.client
        refusal = self._shard.clients.refusal(client, listen.client_epoch)
        refusal = refusal or self._delivery.move_cursors(step, client, listen.settled)
        if refusal:
            self._scribe.answer(step, caller, refusal)
            return
        self._listeners.take(client)
        changed = listen.known != self._shard.change_of(client)
        if listen.wait_ms <= 0 or changed or self._not_subscribed(listen):
            self._scribe.answer(step, caller, self._heard(listen))
            return
        # Of what it names only that is kept which it waits for: its subscriptions, once.
        topics = tuple(dict.fromkeys(listen.topics))
        listen = replace(listen, settled=(), topics=topics)
        wait = Micros(min(listen.wait_ms, self._scribe.rules.wait_ms_max) * 1000)
        due = Micros(now + min(wait, self._look_micros))
        self._listeners.add(client, Listener(caller, listen, Micros(now + wait)), due)

    def leave(self, leave: Leave) -> Reply:
        """Listen no longer; an older goodbye ends no newer listener."""
        refusal = self._shard.clients.refusal(leave.client, leave.client_epoch)
        if refusal:
            return refusal
        listener = self._listeners.get(leave.client)
        if listener is None or listener.listen.number > leave.number:
            return Done(changed=False)
        self._listeners.take(leave.client)
        return Done(changed=True)

    def note(self, step: Step) -> None:
        """Facts were written: who listens to what they changed is told, once they are durable."""
        if not self._listeners:
            return
        changed: dict[ClientId, bool] = {}
        for write in step.writes:
            match record := write.record:
                case ClientOpened():
                    self._fence(step, record.client)
                case SubscriptionMade() | SubscriptionDerived() | SubscriptionEnded():
                    changed.setdefault(record.client, False)
                case TopicAwaited():
                    changed = dict.fromkeys(record.clients, False) | changed
                case PatternUnsubscribed():
                    changed[record.client] = True  # even if it made nothing yet
                case TopicDeleted():
                    changed = dict.fromkeys(self._listeners.keys(), False) | changed
                case _:
                    pass
        for client, surely in changed.items():
            listener = self._listeners.get(client)
            if listener and (surely or listener.listen.known != self._shard.change_of(client)):
                self._listeners.take(client)
                self._scribe.answer(step, listener.caller, self._heard(listener.listen))

    def look(self, step: Step, client: ClientId, now: Micros) -> None:
        """Nudge it if it lags as it did, end its wait if that is over, else look again later."""
        listener = self._listeners.get(client)
        if listener is None:
            return
        listen = listener.listen
        stands = self._lag(listen)
        if stands is not None and stands == listener.stands:
            self._listeners.take(client)
            self._scribe.answer(step, listener.caller, self._heard(listen))
        elif now >= listener.deadline:
            self._listeners.take(client)
            step.replies.append(Owed(listener.caller, STILL_LISTENING))
        else:
            listener.stands = stands
            due = min(Micros(now + self._look_micros), listener.deadline)
            self._listeners.set_due(client, due)

    def _lag(self, listen: Listen) -> int | None:
        """None when it has settled all there is, else a number that changes as it moves on."""
        stands, lags = 0, False
        for topic in self._shard.subscribed(listen.client, listen.topics):
            cursor = topic.subscriptions[listen.client].cursor
            stands += cursor
            lags = lags or cursor < topic.visible
        return stands if lags else None

    def _fence(self, step: Step, client: ClientId) -> None:
        listener = self._listeners.take(client)
        if listener is not None:
            refused = RefusedReply("fenced", f"a newer client with the id {client!r} took over")
            self._scribe.answer(step, listener.caller, refused)

    def _not_subscribed(self, listen: Listen) -> RefusedReply | None:
        for name in listen.topics or ("",):
            refusal = self._delivery.not_subscribed(listen.client, name)
            if refusal:
                return refusal
        return None

    def _heard(self, listen: Listen) -> Reply:
        if refusal := self._not_subscribed(listen):
            return refusal
        heard: list[ListenedAnswer] = []
        for topic in self._shard.subscribed(listen.client, listen.topics):
            each = topic.subscriptions[listen.client]
            heard.append(ListenedAnswer(topic.name, topic.id, each.id, each.cursor, topic.visible))
        return ListeningAnswer(self.feed, tuple(heard), self._shard.change_of(listen.client))
