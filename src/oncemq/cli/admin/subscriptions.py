"""`once subscriptions`."""

import click

from oncemq.cli.terminal.command import command, topic_names
from oncemq.cli.terminal.output import moment
from oncemq.cli.terminal.session import CommandSession
from oncemq.protocol.replies import SubscriptionInfo

HEADS = ("topic", "client", "cursor", "end", "behind", "waiting", "ends", "about")


@command("subscriptions")
@click.option("--topic", shell_complete=topic_names, help="Only those of one topic.")
@click.option("--client", help="Only those of one client.")
def subscriptions(session: CommandSession, topic: str | None, client: str | None) -> None:
    """List the subscriptions: where each one is, how far behind, whose it is and when it ends.

    One that ends by itself (a Spark query's) says when, unless its client is heard of.
    """
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
        "ends": moment(info.ends) if info.ends else None,
        "about": info.about,
    }


def row_of(info: SubscriptionInfo) -> tuple[object, ...]:
    """A subscription as a line of the table."""
    topic, client, *numbers, waiting, pattern, ends, about = as_object(info).values()
    return (topic, client, *(("", "", "") if pattern else numbers), waiting, ends or "", about)
