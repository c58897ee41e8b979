"""`once listen`."""

import sys

import click

from oncemq.cli import message
from oncemq.cli.command import command, topic_names
from oncemq.cli.session import Session


@command("listen")
@click.argument("topics", metavar="TOPIC...", nargs=-1, required=True, shell_complete=topic_names)
def listen(session: Session, topics: tuple[str, ...]) -> None:
    """Stream the messages of one or more subscribed topics until interrupted.

    Output as of `once get`. A message is settled when it is written and the next is asked for.
    """
    with session.client() as client:
        for each in client.listen(*topics):
            message.show(session, each)
            sys.stdout.flush()
