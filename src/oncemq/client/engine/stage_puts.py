"""A stage from the client's side: numbered batches on their way, and what came of them.

Law: a batch keeps its numbers through every retry, so the server stores it once; no more than
FLOW_BYTES wait for their answers.
"""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from oncemq.client.refusals import error_of
from oncemq.client.ticket import Until
from oncemq.errors import OnceMQError
from oncemq.protocol.names import ANONYMOUS_EPOCH, STAGE_NAME, ProducerId
from oncemq.protocol.names import Sequence as Number
from oncemq.protocol.replies import RefusedReply, Reply, StagedReply
from oncemq.protocol.requests import DropStage, Request, StagePut
from oncemq.protocol.step import Body
from oncemq.wire import batch

if TYPE_CHECKING:
    from oncemq.client.engine.engine import Engine

FLOW_BYTES = 16 << 20


class StageToken(msgspec.Struct, frozen=True):
    """What a commit must know of a stage. It may be pickled and sent to whoever commits."""

    name: bytes
    count: int
    bytes: int


class StageLine:
    """One stage that this client puts into."""

    def __init__(self, engine: "Engine", name: ProducerId) -> None:
        self.name = name
        self.count = 0
        self.bytes = 0
        self.error: OnceMQError | None = None
        self.silence_ms = 0  # after which the server gives the stage up; 0: it did not say
        self._engine = engine
        self._under_way: dict[int, int] = {}  # token: bytes

    def put(self, count: int, columns: int, body: Body) -> None:
        """Send a batch; `flows` and `idle` say what became of it."""
        first = self.count + 1
        checksum = batch.checksum(body, batch.seed(STAGE_NAME, self.name, first, count))
        engine, name = self._engine, self.name
        self.count += count
        self.bytes += len(body)

        def make() -> tuple[Request, Body]:
            epoch = engine.client_epoch or ANONYMOUS_EPOCH
            put = StagePut(engine.client, epoch, name, Number(first), count, columns, checksum)
            return put, body

        place: list[int] = []
        token = engine.begin(make, partial(self._answered, place))
        place.append(token)
        self._under_way[token] = len(body)

    def _answered(self, place: list[int], reply: Reply, _: Sequence[Body]) -> None:
        self._under_way.pop(place[0], None)
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
        return sum(self._under_way.values())

    def check(self) -> None:
        """Raise what a batch met."""
        if self.error is not None:
            raise self.error

    def drop(self) -> None:
        """Give the stage up; said again until the server has heard it, and nobody waits."""
        engine, name = self._engine, self.name
        for token in self._under_way:
            engine.drop(token)
        self._under_way.clear()
        if self.count and engine.failure is None:

            def make() -> tuple[Request, None]:
                return DropStage(engine.client, engine.client_epoch or ANONYMOUS_EPOCH, name), None

            engine.begin(make, lambda reply, bodies: None)

    @property
    def token(self) -> StageToken:
        """What is needed to commit it."""
        return StageToken(self.name, self.count, self.bytes)
