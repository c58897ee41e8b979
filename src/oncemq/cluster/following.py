"""A replica that follows: its log takes what the leader sends, its state what is committed.

What the follower's rules decide is carried out here, with a log and a state and no broker: nothing
is decided about requests, and nothing is written that did not come from a leader.

Law: the actions of the rules are done in their order. Once they want the log closed, nothing more
is heard, gathered or answered: what is under way to the disk may finish, and counts for nothing.
"""

import logging
from collections.abc import Sequence
from typing import assert_never

from oncemq.cluster.replica_directory import ReplicaDirectory, link, place
from oncemq.errors import StorageRefused
from oncemq.protocol.names import LeaderEpoch, Micros, Serial, ShardId
from oncemq.protocol.replicas.messages import (
    Append,
    Cut,
    LeaderMessage,
    MemberMessage,
    RefillBegin,
    RefillPart,
)
from oncemq.protocol.step import Body
from oncemq.replication.actions import (
    AnswerLeader,
    AppendFrames,
    ApplyTo,
    BeginRefill,
    FollowerAction,
    Halt,
    PromiseEpoch,
    Reopen,
)
from oncemq.replication.follower import Follower
from oncemq.server.served import Outgoing
from oncemq.storage.log.frame_runs import FramesRefused, ReceivedFrames
from oncemq.storage.log.refill import files_to_fill
from oncemq.storage.log.writer import Group
from oncemq.wire.replica_codec import encode_replica

GATHERED_BYTES_MAX = 64 << 20  # of frames that wait for the disk: then the leader has to wait
LEADERS_KEPT = 2  # whose connections are known, those of the highest epochs

logger = logging.getLogger("oncemq.server")

Closing = Reopen | BeginRefill | Halt


