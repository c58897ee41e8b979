"""`once listen`."""

import click

from oncemq.cli.terminal import message
from oncemq.cli.terminal.command import command, topic_names
from oncemq.cli.terminal.session import CommandSession


@command("listen")
@click.argument("topics", metavar="TOPIC...", nargs=-1, required=True, shell_complete=topic_names)
@click.option(
    "--chaos",
    is_flag=True,
    help="Stall, crash, unsubscribe and subscribe again at random, saying so on stderr.",
)
@click.option("--seed", metavar="N", type=int, help="Draw the same chaos again.")
def listen(session: CommandSession, topics: tuple[str, ...], chaos: bool, seed: int | None) -> None:
    """Stream the messages of one or more subscribed topics until interrupted.

    Output as of `once get`. The server pushes messages as they are stored; a message is settled
    when it is written and the next is asked for.
    """
    if seed is not None and not chaos:
        raise click.UsageError("--seed is for --chaos")
    if chaos:
        from oncemq.cli.messages.listen_chaos import ListenerChaos

        ListenerChaos(session, topics, seed).run()
        return
    with session.client() as client:
        for each in client.listen(*topics):
            message.show(session, each)
            session.flush()
