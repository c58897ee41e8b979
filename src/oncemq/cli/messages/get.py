"""`once get`.

Law: a message is settled after it was written, never before. What a broken pipe or a crash
keeps from being written is given again; `head` may cut the output and lose nothing but what
it was handed.
"""

import sys
import time

import click

from oncemq.cli.terminal import failures, message
from oncemq.cli.terminal.command import command, topic_names
from oncemq.cli.terminal.progress import Progress
from oncemq.cli.terminal.session import CommandSession
from oncemq.config.quantities import parse_duration

AT_ONCE = 1000  # messages settled together


def seconds_of(_ctx: click.Context, _param: click.Parameter, text: str) -> float:
    """A wait as seconds or a duration."""
    return parse_duration(text) / 1000


@command("get")
@click.argument("topic", required=False, shell_complete=topic_names)
@message.count_option(1)
@click.option(
    "--wait",
    metavar="SECONDS",
    default="0",
    callback=seconds_of,
    help="Wait so long for messages to come; 0 by default.",
)
def get(session: CommandSession, topic: str | None, count: int, wait: float) -> None:
    """Get the next messages of TOPIC, or of any subscribed topic, oldest first.

    Writes each payload and a newline; with --json one object a line: topic, offset, key,
    headers, timestamp, and payload (or payload_base64 when it is not text).

    A message is settled once it is written, and not given again. Exit code 4: nothing new;
    1: not subscribed.
    """
    deadline = time.monotonic() + wait
    got = 0
    with session.client() as client, _progress(count) as progress:
        while got < count:
            left = max(0.0, deadline - time.monotonic())
            with client.consume(topic, limit=min(AT_ONCE, count - got), wait=left) as messages:
                for each in messages:
                    message.show(session, each)
                session.flush()  # only what has left us is settled
            got += len(messages)
            progress.update(got, got / count)
            if not messages and time.monotonic() >= deadline:
                break
    if not got:
        where = f"on '{topic}'" if topic else "on any subscribed topic"
        raise failures.NothingNew(f"nothing new {where} for {session.client_id}")


def _progress(count: int) -> Progress:
    """On a terminal the messages themselves show that it goes on."""
    shown = count > 1 and not sys.stdout.isatty()
    return Progress("got", sys.stderr if shown else None)
