"""`once listen`."""

import sys
from typing import TYPE_CHECKING

import click

from oncemq.cli import message
from oncemq.cli.command import command, topic_names
from oncemq.cli.session import Session
from oncemq.errors import NotSubscribed

if TYPE_CHECKING:
    from oncemq import Client


@command("listen")
@click.argument("topics", metavar="TOPIC...", nargs=-1, required=True, shell_complete=topic_names)
def listen(session: Session, topics: tuple[str, ...]) -> None:
    """Stream the messages of one or more subscribed topics until interrupted.

    Output as of `once get`. A message is settled when it is written and the next is asked for.
    """
    with session.client() as client:
        if len(topics) > 1:
            _check(session, client, topics)
        for each in client.listen(*topics):
            message.show(session, each)
            sys.stdout.flush()


def _check(session: Session, client: "Client", topics: tuple[str, ...]) -> None:
    """Each of several topics must be subscribed, or the listener would wait for it in vain."""
    subscribed = {each.topic for each in client.subscriptions(None, session.client_id)}
    for topic in topics:
        if topic not in subscribed:
            raise NotSubscribed(
                f"{session.client_id} is not subscribed to '{topic}': subscribe first"
            )
