"""`once subscriptions`."""

import click

from oncemq.cli.command import command, topic_names
from oncemq.cli.session import Session
from oncemq.core.replies import SubscriptionInfo

HEADS = ("topic", "client", "cursor", "end", "behind", "waiting")


@command("subscriptions")
@click.option("--topic", shell_complete=topic_names, help="Only those of one topic.")
@click.option("--client", help="Only those of one client.")
def subscriptions(session: Session, topic: str | None, client: str | None) -> None:
    """List the subscriptions: where each one is, and how far behind."""
    with session.visitor() as visitor:
        found = visitor.subscriptions(topic, client)
    session.listing([as_object(each) for each in found], HEADS, [row_of(each) for each in found])
    if not found and not session.json:
        session.note("no subscriptions; `once subscribe TOPIC` makes one")


def as_object(info: SubscriptionInfo) -> dict[str, object]:
    """A subscription as programs get it."""
    return {
        "topic": info.topic,
        "client": info.client,
        "cursor": info.cursor,
        "end": info.end,
        "behind": info.end - info.cursor,
        "waiting": info.waiting,
        "pattern": info.pattern,
    }


def row_of(info: SubscriptionInfo) -> tuple[object, ...]:
    """A subscription as a line of the table."""
    topic, client, *numbers, waiting, pattern = as_object(info).values()
    return (topic, client, *(("", "", "") if pattern else numbers), waiting)
