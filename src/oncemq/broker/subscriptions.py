"""Who may speak and who subscribes: hello, subscribe, unsubscribe (G6).

Laws: a subscription gets exactly what was put after it was made, or from where it asked;
made again after it ended, it is another subscription. A change a client makes to its
subscriptions, or to their lease, is not undone by a copy of an earlier one that was delayed.

Which change is a client's newest is kept in memory. What was under way to an earlier start of a
server alone was lost with it. In a cluster a copy may have been on its way to this very server
since before it led: so a change names the epoch of the leader that it is for, and any other is
refused.
"""

from collections import OrderedDict
from typing import NamedTuple

from oncemq.broker import comparison
from oncemq.broker.given import Given
from oncemq.broker.pattern_subscriptions import PatternSubscriptions
from oncemq.broker.recorder import Recorder
from oncemq.broker.state.leases import lease_fault
from oncemq.broker.state.topic import Subscription, Topic
from oncemq.broker.waits import LongPolls
from oncemq.protocol.names import (
    EPOCH_MAX,
    ClientId,
    Epoch,
    Generation,
    Micros,
    Offset,
    SubscriptionId,
    is_anonymous,
    is_system,
    name_fault,
)
from oncemq.protocol.patterns import is_pattern
from oncemq.protocol.records import (
    ClientForgotten,
    ClientLeased,
    ClientOpened,
    GenerationBegan,
    PatternUnsubscribed,
    SubscriptionEnded,
    SubscriptionMade,
)
from oncemq.protocol.replicas.leader_epochs import ALONE
from oncemq.protocol.replies import (
    Done,
    RefusedReply,
    Reply,
    Subscribed,
    Unsubscribed,
    Welcome,
    leader_changed,
)
from oncemq.protocol.requests import (
    START_EARLIEST,
    START_NEW,
    START_OFFSET,
    ForgetClient,
    Hello,
    Lease,
    Start,
    Subscribe,
    Unsubscribe,
)
from oncemq.protocol.step import Step

LATE_MICROS = 600_000_000  # a copy that is later than this does not come: its connection is gone
FORGOTTEN_A_CHANGE = 2  # looked at for each new one: more than come
CHANGES_MAX = 1_000_000  # clients whose newest change is remembered, about 200 bytes each


class SubscriptionChange(NamedTuple):
    """The newest change a client made to its subscriptions, and to their lease."""

    client_epoch: Epoch
    number: int
    moment: Micros
    undone: bool = False  # by a deletion of its topic: a copy must not do it again
    leased: int = 0  # the number of the newest lease


