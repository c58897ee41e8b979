"""`once dead list|show|retry|drop`."""

from typing import TYPE_CHECKING

import click

from oncemq.cli.terminal import output
from oncemq.cli.terminal.command import OnceGroup, command, topic_names
from oncemq.cli.terminal.message import text_of
from oncemq.cli.terminal.session import CommandSession

if TYPE_CHECKING:
    from oncemq import Client
    from oncemq.apps.dead_letters import DeadLetter

REASON_SHOWN = 60
HEADS = ("letter", "message", "handler", "attempts", "time", "reason")


@click.group("dead", cls=OnceGroup)
def dead() -> None:
    """List, show, retry or drop dead letters: messages that a handler of an app gave up on."""


@command("list")
@click.argument("topic", required=False, shell_complete=topic_names)
def list_letters(session: CommandSession, topic: str | None) -> None:
    """List the open letters of TOPIC, or of every topic whose name ends in .dead."""
    from oncemq.apps import dead_letter_admin

    with session.visitor() as client:
        found = [
            letter
            for each in dead_letter_admin.dead_topics(client, topic)
            for letter in dead_letter_admin.open_letters(client, each)
        ]
    session.listing([as_object(each) for each in found], HEADS, [_row(each) for each in found])


@command("show")
@click.argument("letter")
def show(session: CommandSession, letter: str) -> None:
    """Show a LETTER (`orders.dead@7`): the reason, the traceback and the message itself."""
    from oncemq.apps import dead_letter_admin

    with session.visitor() as client:
        found = dead_letter_admin.find(client, letter)
    if session.json:
        return session.emit(as_object(found))
    session.say(
        output.pairs(
            [
                ("letter", found.id),
                ("message", found.origin),
                ("handler", found.handler),
                ("attempts", found.attempts),
                ("time", found.time),
                ("key", None if found.key is None else found.key.decode(errors="backslashreplace")),
                *((f"header {name}", value) for name, value in found.headers.items()),
                ("reason", found.reason),
            ]
        )
    )
    if found.traceback:
        session.say("\n" + found.traceback.rstrip())
    session.say("")
    session.write(found.payload + b"\n")
    return None


NAMED = click.argument("names", metavar="LETTER...|TOPIC", nargs=-1, required=True)
ALL = click.option("--all", "all_of", is_flag=True, help="All open letters of TOPIC.")


@command("retry")
@NAMED
@ALL
@click.option(
    "--for-all", is_flag=True, help="For every subscriber, not only the handler that gave up."
)
def retry(session: CommandSession, names: tuple[str, ...], all_of: bool, for_all: bool) -> None:
    """Put the messages of letters back to their topics, exactly once.

    Killed half-way and run again, it puts none twice. Handlers of apps other than the one that
    gave up pass a retried message by; other subscribers see it, as the message it is now.
    """
    from oncemq.apps import dead_letter_admin

    with session.visitor() as client:
        for letter in _chosen(client, names, all_of=all_of):
            if dead_letter_admin.retry(client, letter, for_all=for_all):
                _tell(session, letter, "retried", f"{letter.id}: put back to '{letter.topic}'")


@command("drop")
@NAMED
@ALL
def drop(session: CommandSession, names: tuple[str, ...], all_of: bool) -> None:
    """Close letters without a retry. They stay in their topic for the record."""
    from oncemq.apps import dead_letter_admin

    with session.visitor() as client:
        for letter in _chosen(client, names, all_of=all_of):
            if dead_letter_admin.drop(client, letter):
                _tell(session, letter, "dropped", f"{letter.id}: dropped")


def as_object(letter: "DeadLetter") -> dict[str, object]:
    """The letter as programs get it; the keys are part of the interface."""
    return {
        "letter": letter.id,
        "topic": letter.topic,
        "offset": letter.offset,
        "handler": letter.handler,
        "attempts": letter.attempts,
        "time": letter.time,
        "reason": letter.reason,
        "traceback": letter.traceback,
        "headers": letter.headers,
        **text_of("key", letter.key),
        **text_of("payload", letter.payload),
    }


def _row(letter: "DeadLetter") -> tuple[object, ...]:
    reason = letter.reason.partition("\n")[0]
    if len(reason) > REASON_SHOWN:
        reason = reason[: REASON_SHOWN - 3] + "..."
    return letter.id, letter.origin, letter.handler, letter.attempts, letter.time, reason


def _chosen(client: "Client", names: tuple[str, ...], *, all_of: bool) -> "list[DeadLetter]":
    from oncemq.apps import dead_letter_admin

    if not all_of:
        bare = [each for each in names if "@" not in each]
        if bare:
            raise click.UsageError(f"say --all for every open letter of '{bare[0]}'")
        return [dead_letter_admin.find_open(client, each) for each in dict.fromkeys(names)]
    return [
        letter
        for name in dict.fromkeys(names)
        for each in dead_letter_admin.dead_topics(client, name)
        for letter in dead_letter_admin.open_letters(client, each)
    ]


def _tell(session: CommandSession, letter: "DeadLetter", what: str, text: str) -> None:
    """At once: what was done is known, whatever happens to the next."""
    session.answer({"letter": letter.id, "topic": letter.topic, "done": what}, text)
    session.flush()


for _command in (list_letters, show, retry, drop):
    dead.add_command(_command)
