"""Bugs planted on purpose, each breaking one rule of the shipped code: the test of the tests.

A bug the judgement has never caught is not tested for. Each is a context manager that patches the
code from outside; nothing in the product knows of it. Law: one rule each, named by what it does
wrong, and never two at a time.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from oncemq.broker import puts, subscriptions
from oncemq.broker.recorder import Recorder
from oncemq.broker.state.clients import Clients
from oncemq.broker.state.producers import Conflict, Duplicate, Gap, New, Verdict
from oncemq.broker.state.shard import Shard
from oncemq.broker.state.topic import Topic
from oncemq.client.puts import put_outcomes
from oncemq.protocol.records import ClientOpened
from oncemq.protocol.replies import PutAccepted, RefusedReply, Reply, Subscribed
from oncemq.protocol.requests import START_EARLIEST, START_NEW, Start
from oncemq.protocol.step import Caller, Owed, Step
from oncemq.server.driver import Driver
from oncemq.server.housekeeping import Housekeeping
from oncemq.storage.compaction.compaction import CompactionJob
from oncemq.storage.log import recovery
from oncemq.storage.log.checkpoint import CheckpointJob, Now
from oncemq.storage.log.writer import GroupWriter
from oncemq.storage.segments.framing import Frame
from simulator.planted import client as planted_client
from simulator.planted import (
    going_back,
    inbox,
    leaders,
    listening,
    patterns,
    sinks,
    time,
    transactions,
    waits,
)
from simulator.planted.plant import NEEDS, PLANTED, beside, instead

__all__ = [
    "NEEDS",
    "PLANTED",
    "going_back",
    "inbox",
    "leaders",
    "listening",
    "patterns",
    "planted_client",
    "sinks",
    "time",
    "transactions",
    "waits",
]

# The server's word before the disk has it


@instead(Recorder, "answer")
def _acks_before_sync(_: Any) -> Any:
    def answer(self: Recorder, step: Step, caller: Caller, reply: Reply) -> None:
        step.replies.append(Owed(caller, reply))

    return answer


def _early(kind: Callable[[Reply], bool]) -> Any:
    def answer(self: Recorder, step: Step, caller: Caller, reply: Reply) -> None:
        after = Owed(caller, reply) if kind(reply) else Owed(caller, reply, self.shard.serial)
        step.replies.append(after)

    return answer


@instead(Recorder, "answer", "slow_disk", "double")
def _answers_a_duplicate_before_its_first_copy_is_durable(_: Any) -> Any:
    return _early(lambda reply: isinstance(reply, PutAccepted) and reply.duplicate)


@instead(Recorder, "answer")
def _subscribes_before_sync(_: Any) -> Any:
    return _early(lambda reply: isinstance(reply, Subscribed))


@instead(Driver, "commit")
def _shows_messages_before_sync(original: Any) -> Any:
    def commit(self: Any, now: Any) -> Any:
        group = original(self, now)
        for part in group.parts if group else ():
            part.segment.file.write(part.buffers, part.position)
            part.segment.visible = part.end
        if group is not None:
            self._carry_out(self.broker.synced(group.last_serial), now)
        return group

    return commit


@instead(GroupWriter, "_sync", "sync_error")
def _ignores_a_failed_sync(_: Any) -> Any:
    def sync(self: Any) -> None:
        with suppress(OSError):
            self._segment.file.sync()
        self.synced = self._written

    return sync


@instead(GroupWriter, "_sync", "sync_error")
def _syncs_again_after_a_failed_sync(_: Any) -> Any:
    def sync(self: Any) -> None:
        try:
            self._segment.file.sync()
        except OSError:
            self._segment.file.sync()
        self.synced = self._written

    return sync


class Nameless:
    """A disk that makes no name durable."""

    def __init__(self, disk: Any) -> None:
        self._disk = disk

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)

    def sync_directory(self, path: str) -> None:
        """Nothing."""


@instead(GroupWriter, "write")
def _skips_the_directory_sync(original: Any) -> Any:
    def write(self: Any, group: Any) -> None:
        disk, self._disk = self._disk, Nameless(self._disk)
        try:
            original(self, group)
        finally:
            self._disk = disk

    return write


class Unsynced:
    """A file whose writes and syncs do nothing."""

    def __init__(self, file: Any) -> None:
        self.read, self.size, self.close = file.read, file.size, file.close
        self.truncate, self.allocate = file.truncate, file.allocate

    def write(self, buffers: Any, position: int) -> None:
        """Nothing."""

    def sync(self) -> None:
        """Nothing."""


def _with_unsynced_file(original: Any) -> Any:
    def call(self: Any, segment: Any, *rest: Any) -> Any:
        file, segment.file = segment.file, Unsynced(segment.file)
        try:
            return original(self, segment, *rest)
        finally:
            segment.file = file

    return call


@instead(GroupWriter, "_seal")
def _goes_on_before_a_full_segment_is_synced(original: Any) -> Any:
    return _with_unsynced_file(original)


# Recovery


@instead(vars(recovery)["_Opening"], "_mend", "server_kill", "server_trap")
def _trusts_a_recovered_tail(original: Any) -> Any:
    return _with_unsynced_file(original)


@instead(Frame, "body_holds", "server_cut", "server_trap", "blackout")
def _keeps_a_torn_tail(_: Any) -> Any:
    def body_holds(self: Frame) -> bool:
        return True

    return body_holds


@instead(Shard, "recovered")
def _forgets_producers_on_recovery(original: Any) -> Any:
    def recovered(self: Shard) -> None:
        original(self)
        for topic in self.topics.values():
            topic.producers.clear()

    return recovered


# Housekeeping


def _at_once(original: Any, kind: type) -> Any:
    def turn(self: Any, janitor: Any, now: Any) -> None:
        original(self, janitor, now)
        if self._ready is not None and isinstance(self._ready[0], kind):
            job = self._ready[0]
            job._now = lambda: Now(0, 0, 1 << 62)
            self._ready = job, 0

    return turn


@instead(Housekeeping, "turn")
def _publishes_a_checkpoint_before_its_log(original: Any) -> Any:
    return _at_once(original, CheckpointJob)


@instead(Housekeeping, "turn")
def _compacts_before_cursors_are_durable(original: Any) -> Any:
    return _at_once(original, CompactionJob)


@instead(Topic, "settled")
def _frees_unsettled_messages(_: Any) -> Any:
    def settled(self: Topic) -> int:
        cursors = [each.cursor for each in self.subscriptions.values()]
        return max(cursors, default=self.end)

    return property(settled)


# Judgement of requests


@instead(Clients, "refusal", "twin")
def _accepts_an_old_epoch(original: Any) -> Any:
    def refusal(self: Clients, client: Any, client_epoch: Any) -> RefusedReply | None:
        refused = original(self, client, client_epoch)
        return None if refused is not None and refused.code == "fenced" else refused

    return refusal


@instead(Clients, "judge", "twin")
def _grants_an_epoch_twice(original: Any) -> Any:
    def judge(self: Clients, hello: Any) -> Any:
        verdict = original(self, hello)
        entry = self.entries.get(hello.client)
        if isinstance(verdict, ClientOpened) and entry is not None:
            return ClientOpened(hello.client, entry.client_epoch, hello.nonce)
        return verdict

    return judge


def _rather(original: Any, wrong: type, right: Verdict) -> Any:
    def judge(*args: Any, **kwargs: Any) -> Verdict:
        verdict = original(*args, **kwargs)
        return right if isinstance(verdict, wrong) else verdict

    return judge


@instead(puts, "judge", "forgery")
def _accepts_another_payload(original: Any) -> Any:
    return _rather(original, Conflict, Duplicate(None))


@instead(puts, "judge")
def _accepts_a_gap(original: Any) -> Any:
    return _rather(original, Gap, New())


@instead(Recorder, "unwanted", "required")
def _discards_what_is_required(_: Any) -> Any:
    def unwanted(self: Recorder, name: str) -> None:
        return None

    return unwanted


def _believes_the_server(_: Any) -> None:
    """Of what it was told is discarded, though it was required."""


# A client tells its user all the same, by the receipt.
beside("discards_what_is_required", put_outcomes, "discarded", _believes_the_server)


@instead(subscriptions, "_cursor")
def _begins_a_subscription_with_old_messages(original: Any) -> Any:
    def cursor(topic: Any, start: Start) -> Any:
        return original(topic, Start(START_EARLIEST) if start.mode == START_NEW else start)

    return cursor
