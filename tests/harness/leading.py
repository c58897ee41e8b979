"""A server that leads epoch 4 over a log in memory, and two members that say what a test wants."""

from collections.abc import Sequence
from itertools import count

from oncemq.broker.expiry import Calendar
from oncemq.cluster.leading import Leading
from oncemq.cluster.replica_directory import ReplicaDirectory
from oncemq.cluster.serving import Serving
from oncemq.protocol.limits import ServerLimits
from oncemq.protocol.names import LeaderEpoch, Micros, Serial, ServerId
from oncemq.protocol.replicas.messages import (
    AnswerNumber,
    Appended,
    LeaderMessage,
    Life,
    MemberMessage,
)
from oncemq.protocol.replies import Reply
from oncemq.protocol.requests import Request
from oncemq.protocol.step import Body
from oncemq.replication.leader import Leader
from oncemq.replication.view import Ask, ReplicationLimits, ShardView
from oncemq.server.driver import Driver
from oncemq.server.worker import InPlaceWorker
from oncemq.wire import codec
from oncemq.wire.replica_codec import decode_replica
from tests.harness.agreement import A, B, C
from tests.harness.replica_logs import SHARD, LeaderLog, opened

EPOCH = LeaderEpoch(4)
LIVES = {name: Life(name.encode(), 1) for name in (A, B, C)}
VIEW = ShardView(7, A, EPOCH, (A, B, C), frozenset((A, B, C)), None, LIVES)


class LeadingServer:
    """`Leading`, what it sent and asked, and what clients were answered."""

    def __init__(
        self,
        log: LeaderLog | None = None,
        *,
        view: ShardView = VIEW,
        is_proven: bool = True,
        limits: ReplicationLimits | None = None,
    ) -> None:
        self.now = Micros(1_000_000_000)
        self.reached = {B, C}
        self.sent: list[tuple[ServerId, LeaderMessage, bytes]] = []
        self.asked: list[tuple[Ask, int]] = []
        self._numbers, self._tokens = count(1), count(1)
        self.directory: ReplicaDirectory = opened((log or LeaderLog(topics=2)).own_home())
        self.rules = Leader(
            A, SHARD, view, last=self.directory.log.last_serial, starts=self.directory.epochs(),
            commit=Serial(0), kept_from=self.directory.log.kept_from, is_proven=is_proven,
            limits=limits or ReplicationLimits(), now=self.now,
        )  # fmt: skip
        self.leading = Leading(
            A, SHARD, self.rules, self.directory, self,
            ask=lambda ask, revision: self.asked.append((ask, revision)), serve=self._serve,
            give=InPlaceWorker().give,
        )  # fmt: skip

    def send(self, server: ServerId, frames: Sequence[Body]) -> bool:
        """As the links do."""
        if server in self.reached:
            message, body = decode_replica([bytes(frame) for frame in frames])
            assert isinstance(message, LeaderMessage)
            self.sent.append((server, message, bytes(body)))
        return server in self.reached

    def _serve(self, now: Micros) -> Driver:
        limits = ServerLimits()
        return Serving(limits).driver(self.directory, EPOCH, Calendar(), self.rules.refusal, now)

    def take_sent(self) -> list[tuple[ServerId, LeaderMessage, bytes]]:
        """What left since this was last asked."""
        sent, self.sent = self.sent, []
        return sent

    def write(self) -> None:
        """What was gathered comes to this disk."""
        group = self.leading.commit(self.now)
        if group is not None:
            self.directory.log.write(group)
            self.leading.written(group, self.now)

    def says(self, name: ServerId, message: MemberMessage) -> None:
        self.leading.heard(name, message, self.now)

    def has(self, name: ServerId, synced: int, *, round: int = 0, is_full: bool = False) -> None:
        """A member says that it has so much."""
        serial = Serial(synced)
        answered = AnswerNumber(LIVES[name], next(self._numbers))
        self.says(name, Appended(SHARD, EPOCH, serial, serial, is_full, answered, round))

    def all_have(self) -> None:
        """Everything, everybody."""
        self.write()
        for name in (B, C):
            self.has(name, self.directory.log.last_serial)

    def serve(self) -> "LeadingServer":
        """Clients are let in."""
        self.leading.begin(self.now)
        self.all_have()
        assert self.leading.driver is not None
        self.take_sent()
        return self

    def ask(self, request: Request, body: bytes | None = None) -> int:
        """A client does; its token."""
        token = next(self._tokens)
        frames = codec.encode_request(token, request, body)
        self.leading.receive(b"client", frames, self.now)
        return token

    def answers(self) -> dict[int, Reply]:
        """What clients were answered since this was last asked."""
        outgoing, self.leading.outgoing = self.leading.outgoing, []
        decoded = [codec.decode_reply(frames) for _, frames in outgoing]
        return {token: reply for token, reply, _ in decoded}