class Following:
    """From one opening of the log to the next, while another leads or nobody does."""

    def __init__(
        self, shard_id: ShardId, opened: ReplicaDirectory, *, number: int, is_proven: bool
    ) -> None:
        self.rules = Follower(
            shard_id,
            opened.life,
            promised=opened.promised.leader_epoch,
            tail=opened.tail,
            starts=opened.epochs(),
            applied=opened.applied,
            number=number,
            is_proven=is_proven,
        )
        self.log = opened.log
        self.outgoing: list[Outgoing] = []
        self.closing: Closing | None = None  # what the log is to be closed for
        self.closing_route = b""  # of the leader that wants it
        self.trouble = ""  # why this log stays behind
        self.heard_at = Micros(0)
        self._opened = opened
        # Where a leader is told of syncs: on the route that its newest frames came on, for only who
        # leads has what is not here, and on the one that it was heard on last, for it may have
        # connected anew. The last may be of somebody who says again what was recorded.
        self._leads_on: dict[LeaderEpoch, dict[str, bytes]] = {}
        self._heard_on: bytes | None = None  # while a message is at hand
        self._at_hand: ReceivedFrames | None = None
        self._apply_due = Serial(0)
        self._waiting_bytes = 0
        self._do(self.rules.synced(self.log.durable_serial))  # recovery has seen to that

    # ------------------------------------------------------------------ what happens

    def receive(self, route: bytes, message: LeaderMessage, body: Body, now: Micros) -> None:
        """A leader says something, rightly or not."""
        if self.closing is not None:
            return
        self.heard_at, self._heard_on = now, route
        self._leads_on.setdefault(message.leader_epoch, {})["heard"] = route
        if len(self._leads_on) > LEADERS_KEPT:
            del self._leads_on[min(self._leads_on)]
        self._hear(message, body, now)
        self._heard_on = None

    def _hear(self, message: LeaderMessage, body: Body, now: Micros) -> None:
        match message:
            case Append():
                self._append(message, body, now)
            case Cut():
                self._do(self.rules.cut(message))
            case RefillBegin():
                if self._may_be_filled(message):
                    self.closing_route = self._heard_on or b""
                    self._do(self.rules.refill(message))
            case RefillPart():
                pass  # of a refill that is over
            case _:
                assert_never(message)

    def has_promised(self, leader_epoch: LeaderEpoch) -> None:
        """The disk says that no lower epoch is followed any more."""
        self.rules.has_promised(leader_epoch)

    def commit(self) -> Group | None:
        """What was gathered, for the disk."""
        return None if self.closing is not None else self.log.take_group()

    def written(self, group: Group) -> None:
        """It is on the disk."""
        self._waiting_bytes = max(0, self._waiting_bytes - group.size)
        serial = self.log.finished(group)
        if self.closing is None:
            self._do(self.rules.synced(serial))

    def apply(self) -> None:
        """Fold what is committed; at the end of a turn, as the leader waits for the answer."""
        if self._apply_due > self._opened.applied and self.closing is None:
            self._opened.apply_to(self._apply_due, self.heard_at)

    @property
    def is_full(self) -> bool:
        """Whether so much waits for the disk that nothing more should be heard."""
        return self._waiting_bytes >= GATHERED_BYTES_MAX

    # ------------------------------------------------------------------ what is done

    def _may_be_filled(self, message: RefillBegin) -> bool:
        """Whether the files can be those of a log, and there is room: the old log is kept, else."""
        try:
            size = sum(each.size for each in files_to_fill(message.files))
        except StorageRefused as refused:
            logger.warning("files refused detail=%s", refused.detail)
            return False
        lacking = self._opened.lacks_room(size)
        self.trouble = (
            f"the leader's files have {size} bytes, {lacking} of them without room on the disk: "
            "make room; then they are fetched"
            if lacking
            else ""
        )
        if lacking:
            logger.warning("files not fetched detail=%s", self.trouble)
        return not lacking

    def _append(self, message: Append, body: Body, now: Micros) -> None:
        previous = link(message.previous)
        try:
            received = self.log.check_frames(body, previous)
            if len(received.frames) != message.count:
                raise FramesRefused(f"{message.count} frames were announced")
        except FramesRefused as refused:
            logger.warning("frames refused detail=%s", refused.detail)
            return
        except StorageRefused as refused:  # it is of a version that all replicas should read
            self._do([Halt(_too_new(refused))])
            return
        self._at_hand = received
        has_room = self.log.has_room(len(body), now_ms=now // 1000, fact=True)
        starts = received.starts
        self._do(self.rules.append(message, place(received.last), starts, has_room=has_room))
        self._at_hand = None

    def _do(self, actions: Sequence[FollowerAction]) -> None:
        for action in actions:
            match action:
                case AppendFrames(skip):
                    self._take_in(skip)
                case AnswerLeader(message):
                    self._answer(message)
                case ApplyTo(serial):
                    self._apply_due = serial
                case PromiseEpoch(leader_epoch):
                    self._opened.promise(leader_epoch)
                case Reopen() | BeginRefill() | Halt():
                    self.closing = action
                    return
                case _:
                    assert_never(action)

    def _take_in(self, skip: int) -> None:
        received, route = self._at_hand, self._heard_on
        assert received is not None
        assert route is not None
        self._leads_on[self.rules.promised]["frames"] = route
        self.log.append_received(received, skip)
        frames = received.frames[skip:]
        self._opened.received(frames)
        self._waiting_bytes += sum(each.frame.end - each.frame.position for each in frames)

    def _answer(self, message: MemberMessage) -> None:
        heard_on = self._heard_on
        leads_on = self._leads_on.get(message.leader_epoch, {}).values()
        for route in dict.fromkeys(leads_on if heard_on is None else (heard_on,)):
            self.outgoing.append((route, encode_replica(message)))


def _too_new(refused: StorageRefused) -> str:
    return (
        f"the leader runs a newer OnceMQ than this server: {refused.detail}. Nothing of it was "
        "taken in, and the log here is whole: upgrade this server, and start it again"
    )
