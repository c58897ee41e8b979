"""`once topics`."""

from oncemq.cli.terminal import output
from oncemq.cli.terminal.command import command
from oncemq.cli.terminal.retention import text_of
from oncemq.cli.terminal.session import CommandSession
from oncemq.protocol.replies import TopicInfo

HEADS = ("topic", "messages", "low", "end", "subscriptions", "producers", "retain", "stored")


@command("topics")
def topics(session: CommandSession) -> None:
    """List the topics of the server."""
    with session.visitor() as client:
        found = client.topics()
    session.listing([as_object(info) for info in found], HEADS, [_row(info) for info in found])
    if not found and not session.json:
        session.note("no topics yet; `once subscribe TOPIC` makes one")


def as_object(info: TopicInfo) -> dict[str, object]:
    """A topic as programs get it."""
    return {
        "topic": info.name,
        "messages": info.end - info.low,
        "low": info.low,
        "end": info.end,
        "subscriptions": info.subscriptions,
        "producers": info.producers,
        "retain": text_of(info.retention),
        "stored_bytes": info.stored_bytes,
        "idempotency_keys": info.idempotency_keys,
        "created": output.moment(info.created),
    }


def _row(info: TopicInfo) -> tuple[object, ...]:
    return (
        info.name,
        info.end - info.low,
        info.low,
        info.end,
        info.subscriptions,
        info.producers,
        text_of(info.retention),
        output.about(info.stored_bytes),
    )
