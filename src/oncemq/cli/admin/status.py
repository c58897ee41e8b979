"""`once status`."""

from oncemq.cli.terminal import output
from oncemq.cli.terminal.command import command
from oncemq.cli.terminal.session import CommandSession


@command("status")
def status(session: CommandSession) -> None:
    """Show how the server is doing. Exit code 3: none answered."""
    with session.visitor() as client:
        facts = client.status()
    rows = [(name.replace("_", " "), value) for name, value in facts.items()]
    session.answer(facts, output.pairs([("server", session.servers), *rows]))
