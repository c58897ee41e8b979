"""The broker decides: a request comes in, a `Step` of facts and answers goes out.

Laws: what is decided is applied at once and returned to be made durable (`Step`); readers
see a message only after `synced` said so; every request gets exactly one answer.
The clock and the body's bytes are arguments; nothing here waits or reads.
"""

from collections.abc import Iterable, Sequence
from typing import assert_never

from oncemq.broker import comparison, expiry, queries
from oncemq.broker.gets import Gets
from oncemq.broker.given import Gate, Given, StorageFacts
from oncemq.broker.listeners import Listeners
from oncemq.broker.pattern_subscriptions import derived_by
from oncemq.broker.puts import Puts
from oncemq.broker.recorder import Recorder
from oncemq.broker.state.ages import Reading
from oncemq.broker.state.shard import Shard
from oncemq.broker.state.topic import Topic
from oncemq.broker.subscriptions import Subscriptions
from oncemq.broker.transactions.commits import CommitRules
from oncemq.broker.waits import POLL, WATCH, Deadlines, WaitMoments
from oncemq.protocol.commit_records import StagesEnded
from oncemq.protocol.limits import ServerLimits
from oncemq.protocol.names import (
    SYSTEM_TOPICS,
    ClientId,
    Generation,
    LeaderEpoch,
    Micros,
    Offset,
    TopicId,
    is_anonymous,
)
from oncemq.protocol.records import (
    ClockNoted,
    Marked,
    MessagesLost,
    Retention,
    TopicConfigured,
    TopicDeleted,
)
from oncemq.protocol.replicas.leader_epochs import ALONE
from oncemq.protocol.replies import Done, RefusedReply, Reply
from oncemq.protocol.requests import (
    CommitRequest,
    Compare,
    ConfigureTopic,
    CreateTopic,
    DeleteTopic,
    DropStage,
    ForgetClient,
    Get,
    Hello,
    Lease,
    Leave,
    ListClients,
    Listen,
    ListSubscriptions,
    ListTopics,
    Put,
    Read,
    Request,
    Resume,
    Settle,
    ShowTopic,
    StagePut,
    Start,
    StatusRequest,
    Subscribe,
    Unsubscribe,
    WatchEnds,
)
from oncemq.protocol.step import Body, Caller, Owed, Step

STAGES_A_RECORD = 1_000
# What a client says for itself: a guest that says any of these is there.
OF_A_CLIENT = (
    Put,
    Get,
    Settle,
    Listen,
    Subscribe,
    Unsubscribe,
    Resume,
    StagePut,
    CommitRequest,
    Leave,
)

# Requests with one answer, which is given as soon as what it rests on is durable.
Simple = (
    Settle
    | Subscribe
    | Unsubscribe
    | Lease
    | Hello
    | DropStage
    | Leave
    | CreateTopic
    | ConfigureTopic
    | DeleteTopic
    | Compare
    | ForgetClient
    | ListTopics
    | ShowTopic
    | ListSubscriptions
    | ListClients
    | StatusRequest
)
NotStoring = Simple | Resume | Get | Read | Listen | WatchEnds


