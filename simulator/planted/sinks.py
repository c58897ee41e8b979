"""Bugs planted in owners that are bound, and in the numbers of their commits; see `planted`."""

from collections.abc import Iterable
from typing import Any

from oncemq.broker.state import owners
from oncemq.broker.state.owners import Answer, Owners, Published
from oncemq.broker.state.shard import Shard
from oncemq.broker.state.stages import StagedMessages, Stages
from oncemq.protocol.commit_records import Part
from oncemq.protocol.names import Micros, TopicId
from oncemq.protocol.replies import RefusedReply
from oncemq.protocol.requests import CommitRequest
from oncemq.storage.compaction.plan import LiveShare
from simulator.planted.plant import instead

RESTARTS = ("sinks and server_kill", "sinks and server_cut", "sinks and server_trap")


@instead(Owners, "misfit", "sinks")
def _does_not_check_the_bond(original: Any) -> Any:
    def misfit(self: Owners, commit: CommitRequest) -> RefusedReply | None:
        refused = original(self, commit)
        return None if refused is not None and refused.code == "owner_bound" else refused

    return misfit


@instead(Owners, "differs", "sinks")
def _takes_other_rows_for_a_repeat(original: Any) -> Any:
    def differs(self: Owners, commit: CommitRequest) -> RefusedReply | None:
        return None

    return differs


@instead(Owners, "_taken", "sinks")
def _lets_a_bond_have_two_owners(original: Any) -> Any:
    def taken(self: Owners, commit: CommitRequest) -> str | None:
        return None

    return taken


@instead(Shard, "recovered", *RESTARTS)
def _forgets_what_was_committed_on_recovery(original: Any) -> Any:
    def recovered(self: Shard) -> None:
        original(self)
        for entry in self.owners.entries.values():
            entry.recent = tuple(each._replace(contents=0) for each in entry.recent)

    return recovered


@instead(Shard, "recovered", *RESTARTS)
def _forgets_bonds_on_recovery(original: Any) -> Any:
    def recovered(self: Shard) -> None:
        original(self)
        for entry in self.owners.entries.values():
            entry.bond = ""

    return recovered


def _allowing(original: Any, *, below: bool) -> Any:
    """A judgement that lets numbers pass that are below the last, or else beyond the next."""

    def misfit(self: Owners, commit: CommitRequest) -> RefusedReply | None:
        refused = original(self, commit)
        if refused is None or refused.code != "number_misfit":
            return refused
        entry = self.entries.get(commit.owner)
        is_below = entry is not None and commit.number < entry.last_number
        return None if is_below == below else refused

    return misfit


@instead(Owners, "misfit", "sinks")
def _takes_an_old_batch_for_published(original: Any) -> Any:
    return _allowing(original, below=True)


@instead(Owners, "misfit", "sinks")
def _accepts_a_gap_of_numbers(original: Any) -> Any:
    return _allowing(original, below=False)


@instead(Owners, "used")
def _publishes_an_old_number_again(original: Any) -> Any:
    def used(self: Owners, owner: str, number: int) -> Answer | None:
        answer = original(self, owner, number)
        is_old = answer is not None and number < self.entries[owner].last_number
        return None if is_old else answer

    return used


@instead(owners, "published_by", "sinks")
def _counts_only_the_last_part_of_a_commit(original: Any) -> Any:
    def published_by(parts: Iterable[Part]) -> tuple[Published, ...]:
        last = {part.topic_id: part.count for part in parts}
        return tuple(each._replace(messages=last[each.topic_id]) for each in original(parts))

    return published_by


@instead(Stages, "silent_since", "sinks")
def _expires_a_stage_that_is_put_to(original: Any) -> Any:
    def silent_since(self: Stages, moment: Micros, most: int) -> list[StagedMessages]:
        return original(self, Micros(1 << 62), most)

    return silent_since


@instead(LiveShare, "lies_in", "sinks")
def _ends_a_stage_that_lies_elsewhere_too(original: Any) -> Any:
    def lies_in(self: LiveShare, segments: Any, extents: Any) -> bool:
        return bool(self.published)

    return lies_in


@instead(Shard, "live", "sinks")
def _ends_a_stage_that_is_open(original: Any) -> Any:
    def live(self: Shard, topic_id: TopicId) -> Any:
        found = original(self, topic_id)
        stage = self.stages.by_id.get(topic_id)
        return (*found[:3], stage.last_serial) if found and stage else found

    return live
