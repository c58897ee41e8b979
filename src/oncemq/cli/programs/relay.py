"""`once relay DATABASE`, and `once relay status|retry|schema`."""

import logging
import secrets
import signal
import sys
import threading
from collections.abc import Generator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import click

from oncemq.cli.terminal import output
from oncemq.cli.terminal.command import OnceGroup, command, setting, settings
from oncemq.cli.terminal.session import CommandSession
from oncemq.errors import DatabaseRefused, Refused

if TYPE_CHECKING:
    from oncemq.relay.database import RelayDatabase
    from oncemq.relay.overview import TopicOverview

HEADS = ("topic", "waiting", "set aside", "published", "state")
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 8.0  # seconds between looks for a database that is away
database = click.argument("database", metavar="DATABASE")

logger = logging.getLogger("oncemq.relay")


class RelayGroup(OnceGroup):
    """A word that is none of its commands is the database to relay."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """`once relay app.db` is `once relay run app.db`."""
        if args and args[0] not in self.commands:
            args = ["run", *args]
        return super().resolve_command(ctx, args)


@click.group("relay", cls=RelayGroup, context_settings={"ignore_unknown_options": True})
def relay() -> None:
    """Publish what commits in the outbox of DATABASE: `once relay DATABASE`.

    DATABASE is postgresql://USER@HOST/NAME or the path of a SQLite file.
    """


@settings(
    setting("log_level", "LEVEL", "debug, info (the default), warning or error."),
    setting("log_format", "FORMAT", "text (the default) or json."),
)
@command("run")
@database
@click.option(
    "--set-aside",
    is_flag=True,
    help="Set aside a row that the server refuses, and go on; else its topic stops.",
)
@click.option(
    "--discard-unwanted",
    is_flag=True,
    help="Delete rows for a topic that nobody subscribes to and that keeps nothing; else they "
    "wait until somebody would get them.",
)
def run(session: CommandSession, database: str, set_aside: bool, discard_unwanted: bool) -> None:
    """Relay until Ctrl-C or SIGTERM; several may run, one works.

    Prints one line on stdout when the database is there, and logs to stderr. A database that is
    away, or just starting, is waited for. It needs no state of its own: run it anywhere, end it
    anyhow, start it again.
    """
    from oncemq.cli.terminal import logs
    from oncemq.relay.opening import connector
    from oncemq.relay.relay import Relay

    config = session.config
    logs.start(config.log_level, config.log_format)
    worker = Relay(
        connector(database),
        server=config.server,
        id=config.id,
        set_aside=set_aside,
        required=not discard_unwanted,
    )
    stopping = threading.Event()

    def stop(*_: object) -> None:
        stopping.set()
        worker.stop()

    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)
    if not _is_there(database, stopping):
        return
    text = f"relaying {_shown(database)} to {session.servers}"
    session.answer({"ready": True, "detail": text}, f"once relay: {text}")
    session.flush()
    worker.run()


@command("status")
@database
def status(session: CommandSession, database: str) -> None:
    """Show what waits in the outbox of DATABASE, and what stopped or was set aside, and why."""
    from oncemq.relay.overview import overview
    from oncemq.relay.tables import RelayTables

    with _outbox(database) as desk:
        found = desk.run(overview(RelayTables(desk.kind)))
    rows = [
        (each.topic, each.waiting, each.set_aside, each.published, _state(each)) for each in found
    ]
    session.listing(found, HEADS, rows)
    if session.json:
        return
    for each in found:
        if each.reason:
            session.say(f"\n{each.topic}: {each.reason}")
    if not found:
        session.note("nothing was ever put into this outbox")


@command("retry")
@database
@click.argument("topics", metavar="[TOPIC]...", nargs=-1)
@click.option(
    "--anew",
    is_flag=True,
    help="Number the topics named from the start, under another name: rows that were under way "
    "are published even if they were before.",
)
def retry(session: CommandSession, database: str, topics: tuple[str, ...], anew: bool) -> None:
    """Let stopped topics of DATABASE go on, and rows that were set aside.

    Exit code 1: there was nothing to retry.
    """
    from oncemq.protocol.names import PRODUCER_BYTES, ProducerId
    from oncemq.relay.overview import retry as try_again
    from oncemq.relay.tables import RelayTables

    if anew and not topics:
        raise click.UsageError("--anew may publish rows twice; name the topics it is for")
    fresh = (lambda: ProducerId(secrets.token_bytes(PRODUCER_BYTES))) if anew else None
    with _outbox(database) as desk:
        concerned = desk.run(try_again(RelayTables(desk.kind), topics, fresh))
    if not concerned:
        raise Refused("nothing is stopped or set aside there", code="nothing_to_retry")
    session.answer({"retried": concerned}, f"going on with {', '.join(concerned)}")


@command("schema")
@click.argument("kind", type=click.Choice(["sqlite", "postgresql"]))
def schema(session: CommandSession, kind: str) -> None:
    """Print the SQL that makes the tables of an outbox."""
    from oncemq.databases.outbox_schema import outbox_schema

    session.answer({"schema": outbox_schema(kind)}, outbox_schema(kind).rstrip("\n"))


def _state(topic: "TopicOverview") -> str:
    if topic.stopped:
        return output.painted("stopped", sys.stdout, 31)
    return output.painted("nobody subscribes", sys.stdout, 33) if topic.unwanted else "going on"


@contextmanager
def _desk(place: str) -> "Generator[RelayDatabase]":
    """The database, reached; or why not, in words."""
    from oncemq.relay.absence import of_the_database
    from oncemq.relay.database import RelayDatabase
    from oncemq.relay.opening import connector

    connect = connector(place)
    try:
        desk = RelayDatabase(connect)
    except Exception as error:
        if not of_the_database(error):
            raise
        raise DatabaseRefused(f"cannot use the database {_shown(place)}: {error}") from error
    with closing(desk):
        yield desk


def _is_there(place: str, stopping: threading.Event) -> bool:
    """Wait for a database that is away; what waiting cannot mend is raised. False: stopped."""
    from oncemq.databases.outbox_schema import make_tables
    from oncemq.relay.absence import is_away

    pause = FIRST_PAUSE
    while not stopping.is_set():
        try:
            with _desk(place) as desk:
                desk.run(make_tables(desk.kind))
            return True
        except DatabaseRefused as refused:
            if not is_away(refused):
                raise
            logger.warning("database away, trying again in %g s: %s", pause, refused.detail)
        stopping.wait(pause)
        pause = min(2 * pause, LONGEST_PAUSE)
    return False


@contextmanager
def _outbox(place: str) -> "Generator[RelayDatabase]":
    """The database, which must have an outbox: looking makes none."""
    from oncemq.databases.outbox_schema import NO_OUTBOX, is_made

    with _desk(place) as desk:
        if not desk.run(is_made(desk.kind)):
            raise DatabaseRefused(NO_OUTBOX)
        yield desk


def _shown(place: str) -> str:
    """Without a password."""
    scheme, found, rest = place.partition("://")
    user, at, host = rest.rpartition("@")
    return f"{scheme}://{user.partition(':')[0]}{at}{host}" if found and at else place


for _command in (run, status, retry, schema):
    relay.add_command(_command)
