"""What `once put` says of messages that were not stored, or that no server answered."""

from oncemq.cli.terminal.failures import NotStored
from oncemq.cli.terminal.session import CommandSession
from oncemq.errors import Unreachable


def not_stored(topic: str, what: str = "not stored") -> NotStored:
    """The seeds' NACK of a put."""
    return NotStored(f"{what}: nobody subscribes to '{topic}' and nothing retains it")


def unreachable(session: CommandSession, error: Unreachable, count: int) -> Unreachable:
    """Say what becomes of puts that no server answered."""
    name = session.config.id
    if name is None:
        return error
    told = Unreachable(f"no server answered at {session.servers} in {session.config.timeout:g} s")
    what = "the message is" if count == 1 else f"{count:,} messages are"
    told.add_note(f"{what} recorded; the next command of '{name}' sends that: `once flush`, say")
    return told