class Broker:
    """One shard's rules over its state."""

    def __init__(self, shard: Shard, rules: ServerLimits | None = None) -> None:
        self.shard = shard
        self.rules = rules or ServerLimits()
        self.counters = queries.Counters()
        self._scribe = self.recorder = Recorder(shard, self.rules)
        self._intake = Puts(self._scribe, self.counters)
        self._transactions = CommitRules(self._scribe, self.counters)
        self._moments: WaitMoments = Deadlines()  # of all that wait
        self.next_deadline = self._moments.next  # when `tick` is worth calling again
        self._delivery = Gets(self._scribe, self._moments)
        self.synced = self._delivery.synced
        self.waiting = self._delivery.waiting
        self.listeners = Listeners(self._scribe, self._delivery, self._moments)
        self._membership = Subscriptions(self._scribe, self.waiting)
        self._upkeep = expiry.Expiry(shard, self.rules)
        self.calendar = expiry.Calendar()  # as the driver is told
        self._noted = 0  # of what the calendar passed over: the log has it

    def handle(
        self,
        caller: Caller,
        request: Request,
        body: Body | None,
        now: Micros,
        gate: Gate | None = None,
        start: Start | None = None,
        storage: StorageFacts | None = None,
    ) -> Step:
        """Decide about one request."""
        self.counters.requests += 1
        step = Step()
        stamp = Micros(now + self.calendar.timestamps)
        given = Given(now, stamp, body or b"", gate, start, storage)
        match request:
            case Put():
                topic = self._intake.put(step, caller, request, given)
                if topic is not None:
                    self._delivery.stored(topic)
                if len(step.writes) > 1:  # it made its topic, which listeners may await
                    self.listeners.note(step)
            case CommitRequest():
                for topic in self._transactions.commit(step, caller, request, given):
                    self._delivery.stored(topic)
                self.listeners.note(step)
            case StagePut():
                self._transactions.stage_put(step, caller, request, given)
            case _:
                derived = derived_by(self.shard, request)
                refusal = gate.check(request, now, derived=derived) if gate else None
                if refusal is not None:
                    self._scribe.refuse(step, caller, refusal)
                else:
                    self._answer(step, caller, request, given)
                self.listeners.note(step)
        if isinstance(request, OF_A_CLIENT):
            client = request.client
            if self.shard.subscribes(client) and is_anonymous(client):
                self._upkeep.visited(client, caller.route, now)
        for owed in step.replies:
            if isinstance(owed.answer, RefusedReply):
                step.refusals += 1
                self.counters.refused += 1
        return step

    def _answer(self, step: Step, caller: Caller, request: NotStoring, given: Given) -> None:
        """Requests that store no messages."""
        match request:
            case Get():
                self._delivery.get(step, caller, request, given.now)
            case Read():
                self._delivery.read(step, caller, request)
            case Listen():
                self.listeners.listen(step, caller, request, given.now)
            case WatchEnds():
                self._delivery.watching.watch(step, caller, request, given.now)
            case StatusRequest():  # about the process, not the log: it waits for no sync
                step.replies.append(Owed(caller, self._decide(step, request, given)))
            case Resume():
                self._intake.resume(step, caller, request)
            case _:
                self._scribe.answer(step, caller, self._decide(step, request, given))

    def _decide(self, step: Step, request: Simple, given: Given) -> Reply:
        now, stamp = given.now, given.stamp
        match request:
            case Settle():
                return self._delivery.settle(step, request)
            case Subscribe():
                return self._membership.subscribe(step, request, given)
            case Unsubscribe():
                return self._membership.unsubscribe(step, request, now)
            case Lease():
                return self._membership.lease(step, request, now, stamp)
            case Hello():
                return self._membership.hello(step, request)
            case DropStage():
                return self._transactions.drop(step, request)
            case Leave():
                return self.listeners.leave(request)
            case CreateTopic():
                return self._create_topic(step, request, stamp)
            case ConfigureTopic():
                return self._configure_topic(step, request)
            case DeleteTopic():
                return self._delete_topic(step, request)
            case Compare():
                return comparison.compare(self.shard, request)
            case ForgetClient():
                return self._membership.forget(step, request)
            case ListTopics() | ShowTopic() | ListSubscriptions() | ListClients() | StatusRequest():
                return queries.answer(
                    self.shard, self.waiting, self.counters, given.storage, request
                )
            case _:
                assert_never(request)

    def tick(self, now: Micros) -> Step:
        """Time passed: end the waits that are over, nudge the listeners that lag."""
        step = Step()
        while (due := self._moments.take(now)) is not None:
            kind, key = due
            if kind == POLL:
                self._delivery.expire(step, key)
            elif kind == WATCH:
                self._delivery.watching.answer(step, key)
            else:
                self.listeners.look(step, key, now)
        return step

    def silent_guests(self, now: Micros) -> list[tuple[ClientId, bytes]]:
        """Guests that may be gone, each with the way back to it."""
        return self._upkeep.silent(now)

    def guest_is_there(self, client: ClientId, route: bytes, now: Micros) -> None:
        """Its connection is: it may go on saying nothing."""
        self._upkeep.visited(client, route, now)

    def forget_guests(self, now: Micros, room: int = expiry.UPKEEP_BYTES) -> Step:
        """Drop the anonymous guests that are gone, and what had its time: what `room` holds."""
        step = Step()
        left = room - expiry.FACT_BYTES_MAX
        for record in self._upkeep.due(now, self._ages(now)):
            self._scribe.write(step, record)
            left -= expiry.size_of(record)
            if left <= 0:
                break
        self.listeners.note(step)
        return step

    def end_stages(self, stage_ids: Sequence[TopicId]) -> Step:
        """Compaction has copied what topics keep of these stages into the topics."""
        step = Step()
        known = [each for each in stage_ids if each in self.shard.stages.by_id]
        for start in range(0, len(known), STAGES_A_RECORD):
            ended = tuple(known[start : start + STAGES_A_RECORD])
            self._scribe.write(step, StagesEnded(ended))
        return step

    def mark(self) -> Step:
        """The log has come to rest: let it say so."""
        step = Step()
        self._scribe.write(step, Marked())
        return step

    def lose(self, lost: Iterable[MessagesLost]) -> Step:
        """A person agreed to go on without these messages."""
        step = Step()
        for record in lost:
            self._scribe.write(step, record)
        return step

    def retain(
        self, topic: Topic, extents: Iterable[tuple[Offset, Offset, Micros, int]], now: Micros
    ) -> Step:
        """Let go of what a topic's retention no longer keeps."""
        step = Step()
        record = expiry.trim(topic, expiry.retained_from(topic, extents, self._ages(now)))
        if record is not None:
            self._scribe.write(step, record)
        return step

    def is_step(self, calendar: expiry.Calendar) -> bool:
        """Whether the clock was set forward by so much that the log is to know."""
        return calendar.passed - self._noted >= expiry.NOTED_MICROS

    def keep_time(self, calendar: expiry.Calendar, now: Micros) -> Step:
        """How the clock stands. A step is noted before anything has a timestamp behind it."""
        step = Step()
        if self.is_step(calendar):
            after, passed = self.shard.last_timestamp, calendar.passed - self._noted
            stamp = self.shard.next_timestamp(Micros(now + calendar.timestamps))
            self._scribe.write(step, ClockNoted(after, passed, stamp))
            self._noted = calendar.passed
        self.calendar = calendar
        return step

    def note_time(self, now: Micros) -> Step:
        """Nothing had a timestamp for long: note the time, so that it counts after a restart."""
        step = Step()
        newest, stamp = self.shard.last_timestamp, Micros(now + self.calendar.timestamps)
        if newest and stamp - newest >= expiry.QUIET_MICROS:
            self._scribe.write(step, ClockNoted(newest, 0, stamp))
        return step

    def _ages(self, now: Micros) -> Reading:
        little = self.calendar.passed - self._noted
        return self.shard.ages.at(Micros(now + self.calendar.timestamps - little))

    def begin_generation(self, generation: Generation, now: Micros) -> Step:
        """The server starts on a log of this generation: note it, if that is news."""
        step = Step()
        if generation > self.shard.generation:
            self._membership.begin_generation(step, generation, now)
        return step

    def recovered(self, now: Micros, leader_epoch: LeaderEpoch = ALONE) -> None:
        """The log was folded and is committed: begin, as the leader of an epoch or alone."""
        self.shard.recovered()
        self._upkeep.recovered(now)
        self._intake.recovered(now, leader_epoch)
        self._membership.leader_epoch = leader_epoch

    def _create_topic(self, step: Step, create: CreateTopic, now: Micros) -> Reply:
        if create.topic in self.shard.by_name:
            return Done(changed=False)
        refusal = self._scribe.new_topic_refusal(create.topic, known=SYSTEM_TOPICS)
        refusal = refusal or _fault(create.retention)
        if refusal:
            return refusal
        if 0 <= create.deleted < self.shard.deleted:
            return RefusedReply(
                "outdated", "topics were deleted since: look whether it was one of them"
            )
        self._scribe.create(step, create.topic, now, create.retention)
        return Done(changed=True)

    def _configure_topic(self, step: Step, configure: ConfigureTopic) -> Reply:
        topic = self.shard.by_name.get(configure.topic)
        if topic is None:
            return queries.no_such_topic(self.shard, configure.topic)
        if refusal := _fault(configure.retention):
            return refusal
        if topic.retention == configure.retention:
            return Done(changed=False)
        replaced = configure.topic_id, configure.configured
        if configure.topic_id and replaced != (topic.id, topic.configured):
            return RefusedReply(
                "outdated",
                f"topic {topic.name!r} was configured by somebody else while this was under way: "
                "look at it, and configure it again if you still want to",
            )
        self._scribe.write(step, TopicConfigured(topic.id, configure.retention))
        return Done(changed=True)

    def _delete_topic(self, step: Step, delete: DeleteTopic) -> Reply:
        topic = self.shard.by_name.get(delete.topic)
        if delete.topic_id and (topic is None or topic.id != delete.topic_id):
            return Done(changed=False)  # it is gone: what has the name now is another one
        if topic is None:
            return queries.no_such_topic(self.shard, delete.topic)
        self._membership.topic_deleted(topic)
        self._intake.topic_deleted(topic)
        self._scribe.write(step, TopicDeleted(topic.id))
        for waiter in self.waiting.on_topic(topic.name, ()):
            gone = RefusedReply("not_subscribed", f"topic {topic.name!r} was deleted")
            self._scribe.answer(step, waiter.caller, gone)
        self._delivery.watching.moved(step, topic.name)
        return Done(changed=True)


def _fault(retention: Retention) -> RefusedReply | None:
    if retention.keep_ms < 0 or retention.keep_bytes < 0:
        return RefusedReply(
            "malformed", "a topic keeps messages for a time or up to a size, not less"
        )
    return None
