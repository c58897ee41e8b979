"""Puts under an idempotency key: for callers whose numbers no disk keeps.

The key decides, at the server, whether a put is new; so these go around the outbox and its
numbers, and whoever is in doubt puts the same again under the same key.
"""

from collections.abc import Sequence

from oncemq.client.checks import check_text
from oncemq.client.engine.engine import Engine
from oncemq.client.puts.discards import discarded
from oncemq.client.refusals import error_of
from oncemq.client.ticket import Ticket, Until
from oncemq.client.values import Receipts, receipts_of
from oncemq.client.verbs.messages import Verb
from oncemq.errors import InvalidRequest
from oncemq.protocol.names import ANONYMOUS_EPOCH, NAME_BYTES_MAX, TopicId, key_producer
from oncemq.protocol.names import Sequence as Number
from oncemq.protocol.replies import PutAccepted, RefusedReply, Reply
from oncemq.protocol.requests import Put, Request
from oncemq.protocol.step import Body
from oncemq.session.publisher import wrong_receipt
from oncemq.wire import batch


def check_key(key: str, *, wait: bool) -> None:
    """Refuse here what cannot be."""
    check_text(key, "an idempotency key")
    if not 1 <= len(key.encode()) <= NAME_BYTES_MAX:
        raise InvalidRequest(f"an idempotency key has 1 to {NAME_BYTES_MAX} bytes")
    if not wait:
        raise InvalidRequest("a put under an idempotency key waits for its receipt: leave wait out")


def put_keyed(
    engine: Engine,
    topic: str,
    key: str,
    *,
    count: int,
    columns: int,
    body: bytes,
    required: bool = False,
) -> Verb[Receipts]:
    """Put a batch under a key, after what this client has put before."""
    if engine.failure is not None:
        raise engine.failure.with_traceback(None)
    outflow = engine.outflow
    outflow.seal_all()
    yield Until(lambda: outflow.idle)
    ticket: Ticket[Receipts] = Ticket()
    producer = key_producer(key)
    checksum = batch.checksum(body, batch.seed(topic, producer, 1, count))

    def make() -> tuple[Request, Body]:
        put = Put(
            engine.client, engine.client_epoch or ANONYMOUS_EPOCH, topic, TopicId(0), producer,
            False, Number(1), count, columns, checksum, idempotency_key=key,
            required=required,
        )  # fmt: skip
        return put, body

    def answered(reply: Reply, _: Sequence[Body]) -> None:
        if isinstance(reply, RefusedReply):
            ticket.fail(error_of(reply))
        else:
            assert isinstance(reply, PutAccepted)
            if reply.count != count:
                raise wrong_receipt(topic, reply, count)
            outflow.outcomes.duplicates += count if reply.duplicate else 0
            receipts = receipts_of(topic, reply)
            outflow.outcomes.discards.note(receipts[0])
            if required and (unwanted := discarded(receipts[:1])):
                ticket.fail(unwanted)
            else:
                ticket.fill(receipts)

    token = engine.begin(make, answered)
    try:
        yield ticket
    finally:
        engine.drop(token)
    return ticket.result()
