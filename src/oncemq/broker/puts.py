"""Puts: judged by sequence, stored once (G2), in one order (G3), or refused with a reason.

Laws: what a resume did not find is not stored later (`broker/permits`). A required put is stored or
refused, never accepted and discarded.
"""

from typing import assert_never

from oncemq.broker.given import Given
from oncemq.broker.permits import Permits
from oncemq.broker.queries import Counters
from oncemq.broker.recorder import Recorder
from oncemq.broker.state.producers import (
    NEW,
    UNSEEN,
    Conflict,
    Duplicate,
    Gap,
    New,
    Recent,
    Verdict,
    judge,
)
from oncemq.broker.state.topic import Topic
from oncemq.protocol.generations import UNKNOWN
from oncemq.protocol.names import (
    ANONYMOUS_EPOCH,
    NAME_BYTES_MAX,
    PRODUCER_BYTES,
    LeaderEpoch,
    Micros,
    ProducerId,
    Sequence,
    TopicId,
    key_producer,
)
from oncemq.protocol.records import (
    KeyedDiscarded,
    MessagesDiscarded,
    MessagesKeyed,
    MessagesStored,
    Run,
)
from oncemq.protocol.replies import NO_OFFSET, PutAccepted, RefusedReply, Reply, Resumed
from oncemq.protocol.requests import Put, Resume
from oncemq.protocol.step import Caller, Owed, Step
from oncemq.wire import batch


