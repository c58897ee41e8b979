"""`once pipeline replay`."""

from datetime import datetime
from pathlib import Path

import click

from oncemq.cli.pipeline.running import require_spark, running, spark_options
from oncemq.cli.terminal import output
from oncemq.cli.terminal.command import command
from oncemq.cli.terminal.session import CommandSession


def _time_of(_ctx: click.Context, _param: click.Parameter, text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        return datetime.fromisoformat(text).astimezone()  # without a zone: local time
    except (ValueError, OverflowError):
        raise click.BadParameter(
            f"{text!r} is not a time; write one such as 2026-11-15T08:30:00Z"
        ) from None


@command("replay")
@click.argument("path")
@click.option("--to", metavar="TOPIC", required=True, help="The topic that gets the messages.")
@click.option(
    "--topic", "topics", metavar="TOPIC", multiple=True, help="Only this one. May be repeated."
)
@click.option(
    "--since", metavar="TIME", callback=_time_of, help="Only what was stored then or later."
)
@click.option("--until", metavar="TIME", callback=_time_of, help="Only what was stored before.")
@click.option("--name", default="", help="Another name is another replay: to do it all again.")
@spark_options
def replay_command(
    session: CommandSession,
    path: str,
    to: str,
    topics: tuple[str, ...],
    since: datetime | None,
    until: datetime | None,
    name: str,
    master: str,
    conf: dict[str, str],
) -> None:
    """Put what an archive holds into a topic, each message exactly once.

    In the order of topics and offsets, with their keys and headers; where and when a message
    was stored goes with it as the headers oncemq-origin-topic, -offset and -timestamp. Run again
    it adds what the archive got since, or nothing.
    """
    require_spark()
    from oncemq.spark.pipelines.replays.replay import replay_on

    named = f"{Path(path).absolute()} to {to}"
    with running(session, "replay", named, master, conf, verb="replayed") as run:
        done = replay_on(run, path, to, topics=topics, since=since, until=until, name=name)
    new = f"{output.counted(done.messages, 'new message')} put to '{to}'"
    ends = [(f"  {topic}", f"up to {end:,}") for topic, end in done.ends.items()]
    session.answer(
        {"topic": to, "messages": done.messages, "ends": done.ends},
        f"{new}\n{output.pairs(ends)}",
    )
