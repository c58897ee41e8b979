"""`once unsubscribe`."""

import click

from oncemq.cli.terminal import output
from oncemq.cli.terminal.command import command, topic_names
from oncemq.cli.terminal.session import CommandSession
from oncemq.errors import NotSubscribed


@command("unsubscribe")
@click.argument("topic", required=False, shell_complete=topic_names)
@click.option("--all", "everything", is_flag=True, help="End every subscription of the client.")
def unsubscribe(session: CommandSession, topic: str | None, everything: bool) -> None:
    """End the subscription to TOPIC; what it did not get yet is let go.

    Exit code 1: there was no subscription.
    """
    if (topic is None) is not everything:
        raise click.UsageError("name one TOPIC, or say --all")
    client_id = session.client_id
    with session.client() as client:
        ended = client.unsubscribe_all() if topic is None else int(client.unsubscribe(topic))
    if not ended:
        what = f"to '{topic}'" if topic else "to anything"
        raise NotSubscribed(f"{client_id} is not subscribed {what}")
    what = f"'{topic}'" if topic else output.counted(ended, "topic")
    session.answer(
        {"topic": topic, "client": client_id, "ended": ended},
        f"{client_id} is no longer subscribed to {what}",
    )