class Puts:
    """The publishers' side of the broker."""

    def __init__(self, scribe: Recorder, counters: Counters) -> None:
        self._scribe = scribe
        self._shard = scribe.shard
        self._rules = scribe.rules
        self._counters = counters
        self._permits = Permits()

    def recovered(self, now: Micros, leader_epoch: LeaderEpoch) -> None:
        """The server starts, or leads in this epoch."""
        self._permits.begin(now, leader_epoch)

    def topic_deleted(self, topic: Topic) -> None:
        """Copies of what was put there come to nothing."""
        self._permits.topic_deleted(topic.name)

    def put(self, step: Step, caller: Caller, put: Put, given: Given) -> Topic | None:
        """Decide about a batch; the topic, when it got new messages that await their sync."""
        topic = self._shard.by_name.get(put.topic)
        entry = topic.producers.get(put.producer) if topic is not None else None
        if topic is None or entry is None or put.idempotency_key:
            verdict, goes_on = self._judge_first(topic, put), False
        else:
            verdict = judge(entry, first=put.first_sequence, count=put.count, checksum=put.checksum)
            goes_on = verdict is NEW and put.topic_id in (0, topic.id)
        seed = 0
        # What was stored before needs no room, and its body no look: it is not stored again. Its
        # publisher waits for the receipt to free its own disk.
        if isinstance(verdict, UNSEEN):
            seed = batch.seed(put.topic, put.producer, put.first_sequence, put.count)
            derived = 0 if topic else len(self._shard.patterns.wanting(put.topic))
            gate, body = given.gate, given.body
            if gate and (refusal := gate.check_put(put, body, given.now, seed, derived=derived)):
                self._scribe.refuse(step, caller, refusal)
                return None
        refusal = self._shard.clients.refusal(put.client, put.client_epoch)
        if refusal is None and not goes_on:  # else its producer has put here in this form before
            refusal = self._fault(topic, put)
        if refusal:
            self._scribe.answer(step, caller, refusal)
            return None
        match verdict:
            case New():
                # Under a key nothing is resumed: the key alone decides.
                if not put.idempotency_key and not self._permits.holds(
                    put.topic, put.producer, put.permit, named=put.topic_id != 0
                ):
                    refusal = _outdated(put)
                if put.after:
                    refusal = refusal or _elsewhere(topic, put)
                if not goes_on:
                    refusal = refusal or self._too_many(topic, put)
                if put.required:
                    refusal = refusal or self._scribe.unwanted(put.topic)
                if refusal:
                    self._scribe.answer(step, caller, refusal)
                    return None
                topic = topic or self._scribe.create(step, put.topic, given.stamp)
                accepted = self._store(step, topic, put, given, seed)
                self._scribe.answer(step, caller, accepted)
                return topic if accepted.stored else None
            case Duplicate(recent):
                assert topic is not None
                self._counters.duplicates += put.count
                again = self._again(topic, put, recent)
                refusal = _discarded(put) if put.required and not again.stored else None
                self._scribe.answer(step, caller, _elsewhere(topic, put) or refusal or again)
            case Gap(expected):
                self._scribe.answer(step, caller, _gap(put, expected))
            case Conflict(detail):
                detail = f"{put.topic!r}: {detail}; nothing stored"
                self._scribe.answer(step, caller, RefusedReply("payload_conflict", detail))
            case _:
                assert_never(verdict)
        return None

    def _judge_first(self, topic: Topic | None, put: Put) -> Verdict:
        """Of a producer that the topic does not know, or under a key."""
        if topic is not None and put.idempotency_key:
            keys = self._shard.keys.get(topic.id)
            return keys.judge(put.producer, put.count, put.checksum) if keys else NEW
        if put.first_sequence == self._above(put.topic, put.producer) + 1:
            return NEW
        return judge(None, first=put.first_sequence, count=put.count, checksum=put.checksum)

    def resume(self, step: Step, caller: Caller, resume: Resume) -> None:
        """Say where a producer stopped on a topic."""
        if self._is_settled(resume):
            step.replies.append(Owed(caller, self._resumed(resume)))
        else:
            self._scribe.answer(step, caller, self._resumed(resume))

    def _resumed(self, resume: Resume) -> Reply:
        refusal = self._shard.clients.refusal(resume.client, resume.client_epoch)
        if refusal:
            return refusal
        permit = self._permits.issue(resume)
        lost = bool(resume.topic_id) and self._shard.identities.is_lost(resume.topic_id)
        topic = self._shard.by_name.get(resume.topic)
        # Whether it may be made is for the put to hear: each gets its answer.
        topic_id = topic.id if topic else TopicId(0)
        entry = topic.producers.get(resume.producer) if topic else None
        deleted_after = Sequence(0)
        if entry is None and (not resume.topic_id or resume.topic_id != topic_id):
            deleted_after = self._shard.deleted_topics.last_number(
                resume.topic, resume.producer, resume.topic_id
            )
        last = entry.last_sequence if entry else Sequence(0)
        above = Sequence(0) if topic else self._above(resume.topic, resume.producer)
        seen = (entry.seen, entry.seen_before) if entry else ()
        return Resumed(topic_id, last, permit, lost, deleted_after, above, *seen)

    def _is_settled(self, resume: Resume) -> bool:
        """Whether the answer to a resume rests on nothing that could still be lost.

        So it is where the producer's last put is visible. What others put may wait long for its
        commit, where too few replicas store; a publisher is to hear then that it is refused, and
        believes that only after a resume.
        """
        topic = self._shard.by_name.get(resume.topic)
        entry = topic.producers.get(resume.producer) if topic else None
        if topic is None or entry is None or not entry.recent:
            return False
        if self._shard.clients.refusal(resume.client, resume.client_epoch):
            return False
        last = entry.recent[-1]
        return NO_OFFSET < last.first_offset <= topic.visible - last.messages

    def _above(self, topic: str, producer: ProducerId) -> Sequence:
        """The last number of a producer on the topics of a name that were deleted."""
        return self._shard.deleted_topics.last_number(topic, producer, TopicId(0))

    def _fault(self, topic: Topic | None, put: Put) -> RefusedReply | None:
        """Why a put may not be, whatever its sequence and whoever makes it."""
        if put.first_sequence < 1 or len(put.producer) != PRODUCER_BYTES:
            detail = f"sequences count from 1, a producer id has {PRODUCER_BYTES} bytes"
            return RefusedReply("malformed", detail)
        if topic is None and (refusal := self._scribe.new_topic_refusal(put.topic)):
            return refusal
        if put.topic_id and (topic is None or topic.id != put.topic_id):
            detail = f"{put.topic!r} is not the topic it was: resume on it"
            return RefusedReply("topic_changed", detail)
        return _key_fault(put) if put.idempotency_key else None

    def _too_many(self, topic: Topic | None, put: Put) -> RefusedReply | None:
        """Why a topic remembers no more keys, or no more producers."""
        if topic is None:
            return None
        if not put.idempotency_key:
            return self._too_many_producers(topic, put)
        most = self._rules.idempotency_keys_max
        if len(self._shard.keys.get(topic.id, ())) < most:
            return None
        return RefusedReply(
            "limit",
            f"{put.topic!r} remembers its {most} idempotency keys, and forgets none before its "
            "time; put without a key, or raise idempotency_keys_max",
        )

    def _too_many_producers(self, topic: Topic, put: Put) -> RefusedReply | None:
        most = self._rules.producers_max
        if put.producer in topic.producers or len(topic.producers) < most:
            return None
        return RefusedReply(
            "limit",
            f"{put.topic!r} remembers its {most} producers, for good those of clients with an id; "
            "put from a client that it knows, or raise producers_max",
        )

    def _store(self, step: Step, topic: Topic, put: Put, given: Given, seed: int) -> PutAccepted:
        """Store a new batch, or discard it where nobody wants it; the receipt."""
        timestamp = self._shard.next_timestamp(given.stamp)
        epoch = put.client_epoch if put.lasting else ANONYMOUS_EPOCH
        run = Run(put.count, put.producer, epoch, put.first_sequence, timestamp)
        sync_ms = self._rules.sync_ms
        if not topic.wanted:
            self._counters.discarded += put.count
            discarded = MessagesDiscarded(topic.id, put.checksum, run)
            if put.idempotency_key:
                discarded = KeyedDiscarded(topic.id, put.checksum, run, put.idempotency_key)
            self._scribe.write(step, discarded)
            return PutAccepted(topic.id, NO_OFFSET, put.count, False, False, sync_ms, timestamp)
        first = topic.end
        record = MessagesStored(topic.id, first, put.count, put.columns, put.checksum, (run,))
        if put.idempotency_key:
            record = MessagesKeyed(
                topic.id, first, put.count, put.columns, put.checksum, (run,), put.idempotency_key
            )
        self._scribe.write(step, record, given.body, seed)
        self._counters.stored += put.count
        self._counters.stored_bytes += len(given.body)
        return PutAccepted(topic.id, first, put.count, True, False, sync_ms, timestamp)

    def _again(self, topic: Topic, put: Put, recent: Recent | None) -> PutAccepted:
        """The first receipt once more; without its offset when that was too long ago."""
        first = recent.first_offset if recent else NO_OFFSET
        stored = recent is None or recent.first_offset != NO_OFFSET
        entry = topic.producers.get(put.producer)
        is_last = entry is not None and put.first_sequence + put.count - 1 == entry.last_sequence
        moment = entry.seen if entry is not None and is_last else UNKNOWN
        return PutAccepted(topic.id, first, put.count, stored, True, self._rules.sync_ms, moment)


