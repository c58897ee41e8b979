"""`once flush`."""

import click

from oncemq.cli.terminal import output
from oncemq.cli.terminal.command import command
from oncemq.cli.terminal.session import CommandSession


@command("flush")
def flush(session: CommandSession) -> None:
    """Send what the outbox of the client (--id) still holds.

    Puts wait there when no server answered. Any other command with the same id sends them too.
    """
    if session.config.id is None:
        raise click.UsageError("name the client whose outbox to send: --id ID")
    with session.publisher() as client:
        waiting = client.unsent
        client.flush(session.config.timeout)
    text = f"{output.counted(waiting, 'message')} sent" if waiting else "nothing to send"
    session.answer({"client": session.config.id, "sent": waiting}, text)