class Subscriptions:
    """Clients coming, joining topics and leaving them."""

    def __init__(self, scribe: Recorder, waiting: LongPolls) -> None:
        self._scribe = scribe
        self._shard = scribe.shard
        self._waiting = waiting
        self._wildcards = PatternSubscriptions(scribe, waiting)
        self.leader_epoch = ALONE
        self._changes: OrderedDict[ClientId, SubscriptionChange] = (
            OrderedDict()
        )  # the longest ago first

    def hello(self, step: Step, hello: Hello) -> Reply:
        """Let a client in under a new epoch, which fences its older self."""
        fault = name_fault(hello.client, what="client id")
        if fault is None and is_system(hello.client):
            fault = f"{hello.client!r}: client ids with a leading '_' are the system's"
        if fault:
            return RefusedReply("name_invalid", fault)
        if not 0 <= hello.last_epoch < EPOCH_MAX:
            return RefusedReply("malformed", f"no client was ever granted epoch {hello.last_epoch}")
        if refusal := comparison.refusal(self._shard, hello):
            return refusal
        verdict = self._shard.clients.judge(hello)
        if not isinstance(verdict, ClientOpened):
            return verdict
        known, most = self._shard.clients.entries, self._scribe.rules.clients_max
        if hello.client not in known and len(known) >= most:
            return RefusedReply(
                "limit",
                f"this server knows its {most} client ids; forget some that nobody uses "
                "(`once client forget ID`), or raise clients_max",
            )
        if verdict is not known.get(hello.client):
            self._scribe.write(step, verdict)
            self._fence(step, verdict)
        return self._welcome(verdict.client_epoch)

    def forget(self, step: Step, forget: ForgetClient) -> Reply:
        """Remember an id no longer that nobody uses."""
        client, shard = forget.client, self._shard
        if shard.subscribes(client) and not forget.ending:
            names = sorted(topic.name for topic in shard.subscribed(client))
            names += sorted(shard.patterns.of(client))
            return RefusedReply(
                "in_use",
                f"client {client!r} subscribes to {', '.join(names[:5])}"
                f"{', …' if len(names) > 5 else ''}: what it has not settled would be let go. "
                "End its subscriptions first, or have them ended with it",
            )
        known = client in shard.clients.entries
        self._end_all(step, client)
        if known:
            self._scribe.write(step, ClientForgotten(client, shard.clients.granted(client)))
        return Done(changed=bool(step.writes))

    def begin_generation(self, step: Step, generation: Generation, now: Micros) -> None:
        """The log went back in time. Guests have no state to compare, so theirs ends here."""
        shard = self._shard
        for client in [*shard.by_client, *shard.patterns.by_client]:
            if is_anonymous(client):
                self._end_all(step, client)
        self._scribe.write(step, GenerationBegan(generation, shard.next_timestamp(now)))

    def _end_all(self, step: Step, client: ClientId) -> None:
        for pattern in list(self._shard.patterns.of(client)):
            self._scribe.write(step, PatternUnsubscribed(client, pattern))
        topics = self._shard.subscribed(client)
        for topic in topics:
            self._scribe.write(step, SubscriptionEnded(topic.id, client))
        for waiter in self._waiting.of_client(client, [topic.name for topic in topics]):
            ended = RefusedReply("not_subscribed", f"the subscriptions of {client!r} have ended")
            self._scribe.answer(step, waiter.caller, ended)

    def _welcome(self, granted: Epoch) -> Welcome:
        shard = self._shard
        log = shard.log_id, shard.generation, shard.last_timestamp
        return Welcome(granted, self._scribe.rules.limits, *log)

    def subscribe(self, step: Step, subscribe: Subscribe, given: Given) -> Reply:
        """Make a subscription, or say it is there already."""
        now, stamp = given.now, given.stamp
        client = subscribe.client
        topic = self._shard.by_name.get(subscribe.topic)
        refusal = self._shard.clients.refusal(client, subscribe.client_epoch)
        if refusal is None and topic is None and not is_pattern(subscribe.topic):
            refusal = self._scribe.new_topic_refusal(subscribe.topic)
        # A guest said no hello that would have checked it, and the name goes into the log.
        if refusal is None and (fault := name_fault(client, what="client id")):
            refusal = RefusedReply("name_invalid", fault)
        refusal = refusal or self._outdated(subscribe, now)
        if refusal:
            return refusal
        if is_pattern(subscribe.topic):
            return self._wildcards.subscribe(step, subscribe, stamp)
        if topic is not None and client in topic.subscriptions:
            self._name(step, topic, topic.subscriptions[client], stamp)
            there = topic.subscriptions[client]
            return Subscribed(False, topic.id, there.id, there.cursor)
        cursor = _cursor(topic, given.start or subscribe.start)
        if isinstance(cursor, RefusedReply):
            return cursor
        most = self._scribe.rules.subscriptions_max
        if topic is not None and len(topic.subscriptions) >= most:
            return RefusedReply(
                "limit", f"{topic.name!r} has its {most} subscriptions; end one first"
            )
        if refusal := self._scribe.identity_refusal(1):
            return refusal
        topic = topic or self._scribe.create(step, subscribe.topic, stamp)
        if client in topic.subscriptions:  # a pattern of its own was there first
            there = topic.subscriptions[client]
            self._name(step, topic, there, stamp)
            return Subscribed(True, topic.id, there.id, there.cursor)
        identity = SubscriptionId(self._shard.next_identity())
        made = SubscriptionMade(topic.id, identity, client, cursor, stamp)
        self._scribe.write(step, made)
        return Subscribed(True, topic.id, identity, cursor)

    def lease(self, step: Step, lease: Lease, now: Micros, stamp: Micros) -> Reply:
        """Let a client's subscriptions last for as long as it is heard of, or for good."""
        refusal = self._shard.clients.refusal(lease.client, lease.client_epoch)
        refusal = refusal or lease_fault(lease)
        refusal = refusal or self._of_another_leader(lease)
        if refusal is None and lease.number:
            newest = self._newest(lease) or SubscriptionChange(lease.client_epoch, 0, now)
            if lease.number <= newest.leased:  # it took effect, or a newer one did in its place
                return Done(changed=False)
            refusal = self._note(lease.client, newest._replace(leased=lease.number, moment=now))
        if refusal:
            return refusal
        grant = self._shard.leases.grants.get(lease.client)
        if grant.is_fresh(lease, stamp) if grant else not lease.lease_ms:
            return Done(changed=False)
        leased = ClientLeased(lease.client, lease.lease_ms, stamp, lease.about)
        self._scribe.write(step, leased)
        return Done(changed=True)

    def unsubscribe(self, step: Step, unsubscribe: Unsubscribe, now: Micros) -> Reply:
        """End a subscription, or say there was none."""
        client = unsubscribe.client
        refusal = self._shard.clients.refusal(client, unsubscribe.client_epoch)
        refusal = refusal or self._outdated(unsubscribe, now)
        if refusal:
            return refusal
        if is_pattern(unsubscribe.topic):
            return self._wildcards.unsubscribe(step, client, unsubscribe.topic)
        topic = self._shard.by_name.get(unsubscribe.topic)
        if topic is None or client not in topic.subscriptions:
            return Unsubscribed(False)
        identity = topic.subscriptions[client].id
        self._scribe.write(step, SubscriptionEnded(topic.id, client))
        waiter = self._waiting.take((client, topic.name))
        if waiter is not None:
            refused = RefusedReply(
                "not_subscribed", f"the subscription on {topic.name!r} has ended"
            )
            self._scribe.answer(step, waiter.caller, refused)
        return Unsubscribed(True, subscription_ids=(identity,))

    def _name(self, step: Step, topic: Topic, there: Subscription, now: Micros) -> None:
        """What a pattern made is asked for by name as well: it outlives the pattern."""
        if there.derived:
            named = SubscriptionMade(topic.id, there.id, there.client, there.cursor, now)
            self._scribe.write(step, named)

    def topic_deleted(self, topic: Topic) -> None:
        """Subscriptions end with their topic: copies of what made them do not make it again."""
        for client in topic.subscriptions:
            if change := self._changes.get(client):
                self._changes[client] = change._replace(undone=True)

    def _outdated(self, change: Subscribe | Unsubscribe, now: Micros) -> RefusedReply | None:
        """Why a change comes too late: a newer one of the same start was made already."""
        if not change.number:
            return None
        if refusal := self._of_another_leader(change):
            return refusal
        newest = self._newest(change)
        if newest is not None:
            if change.number < newest.number:
                detail = "a newer change of this client's subscriptions came first"
                return RefusedReply("outdated", detail)
            again = isinstance(change, Subscribe) and not is_pattern(change.topic)
            if again and newest.undone and change.number == newest.number:
                detail = "a topic of this client was deleted since: subscribe again"
                return RefusedReply("deleted_since", detail)
        leased = newest.leased if newest else 0
        made = SubscriptionChange(change.client_epoch, change.number, now, leased=leased)
        return self._note(change.client, made)

    def _of_another_leader(self, change: Subscribe | Unsubscribe | Lease) -> RefusedReply | None:
        """Nobody knows here what its client did since it was sent."""
        if not change.number or change.leader_epoch == self.leader_epoch or not self.leader_epoch:
            return None
        return leader_changed(self.leader_epoch)

    def _newest(self, change: Subscribe | Unsubscribe | Lease) -> SubscriptionChange | None:
        """The newest change of the same start of a client."""
        newest = self._changes.get(change.client)
        return newest if newest and newest.client_epoch == change.client_epoch else None

    def _note(self, client: ClientId, change: SubscriptionChange) -> RefusedReply | None:
        """Remember a client's newest change, or say that there is no room to."""
        if client not in self._changes and not self._has_room_for_changes(change.moment):
            detail = f"{CHANGES_MAX} clients changed their subscriptions of late; try again later"
            return RefusedReply("limit", detail)
        self._changes[client] = change
        self._changes.move_to_end(client)
        return None

    def _has_room_for_changes(self, now: Micros) -> bool:
        """Forget clients that subscribe to nothing any more, once no copy of theirs can come."""
        for _ in range(FORGOTTEN_A_CHANGE):
            client, change = next(iter(self._changes.items()), (None, None))
            if client is None or change is None or change.moment + LATE_MICROS > now:
                break
            if self._shard.subscribes(client):
                self._changes[client] = change._replace(moment=now)  # looked at again later
                self._changes.move_to_end(client)
            else:
                del self._changes[client]
        return len(self._changes) < CHANGES_MAX

    def _fence(self, step: Step, opened: ClientOpened) -> None:
        """A newer client has begun: tell the older one, if it waits, as soon as that is durable."""
        topics = [topic.name for topic in self._shard.by_client.get(opened.client, {}).values()]
        for waiter in self._waiting.of_client(opened.client, topics):
            refused = RefusedReply(
                "fenced", f"a newer client with the id {opened.client!r} took over"
            )
            self._scribe.answer(step, waiter.caller, refused)


def _cursor(topic: Topic | None, start: Start) -> Offset | RefusedReply:
    low, end = (topic.low, topic.end) if topic else (Offset(0), Offset(0))
    if start.mode == START_NEW:
        return end
    if start.mode == START_EARLIEST:
        return low
    if start.mode != START_OFFSET:
        return RefusedReply("malformed", f"no such start of a subscription: {start.mode!r}")
    if not low <= start.value <= end:
        return RefusedReply(
            "offset_out_of_range",
            f"offset {start.value} is not there: the topic holds {low} up to {end}; "
            "use earliest, new, or one of these",
        )
    return Offset(start.value)
