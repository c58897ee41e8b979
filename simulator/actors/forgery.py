"""A number that was used once, used again for other bytes: as by a client with a bug, or a thief.

Law: the server refuses it. Accepting it would be to say "stored" of something that is not.
"""

from oncemq.client.engine.engine import Engine
from oncemq.client.ticket import Ticket
from oncemq.protocol.names import ANONYMOUS_EPOCH, ProducerId, Sequence
from oncemq.protocol.replies import PutAccepted, RefusedReply, Reply
from oncemq.protocol.requests import Put
from oncemq.wire import batch
from simulator.actors.calls import Work
from simulator.actors.client import Process


def forge_last(process: Process, topic: str) -> None:
    """Use the last number that was stored once more, for something else."""
    process.begin("put", _forge_last(process, topic))


def _forge_last(process: Process, topic: str) -> Work[None]:
    engine, history = process.engine, process.history
    if topic in process.numbered and engine.state.slots and engine.outflow.idle:
        producer = engine.outflow.producers.for_topic(topic, lasting=True)
        reply = yield from forge(engine, topic, producer)
        process.world.tell(reply.code if isinstance(reply, RefusedReply) else "forgery ignored")
        if isinstance(reply, PutAccepted):
            history.trouble(f"conflict: a number of {topic} was taken for other bytes")


def forge(engine: Engine, topic: str, producer: ProducerId) -> Work[Reply | None]:
    """Repeat the last number on a topic with another payload; the answer, None without one."""
    numbers = vars(engine.outflow)["_publisher"].numbers(topic, producer)
    sequence = Sequence(numbers.next - 1)
    if sequence < 1:
        return None
    body = batch.encode_payloads([b"forged"])
    checksum = batch.checksum(body, batch.seed(topic, producer, sequence, 1))
    ticket: Ticket[Reply] = Ticket()

    def make() -> tuple[Put, bytes]:
        client_epoch = engine.client_epoch or ANONYMOUS_EPOCH
        put = Put(
            engine.client, client_epoch, topic, numbers.topic_id, producer,
            lasting=True, first_sequence=sequence, count=1, columns=0, checksum=checksum,
        )  # fmt: skip
        return put, body

    token = engine.begin(make, lambda reply, _: ticket.fill(reply))
    try:
        yield lambda: ticket.done
    finally:
        engine.drop(token)
    return ticket.value
