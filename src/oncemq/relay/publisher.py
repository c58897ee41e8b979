"""The relay's way to the server: puts with the outbox's own numbers, on the client's engine.

Laws: the producer and its numbers are the database's, so nothing is kept on this machine; each
start is a new one to the server, and fences the one before. Whatever the engine sends again is
the same batch.
"""

import logging
import random
import secrets
import threading
from collections.abc import Callable, Iterable, Sequence
from itertools import count

from oncemq.client.blocking.runner import Runner
from oncemq.client.clock import monotonic_clock
from oncemq.client.engine.engine import Engine
from oncemq.client.puts.discards import Discards
from oncemq.client.settings import Settings, servers_from
from oncemq.client.state.known import ClaimStanding as Found
from oncemq.client.state.known import Known
from oncemq.client.state.state import State
from oncemq.client.values import receipts_of
from oncemq.errors import OnceMQError, Unreachable
from oncemq.protocol.generations import UNKNOWN
from oncemq.protocol.names import ANONYMOUS_EPOCH, ClientId, Epoch, Micros, Offset, SubscriptionId
from oncemq.protocol.replies import PutAccepted, RefusedReply, Reply, Resumed
from oncemq.protocol.requests import Put, Request, Resume
from oncemq.protocol.step import Body
from oncemq.relay.topic_relay import TopicRelay
from oncemq.session.handshake import NO_LOG, LogSeen
from oncemq.transport.dealer import DealerSocket
from oncemq.wire import batch

PATIENCE_SECONDS = 10.0  # without an answer, until it is said

logger = logging.getLogger("oncemq.relay")


class RelayMemory:
    """What the engine remembers of its epoch: until the end of the process, and no cursors."""

    def __init__(self) -> None:
        self._client_epoch = Epoch(0)
        self._claims: tuple[int, ...] = ()
        self._log = NO_LOG

    def last_epoch(self) -> Epoch:
        return self._client_epoch

    def claim(self, nonce: int) -> Found:
        found = Found(self._client_epoch, self._claims, self._log)
        self._claims = (*self._claims, nonce)
        return found

    def granted(self, client_epoch: Epoch, claim: int, moment: Micros = UNKNOWN) -> Known:
        self._client_epoch = client_epoch
        self._claims = ()
        return self.known()

    def known(self) -> Known:
        return Known(self._log, {})

    def know(self, log: LogSeen) -> None:
        self._log = log

    def settle(
        self,
        client_epoch: Epoch,
        moved: Iterable[tuple[str, SubscriptionId, Offset]],
        *,
        synced: bool = True,
        ended: Iterable[tuple[str, SubscriptionId, Offset]] = (),
    ) -> None:
        raise AssertionError("a relay gets no messages")

    def forget(self, client_epoch: Epoch, ended: Iterable[tuple[str, SubscriptionId]]) -> None:
        raise AssertionError("a relay has no subscriptions")


class RelayPublisher:
    """Asks and puts for errands, and the wait for their answers."""

    def __init__(self, server: str | Sequence[str], client: str) -> None:
        settings = Settings(servers_from(server), PATIENCE_SECONDS, 0, random.random)
        state = State(
            client,
            journal=RelayMemory(),
            slots=[],
            directory="",
            random_bytes=secrets.token_bytes,
            close=lambda: None,
        )
        self._engine = Engine(settings, state, DealerSocket(), monotonic_clock)
        self._turns = Runner(self._engine, PATIENCE_SECONDS)
        self._resumes = count(1)
        self._answers = 0
        self._silent = False
        self._discards = Discards()
        self.under_way = 0

    @property
    def message_bytes(self) -> int:
        """The largest message the server takes; known once it has answered anything."""
        return self._engine.settings.limits.message_bytes

    def ask(self, errand: TopicRelay) -> None:
        """Where does the outbox stand on the topic?"""
        standing, number = errand.standing, next(self._resumes)

        def make() -> tuple[Request, None]:
            return Resume(
                ClientId(self._engine.client),
                self._engine.client_epoch or ANONYMOUS_EPOCH,
                standing.topic,
                standing.producer,
                number,
                standing.topic_id,
            ), None

        self._begin(errand, make)

    def put(self, errand: TopicRelay, items: Sequence[batch.Item]) -> None:
        """Send the planned rows as one batch, the same bytes whoever sends them."""
        standing = errand.standing
        columns, body = batch.encode(items)
        first, rows = standing.first_sequence, len(items)
        seed = batch.seed(standing.topic, standing.producer, first, rows)
        checksum = batch.checksum(body, seed)

        def make() -> tuple[Request, Body]:
            errand.sends += 1
            put = Put(
                client=ClientId(self._engine.client),
                client_epoch=self._engine.client_epoch or ANONYMOUS_EPOCH,
                topic=standing.topic,
                topic_id=standing.topic_id,
                producer=standing.producer,
                lasting=True,
                first_sequence=first,
                count=rows,
                columns=columns,
                checksum=checksum,
                permit=errand.permit,
                required=errand.required,
                after=standing.moment,
            )
            return put, body

        self._begin(errand, make)

    def wait(self, stopping: threading.Event) -> None:
        """Until an answer came, or it is time to look up."""
        answers = self._answers
        try:
            self._turns.wait_until(
                lambda: self._answers > answers or stopping.is_set(), None, "the relay's puts"
            )
        except Unreachable as error:
            if not self._silent:
                logger.warning("no answer, going on trying: %s", error.detail)
            self._silent = True

    def close(self) -> None:
        """Let go of the server; what is under way is sent again by the next."""
        self._turns.close()
        self._engine.close()

    def _begin(self, errand: TopicRelay, make: Callable[[], tuple[Request, Body | None]]) -> None:
        def answered(reply: Reply, _: Sequence[Body]) -> None:
            if self._engine.failure is None:  # else it is this relay that was refused
                self._answered(errand, reply)

        errand.under_way = True
        self.under_way += 1
        self._engine.begin(make, answered)

    def _answered(self, errand: TopicRelay, reply: Reply) -> None:
        self._answers += 1
        self.under_way -= 1
        if self._silent:
            logger.info("the server answers again")
            self._silent = False
        match reply:
            case PutAccepted():
                self._discards.note(receipts_of(errand.standing.topic, reply)[0])
                errand.accepted(reply)
            case Resumed():
                errand.resumed(reply)
            case RefusedReply():
                if reply.code == "storage_full":
                    logger.warning("put off topic=%s: %s", errand.standing.topic, reply.detail)
                errand.refused(reply)
            case _:
                raise OnceMQError(f"no answer to a put: {reply!r}")
