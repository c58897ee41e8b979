"""Stages and commits: many messages, topics and cursors take effect together, once, or not at all.

Laws: what is staged is seen by nobody before its commit. A commit is one record: no reader, no
crash and no retry ever sees half of it. An owner's number publishes once; a commit whose inputs
were settled meanwhile, or whose stages are not what it says, changes nothing; nor does a required
one of which a topic would discard its part.
"""

from typing import assert_never

from oncemq.broker.given import Given
from oncemq.broker.queries import Counters, no_such_topic
from oncemq.broker.recorder import Recorder
from oncemq.broker.state.owners import Answer, Published, published_by
from oncemq.broker.state.producers import (
    UNSEEN,
    Conflict,
    Duplicate,
    Gap,
    New,
    Verdict,
    judge,
)
from oncemq.broker.state.stages import StagedMessages, merged
from oncemq.broker.state.topic import Topic
from oncemq.protocol.commit_records import (
    Committed,
    ContentsCommitted,
    OwnerBound,
    OwnerBoundAlone,
    Part,
    Settlement,
    StageDropped,
    StageMade,
)
from oncemq.protocol.names import (
    ANONYMOUS_EPOCH,
    PRODUCER_BYTES,
    STAGE_NAME,
    ClientId,
    Micros,
    Offset,
    ProducerId,
    Sequence,
    TopicId,
    is_system,
    name_fault,
    owner_producer,
)
from oncemq.protocol.records import MessagesStaged, Run
from oncemq.protocol.replies import (
    NO_OFFSET,
    CommitDone,
    Done,
    RefusedReply,
    Reply,
    Result,
    StagedReply,
)
from oncemq.protocol.requests import CommitRequest, DropStage, Input, Piece, StagePut
from oncemq.protocol.step import Caller, Step
from oncemq.wire import batch

NUMBER_MAX = 1 << 62
STAGED_MAX = (1 << 31) - 1  # messages of one stage: an index holds them in 31 bits
SHARES_MAX = 10_000  # topics that one stage gives to


