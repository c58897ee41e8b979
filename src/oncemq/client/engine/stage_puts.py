"""A stage from the client's side: numbered batches on their way, and what came of them.

Law: a batch keeps its numbers through every retry, so the server stores it once; no more than
FLOW_BYTES wait for their answers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from oncemq.client.context import ClientContext
from oncemq.client.refusals import error_of
from oncemq.client.ticket import Until
from oncemq.errors import OnceMQError
from oncemq.protocol.names import STAGE_NAME, ProducerId
from oncemq.protocol.names import Sequence as Number
from oncemq.protocol.replies import RefusedReply, Reply, StagedReply
from oncemq.protocol.requests import DropStage, Request, StagePut
from oncemq.protocol.step import Body
from oncemq.session.outgoing import Outgoing
from oncemq.wire import batch

FLOW_BYTES = 16 << 20


class StageToken(msgspec.Struct, frozen=True):
    """What a commit must know of a stage. It may be pickled and sent to whoever commits."""

    name: bytes
    count: int
    bytes: int


@dataclass(frozen=True, slots=True)
class StageBatch:
    """A batch on its way into a stage."""

    first: Number
    count: int
    columns: int
    checksum: int
    body: Body


class StageGivenUp(NamedTuple):
    """The word that nobody will commit a stage."""


class StageLine:
    """One stage that this client puts into."""

    def __init__(self, client: ClientContext, outgoing: Outgoing, name: ProducerId) -> None:
        self.name = name
        self.count = 0
        self.bytes = 0
        self.error: OnceMQError | None = None
        self.silence_ms = 0  # after which the server gives the stage up; 0: it did not say
        self._client = client
        self._outgoing = outgoing
        self._under_way: dict[Number, StageBatch] = {}  # by their first numbers

    def put(self, count: int, columns: int, body: Body) -> None:
        """Send a batch; `flows` and `idle` say what became of it."""
        first = Number(self.count + 1)
        checksum = batch.checksum(body, batch.seed(STAGE_NAME, self.name, first, count))
        self.count += count
        self.bytes += len(body)
        sent = self._under_way[first] = StageBatch(first, count, columns, checksum, body)
        self._outgoing.begin(self, sent)

    def request(self, key: StageBatch | StageGivenUp) -> tuple[Request, Body | None]:
        """A batch for the stage, or its end."""
        client, epoch = self._client.client, self._client.epoch_to_send
        if isinstance(key, StageGivenUp):
            return DropStage(client, epoch, self.name), None
        about = key.first, key.count, key.columns, key.checksum
        return StagePut(client, epoch, self.name, *about), key.body

    def on_reply(
        self, key: StageBatch | StageGivenUp, reply: Reply, bodies: Sequence[Body]
    ) -> None:
        """The server has the batch, or refuses it; of a stage given up nobody asks."""
        del bodies
        if isinstance(key, StageGivenUp):
            return
        self._under_way.pop(key.first, None)
        if isinstance(reply, RefusedReply):
            self.error = self.error or error_of(reply)
        elif isinstance(reply, StagedReply):
            self.silence_ms = reply.stage_ms

    @property
    def flows(self) -> Until:
        """Until there is room for more on the way."""
        return Until(lambda: self.error is not None or self._waiting_bytes < FLOW_BYTES)

    @property
    def idle(self) -> Until:
        """Until every batch has its answer."""
        return Until(lambda: self.error is not None or not self._under_way)

    @property
    def _waiting_bytes(self) -> int:
        return sum(len(each.body) for each in self._under_way.values())

    def check(self) -> None:
        """Raise what a batch met."""
        if self.error is not None:
            raise self.error.with_traceback(None)

    def drop(self) -> None:
        """Give the stage up; said again until the server has heard it, and nobody waits."""
        for each in self._under_way.values():
            self._outgoing.give_up(each)
        self._under_way.clear()
        if self.count and self._client.failure is None:
            self._outgoing.begin(self, StageGivenUp())

    @property
    def token(self) -> StageToken:
        """What is needed to commit it."""
        return StageToken(self.name, self.count, self.bytes)