def _outdated(put: Put) -> RefusedReply:
    """Why it comes too late: its producer has asked since where it stands."""
    detail = "its producer has resumed since this was sent, or has to: resume on the topic"
    return RefusedReply("outdated", f"{put.topic!r}: {detail}")


def _elsewhere(topic: Topic | None, put: Put) -> RefusedReply | None:
    """Why a put does not go on from where its producer stands: the put before was another one.

    Its producer resumes then, and is told at what moments the last ones were stored.
    """
    entry = topic.producers.get(put.producer) if topic and put.after else None
    if entry is None or put.idempotency_key:
        return None
    is_next = put.first_sequence == entry.last_sequence + 1
    is_last = put.first_sequence + put.count - 1 == entry.last_sequence
    before = entry.seen if is_next else entry.seen_before if is_last else UNKNOWN
    if before in (UNKNOWN, put.after):
        return None
    return RefusedReply(
        "outdated",
        f"{put.topic!r}: before sequence {put.first_sequence} this server stored another put of "
        "the producer than the one that its receipt is of: resume on the topic",
    )


def _key_fault(put: Put) -> RefusedReply | None:
    key = put.idempotency_key
    if not key or (len(key.encode()) <= NAME_BYTES_MAX and _numbered_by_key(put)):
        return None
    detail = f"an idempotency key has 1 to {NAME_BYTES_MAX} bytes, and numbers its own messages"
    return RefusedReply("malformed", detail)


def _numbered_by_key(put: Put) -> bool:
    """Whoever repeats the put makes the same batch of it, whatever process that is."""
    return put.producer == key_producer(put.idempotency_key) and put.first_sequence == 1


def _discarded(put: Put) -> RefusedReply:
    """A required put repeats one that was not: the messages are gone, which is no receipt."""
    return RefusedReply(
        "discarded",
        f"{put.topic!r}: this was put before without required, when nobody would get it, and was "
        "discarded; put it again as a new message"
        + (", under another idempotency key" if put.idempotency_key else ""),
    )


def _gap(put: Put, expected: Sequence) -> RefusedReply:
    return RefusedReply(
        "sequence_gap",
        f"{put.topic!r} expects sequence {expected} of this producer, got {put.first_sequence}: "
        "resume on the topic and send what is missing first",
    )
