"""`once subscribe`."""

from datetime import datetime

import click

from oncemq.cli.terminal.command import command, topic_names
from oncemq.cli.terminal.session import CommandSession
from oncemq.errors import Refused

Start = str | int | datetime


def start_of(_ctx: click.Context, _param: click.Parameter, text: str) -> Start:
    """Where a subscription starts: `new`, `earliest`, an offset, or a time."""
    if text in ("new", "earliest"):
        return text
    if text.isascii() and text.isdecimal():
        return int(text)
    try:
        return datetime.fromisoformat(text).astimezone()  # without a zone: local time
    except (ValueError, OverflowError):
        raise click.BadParameter(
            f"{text!r} is not a start; write new, earliest, an offset such as 42, "
            "or a time such as 2026-11-15T08:30:00Z"
        ) from None


@command("subscribe")
@click.argument("topic", shell_complete=topic_names)
@click.option(
    "--from",
    "start",
    metavar="new|earliest|OFFSET|TIME",
    default="new",
    callback=start_of,
    help="Where to start: what is put from now on (the default), the earliest message kept, "
    "an offset, or a time in ISO 8601.",
)
def subscribe(session: CommandSession, topic: str, start: Start) -> None:
    """Subscribe to TOPIC, which is made if it is not there.

    The subscription belongs to the client (--id, else USER@HOST) and lasts while nobody
    listens, until `once unsubscribe`. Exit code 1: it was there already, and is unchanged.
    """
    client_id = session.client_id
    with session.client() as client:
        made = client.subscribe(topic, start=start)
    if not made:
        raise Refused(f"{client_id} is already subscribed to '{topic}'", code="already_subscribed")
    session.answer(
        {"topic": topic, "client": client_id, "subscribed": True},
        f"{client_id} is subscribed to '{topic}'",
    )
