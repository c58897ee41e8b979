"""`once status`."""

from oncemq.cli import output
from oncemq.cli.command import command
from oncemq.cli.session import Session


@command("status")
def status(session: Session) -> None:
    """Show how the server is doing. Exit code 3: none answered."""
    with session.visitor() as client:
        facts = client.status()
    rows = [(name.replace("_", " "), value) for name, value in facts.items()]
    session.answer(facts, output.pairs([("server", session.servers), *rows]))
