"""`once peek`."""

import click

from oncemq.cli.terminal import failures, message
from oncemq.cli.terminal.command import command, topic_names
from oncemq.cli.terminal.session import CommandSession

PAGE = 1000  # messages asked for at a time


@command("peek")
@click.argument("topic", shell_complete=topic_names)
@message.count_option(10)
@click.option(
    "--from",
    "start",
    metavar="OFFSET",
    type=click.IntRange(min=0),
    help="Begin at this offset; by default at the last N messages.",
)
def peek(session: CommandSession, topic: str, count: int, start: int | None) -> None:
    """Look at stored messages of TOPIC without taking them.

    Needs no subscription, settles nothing, and takes nothing from anybody. Output as of
    `once get`: with --json also offset, key and headers. Exit code 4: nothing is stored there.
    """
    with session.visitor() as client:
        info = client.topic(topic).topic
        at = max(info.low, info.end - count if start is None else start)
        end = min(info.end, at + count)
        shown = 0
        while at < end and (messages := client.read(topic, at, limit=min(PAGE, end - at))):
            for each in messages:
                message.show(session, each)
            shown += len(messages)
            at = messages[-1].offset + 1
    if not shown:
        raise failures.NothingNew(f"nothing is stored in '{topic}' from {at} on")
