"""Bugs planted in stages, commits and idempotency keys; see `planted`."""

from typing import Any

import msgspec

from oncemq.broker.broker import Broker
from oncemq.broker.given import Given
from oncemq.broker.state.owners import Owners
from oncemq.broker.state.shard import Shard
from oncemq.broker.state.stages import StagedMessages, Stages
from oncemq.broker.transactions.commits import CommitRules
from oncemq.client.verbs import messages, staged_commits
from oncemq.errors import InvalidRequest
from oncemq.protocol.names import Offset
from oncemq.protocol.records import Committed
from oncemq.protocol.replies import StagedReply
from oncemq.protocol.requests import CommitRequest, Piece, ShowTopic, StagePut
from oncemq.protocol.step import Step
from simulator.planted.plant import instead


@instead(Owners, "used")
def _forgets_the_number_of_a_commit(_: Any) -> Any:
    def used(self: Owners, owner: str, number: int) -> None:
        return None

    return used


@instead(staged_commits, "commit", "required")
def _judges_what_is_required_before_its_commit(original: Any) -> Any:
    def commit(
        engine: Any, owner: str, number: int, targets: Any, **options: Any
    ) -> messages.Verb[Any]:
        required = options.pop("required", True)
        for topic, _ in targets if required else ():
            wanted = yield from messages.ask(engine, lambda _, it=topic: ShowTopic(it))
            if not wanted.subscriptions:
                raise InvalidRequest("nobody subscribes", code="unwanted")
        blind: messages.Verb[Any] = original(
            engine, owner, number, targets, required=False, **options
        )
        return (yield from blind)

    return commit


@instead(Broker, "handle")
def _shows_a_stage_before_its_commit(original: Any) -> Any:
    def handle(self: Any, caller: Any, request: Any, body: Any, now: Any, *more: Any) -> Step:
        step = original(self, caller, request, body, now, *more)
        answers = [owed.answer for owed in step.replies]
        staged = answers and isinstance(answers[-1], StagedReply) and not answers[-1].duplicate
        wanted = [topic for topic in self.shard.topics.values() if topic.wanted]
        if isinstance(request, StagePut) and staged and wanted:
            start = Offset(request.first_sequence - 1)
            piece = Piece(wanted[0].name, request.stage, start, request.count)
            early = CommitRequest(
                request.client, request.client_epoch, "_early", self.shard.serial, False, (piece,),
                (), False,
            )  # fmt: skip
            for topic in self._transactions.commit(step, caller, early, Given(now, now)):
                self._delivery.stored(topic)
            step.replies.pop()  # of the commit: nobody asked for it
        return step

    return handle


@instead(Stages, "dropped")
def _expires_what_was_published(original: Any) -> Any:
    def dropped(self: Stages, record: Any, serial: Any) -> bool:
        known = original(self, record, serial)
        stage = self.by_id.get(record.stage_id)
        if stage is not None:
            stage.shares.clear()
        return known

    return dropped


@instead(CommitRules, "_record")
def _moves_cursors_without_outputs(original: Any) -> Any:
    def record(self: Any, step: Any, commit: CommitRequest, now: Any) -> Committed:
        made = original(self, step, commit, now)
        return msgspec.structs.replace(made, parts=()) if commit.inputs else made

    return record


@instead(StagedMessages, "low")
def _frees_a_published_stage(_: Any) -> Any:
    def low(self: StagedMessages, low_of: Any) -> Offset:
        return self.published if self.is_open else self.end

    return low


@instead(Shard, "recovered", "server_kill", "server_cut", "server_trap")
def _forgets_keys_on_recovery(original: Any) -> Any:
    def recovered(self: Shard) -> None:
        original(self)
        self.keys.clear()

    return recovered


@instead(Shard, "recovered", "server_kill", "server_cut", "server_trap")
def _forgets_owners_on_recovery(original: Any) -> Any:
    def recovered(self: Shard) -> None:
        original(self)
        self.owners.entries.clear()
        self.owners.guests.clear()

    return recovered