class CommitRules:
    """The side of the broker that makes many things one."""

    def __init__(self, scribe: Recorder, counters: Counters) -> None:
        self._scribe = scribe
        self._shard = scribe.shard
        self._rules = scribe.rules
        self._counters = counters

    # stages

    def stage_put(self, step: Step, caller: Caller, put: StagePut, given: Given) -> None:
        """Store a batch where nobody sees it yet."""
        stage = self._shard.stages.by_name.get(put.stage)
        numbers = stage.numbers if stage else None
        verdict = judge(numbers, first=put.first_sequence, count=put.count, checksum=put.checksum)
        seed = 0
        if isinstance(verdict, UNSEEN):
            seed = batch.seed(STAGE_NAME, put.stage, put.first_sequence, put.count)
            gate = given.gate
            refusal = gate.check_put(put, given.body, given.now, seed) if gate else None
            if refusal:
                self._scribe.refuse(step, caller, refusal)
                return
        refusal = self._shard.clients.refusal(put.client, put.client_epoch)
        refusal = refusal or self._stage_refusal(stage, put)
        reply = refusal or self._staged(step, stage, put, verdict, given, seed)
        self._scribe.answer(step, caller, reply)

    def _staged(
        self,
        step: Step,
        stage: StagedMessages | None,
        put: StagePut,
        verdict: Verdict,
        given: Given,
        seed: int,
    ) -> Reply:
        match verdict:
            case New():
                stage = stage or self._make_stage(step, put.stage, given.stamp)
                self._store(step, stage, put, given, seed)
                return StagedReply(stage.end, False, self._rules.sync_ms, self._rules.stage_ms)
            case Duplicate():
                assert stage is not None
                self._counters.duplicates += put.count
                return StagedReply(stage.end, True, self._rules.sync_ms, self._rules.stage_ms)
            case Gap(expected):
                detail = f"the stage expects sequence {expected}, got {put.first_sequence}"
                return RefusedReply("sequence_gap", f"{detail}: send what is missing first")
            case Conflict(detail):
                return RefusedReply("payload_conflict", f"in a stage, {detail}; nothing stored")
            case _:
                assert_never(verdict)

    def _stage_refusal(self, stage: StagedMessages | None, put: StagePut) -> RefusedReply | None:
        if put.first_sequence < 1 or len(put.stage) != PRODUCER_BYTES:
            detail = f"sequences count from 1, a stage's name has {PRODUCER_BYTES} bytes"
            return RefusedReply("malformed", detail)
        if put.first_sequence + put.count > STAGED_MAX:
            return RefusedReply("limit", f"a stage holds {STAGED_MAX} messages; begin another")
        if self._shard.stages.open_bytes >= self._rules.stage_bytes_max:
            return RefusedReply(
                "limit",
                f"the open stages of this server hold {self._shard.stages.open_bytes} bytes of the "
                f"{self._rules.stage_bytes_max} allowed; commit or drop some, or raise "
                "stage_bytes_max",
            )
        if stage is not None:
            return None
        if put.first_sequence > 1:
            return _stage_unknown(put.stage, "nothing was stored; begin another stage")
        most = self._rules.stages_max
        if self._shard.stages.opened >= most:
            return RefusedReply(
                "limit",
                f"this server has its {most} open stages; commit or drop those that are there, or "
                "raise stages_max",
            )
        return self._scribe.identity_refusal(1)

    def _make_stage(self, step: Step, name: ProducerId, now: Micros) -> StagedMessages:
        stage_id = TopicId(self._shard.next_identity())
        self._scribe.write(step, StageMade(stage_id, name, self._shard.next_timestamp(now)))
        return self._shard.stages.by_id[stage_id]

    def _store(
        self, step: Step, stage: StagedMessages, put: StagePut, given: Given, seed: int
    ) -> None:
        timestamp = self._shard.next_timestamp(given.stamp)
        run = Run(put.count, put.stage, ANONYMOUS_EPOCH, put.first_sequence, timestamp)
        record = MessagesStaged(
            stage.id, stage.end, put.count, put.columns, put.checksum, (run,), len(given.body)
        )
        self._scribe.write(step, record, given.body, seed)

    def drop(self, step: Step, drop: DropStage) -> Reply:
        """Give a stage up; what of it is published stays."""
        refusal = self._shard.clients.refusal(drop.client, drop.client_epoch)
        if refusal:
            return refusal
        stage = self._shard.stages.by_name.get(drop.stage)
        if stage is None:
            return Done(changed=False)
        self._scribe.write(step, StageDropped(stage.id))
        return Done(changed=True)

    # commits

    def commit(
        self, step: Step, caller: Caller, commit: CommitRequest, given: Given
    ) -> list[Topic]:
        """Decide about a commit; the topics that got new messages, which await their sync."""
        before = self._shard.owners.used(commit.owner, commit.number)
        if before is None:  # a repeat writes nothing and needs no room
            names = {each.topic for each in commit.pieces} if self._shard.patterns.count else ()
            made = [name for name in names if name not in self._shard.by_name]
            derived = sum(len(self._shard.patterns.wanting(name)) for name in made)
            gate = given.gate
            refusal = gate.check(commit, given.now, derived=derived) if gate else None
            if refusal:
                self._scribe.refuse(step, caller, refusal)
                return []
        reply, topics = self._commit(step, commit, before, given.stamp)
        self._scribe.answer(step, caller, reply)
        return topics

    def _commit(
        self, step: Step, commit: CommitRequest, before: Answer | None, now: Micros
    ) -> tuple[Reply, list[Topic]]:
        refusal = self._shard.clients.refusal(commit.client, commit.client_epoch)
        refusal = refusal or self._malformed(commit)
        refusal = refusal or self._shard.owners.lost(commit)
        refusal = refusal or self._shard.owners.misfit(commit)
        refusal = refusal or self._shard.owners.differs(commit)
        if refusal:
            return refusal, []
        if before is not None:
            return self._done(commit, before.published, already=True), []
        refusal = self._limit(commit)
        for each in commit.inputs:
            refusal = refusal or self._input_refusal(commit.client, each)
        refusal = refusal or self._pieces_refusal(commit)
        if commit.required:
            for name in dict.fromkeys(piece.topic for piece in commit.pieces):
                refusal = refusal or self._scribe.unwanted(name)
        if refusal:
            return refusal, []
        self._bind(step, commit, now)
        record = self._record(step, commit, now)
        self._scribe.write(step, record)
        published = published_by(record.parts)
        self._counters.committed += 1
        stored = [each for each in published if each.first_offset != NO_OFFSET]
        self._counters.stored += sum(each.messages for each in stored)
        topics = [self._shard.topics[each.topic_id] for each in stored]
        return self._done(commit, published, already=False), topics

    def _bind(self, step: Step, commit: CommitRequest, now: Micros) -> None:
        """The first commit with a bond: from now on the owner's name is taken."""
        if self._shard.owners.needs_bond(commit):
            bound = OwnerBoundAlone if commit.follows else OwnerBound
            timestamp = self._shard.next_timestamp(now)
            self._scribe.write(step, bound(commit.owner, commit.bond, timestamp))

    def _malformed(self, commit: CommitRequest) -> RefusedReply | None:
        fault = name_fault(commit.owner, what="owner")
        if fault is None and is_system(commit.owner) == commit.lasting:
            fault = f"{commit.owner!r}: an owner with a leading '_' ends with its process"
        if fault is None and not 1 <= commit.number <= NUMBER_MAX:
            fault = f"the number of a commit is 1 to {NUMBER_MAX}, not {commit.number}"
        if fault is None and commit.bond and not commit.lasting:
            fault = "an owner that ends with its process is not bound to anything"
        if fault is None and commit.bond:
            fault = name_fault(commit.bond, what="bond")
        return RefusedReply("malformed", fault) if fault else None

    def _limit(self, commit: CommitRequest) -> RefusedReply | None:
        rules, owners = self._rules, self._shard.owners.entries
        if max(len(commit.pieces), len(commit.inputs)) > rules.commit_pieces_max:
            return RefusedReply(
                "too_large", f"a commit has {rules.commit_pieces_max} pieces at most"
            )
        if commit.owner not in owners and len(owners) >= rules.owners_max:
            return RefusedReply("limit", f"this server remembers its {rules.owners_max} owners")
        return None

    def _input_refusal(self, client: ClientId, each: Input) -> RefusedReply | None:
        """Why these messages cannot be settled by this client now, or None."""
        topic = self._shard.by_name.get(each.topic)
        if topic is None:
            return no_such_topic(self._shard, each.topic)
        subscription = topic.subscriptions.get(client)
        if subscription is None or subscription.id != each.subscription_id:
            detail = f"the subscription of {client!r} on {each.topic!r} has ended"
            return RefusedReply("not_subscribed", f"{detail}; nothing was committed")
        if not each.first <= each.cursor <= topic.end:
            detail = f"{each.topic!r} ends at {topic.end}, not from {each.first} to {each.cursor}"
            return RefusedReply("cursor_beyond_end", f"{detail}; nothing was committed")
        if each.first < subscription.cursor:
            return RefusedReply(
                "inputs_settled",
                f"{each.topic}@{each.first} was settled before, up to {subscription.cursor}: by "
                "an earlier commit or another start of this client; nothing was committed, get "
                "again",
            )
        return None

    def _pieces_refusal(self, commit: CommitRequest) -> RefusedReply | None:
        new: set[str] = set()
        reached: dict[tuple[str, ProducerId], Offset] = {}
        topics: dict[ProducerId, set[str]] = {}
        for piece in commit.pieces:
            stage = self._shard.stages.by_name.get(piece.stage)
            if stage is None:
                return _stage_unknown(piece.stage, "nothing was committed")
            end = Offset(piece.start + piece.count)
            start = reached.get((piece.topic, piece.stage), stage.published)
            if piece.count < 1 or piece.start < start:
                detail = f"messages below {start} of the stage are published, or named before"
                return RefusedReply("stage_published", f"{detail}; nothing was committed")
            if end > stage.end:
                detail = f"the stage holds {stage.end} messages, the commit names {end}"
                return RefusedReply("stage_incomplete", f"{detail}: put what is missing first")
            reached[piece.topic, piece.stage] = end
            given = topics.setdefault(piece.stage, set())
            given.add(piece.topic)
            if len(given) + len(stage.shares) > SHARES_MAX:
                return RefusedReply("limit", f"a stage gives to {SHARES_MAX} topics; begin another")
            if piece.topic not in self._shard.by_name and piece.topic not in new:
                if refusal := self._scribe.new_topic_refusal(piece.topic, more=len(new)):
                    return refusal
                new.add(piece.topic)
        return None

    def _record(self, step: Step, commit: CommitRequest, now: Micros) -> Committed:
        """The one record of it all; topics that are not there are made first."""
        parts = [self._part(step, piece, now) for piece in commit.pieces]
        cursors: list[Settlement] = []
        for each in commit.inputs:
            topic = self._shard.by_name[each.topic]
            cursors.append(Settlement(topic.id, commit.client, each.cursor))
        facts = (
            commit.owner,
            commit.number,
            commit.lasting,
            self._shard.next_timestamp(now),
            tuple(merged(self._placed(commit.owner, parts))),
            tuple(cursors),
            commit.closing,
        )
        if commit.contents:
            return ContentsCommitted(*facts, commit.contents)
        return Committed(*facts)

    def _part(self, step: Step, piece: Piece, now: Micros) -> Part:
        topic = self._shard.by_name.get(piece.topic)
        topic = topic or self._scribe.create(step, piece.topic, now)
        stage = self._shard.stages.by_name[piece.stage]
        size = stage.bytes_of(piece.count)
        return Part(
            topic.id, NO_OFFSET, piece.count, Sequence(0), stage.id, Offset(piece.start), size
        )

    def _placed(self, owner: str, parts: list[Part]) -> list[Part]:
        """The parts with their offsets and numbers: each topic's one behind the other."""
        producer = owner_producer(owner)
        ends: dict[TopicId, tuple[Offset, Sequence]] = {}
        placed: list[Part] = []
        for part in parts:
            topic = self._shard.topics[part.topic_id]
            if part.topic_id not in ends:
                entry = topic.producers.get(producer)
                last = entry.last_sequence if entry else 0
                ends[part.topic_id] = topic.end, Sequence(last + 1)
            offset, sequence = ends[part.topic_id]
            if not topic.wanted:
                self._counters.discarded += part.count
            placed.append(
                Part(
                    part.topic_id,
                    offset if topic.wanted else NO_OFFSET,
                    part.count,
                    sequence,
                    part.stage_id,
                    part.stage_offset,
                    part.message_bytes,
                )
            )
            ends[part.topic_id] = Offset(offset + part.count), Sequence(sequence + part.count)
        return placed

    def _done(
        self, commit: CommitRequest, published: tuple[Published, ...], *, already: bool
    ) -> CommitDone:
        owners = self._shard.owners
        before = owners.before(commit.owner, commit.number)
        last = owners.entries[commit.owner].last_number
        moment = owners.moment(commit.owner, commit.number)
        results, sync_ms = self._results(published), self._rules.sync_ms
        return CommitDone(already, results, sync_ms, before, last, moment)

    def _results(self, published: tuple[Published, ...]) -> tuple[Result, ...]:
        topics = self._shard.topics
        return tuple(
            Result(topics[each.topic_id].name, *each)
            for each in published
            if each.topic_id in topics
        )


def _stage_unknown(name: ProducerId, then: str) -> RefusedReply:
    return RefusedReply(
        "stage_unknown",
        f"stage {name.hex()} is not there: it was never made, was given up, has expired or is "
        f"published; {then}",
    )
