"""Stages for several connections: many put, one commits, once under an owner and a number."""

from collections.abc import Sequence

from oncemq.client.engine.engine import Engine
from oncemq.client.engine.stage_puts import StageLine, StageToken
from oncemq.client.puts.discards import discarded
from oncemq.client.values import Commit, commit_receipt, parse_mark
from oncemq.client.verbs.messages import Verb, ask
from oncemq.errors import InvalidRequest
from oncemq.protocol.names import PRODUCER_BYTES, Offset, ProducerId, is_system, name_fault
from oncemq.protocol.replies import CommitDone, Done
from oncemq.protocol.requests import CommitRequest, DropStage, Piece
from oncemq.protocol.step import Body

Target = tuple[str, StageToken]


def new_line(engine: Engine, name: bytes | None) -> StageLine:
    """A stage to put into, under a name of its own."""
    if name is not None and len(name) != PRODUCER_BYTES:
        raise InvalidRequest(f"a stage's name has {PRODUCER_BYTES} random bytes, not {len(name)}")
    chosen = ProducerId(name or engine.state.random_bytes(PRODUCER_BYTES))
    return StageLine(engine.context, engine.outgoing, chosen)


def stage_put(
    engine: Engine, line: StageLine, *, count: int, columns: int, body: Body
) -> Verb[None]:
    """Put a batch into a stage; waits only while much is on the way."""
    if engine.failure is not None:
        raise engine.failure.with_traceback(None)
    limits = engine.settings.limits
    if len(body) > limits.batch_bytes or count > limits.batch_messages:
        raise InvalidRequest(
            f"a batch of {count} messages and {len(body)} bytes is over the limit of "
            f"{limits.batch_messages} and {limits.batch_bytes}; put it in smaller ones",
            code="too_large",
        )
    line.check()
    if count:
        line.put(count, columns, body)
    yield line.flows
    line.check()


def stage_close(line: StageLine) -> Verb[StageToken]:
    """Wait until all of it is on the server's disk; what a commit must know."""
    yield line.idle
    line.check()
    return line.token


def commit(
    engine: Engine,
    owner: str,
    number: int,
    targets: Sequence[Target],
    *,
    bond: str = "",
    follows: bool = False,
    lasting: bool = True,
    required: bool = True,
    contents: int = 0,
    after: str | int = "",
) -> Verb[Commit]:
    """Publish whole stages, in order, once for this owner and number."""
    fault = name_fault(owner, what="owner")
    if fault is None and is_system(owner) and lasting:
        fault = f"the owner {owner!r} begins with '_', which is the system's"
    if fault:
        raise InvalidRequest(fault, code="name_invalid")
    known, known_moment = parse_mark(after)
    pieces = tuple(
        Piece(topic, ProducerId(token.name), Offset(0), token.count)
        for topic, token in targets
        if token.count
    )
    reply: CommitDone = yield from ask(
        engine,
        lambda client_epoch: CommitRequest(
            engine.client,
            client_epoch,
            owner,
            number,
            lasting,
            pieces,
            bond=bond,
            follows=follows,
            required=required,
            contents=contents,
            after=known,
            after_moment=known_moment,
        ),
    )
    receipt = commit_receipt(reply, number)
    first = (receipts[0] for receipts in receipt.receipts.values())
    if required and (unwanted := discarded(first)):
        raise unwanted
    return receipt


def drop(engine: Engine, token: StageToken) -> Verb[bool]:
    """Give a stage up that will not be committed; False when it was not there any more."""
    name = ProducerId(token.name)
    reply: Done = yield from ask(
        engine, lambda client_epoch: DropStage(engine.client, client_epoch, name)
    )
    return reply.changed
