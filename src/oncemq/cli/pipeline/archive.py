"""`once pipeline archive`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from oncemq.cli.pipeline.running import require_spark, running, spark_options
from oncemq.cli.terminal import output
from oncemq.cli.terminal.command import command, topic_names
from oncemq.cli.terminal.session import CommandSession

if TYPE_CHECKING:
    from oncemq.spark.pipelines.archives.archive import Archived


@command("archive")
@click.argument("topics", metavar="TOPIC...", nargs=-1, required=True, shell_complete=topic_names)
@click.option("--to", metavar="PATH", required=True, help="The directory of the archive.")
@click.option("--delta", is_flag=True, help="As a Delta table (pip install deltalake).")
@click.option("--follow", is_flag=True, help="Go on until interrupted.")
@click.option(
    "--every",
    type=click.FloatRange(min=0),
    default=30.0,
    metavar="SECONDS",
    help="With --follow: wait so long between two steps; 30.",
)
@spark_options
def archive_command(
    session: CommandSession,
    topics: tuple[str, ...],
    to: str,
    delta: bool,
    follow: bool,
    every: float,
    master: str,
    conf: dict[str, str],
) -> None:
    """Archive topics as Parquet, partitioned by topic and day, each message exactly once.

    Goes on where it ended the last time, up to where the topics end now. Whoever reads PATH as
    Parquet, at any moment and after any crash, sees each archived message once. From its first
    run on the server keeps what is not archived yet, whatever the topic's retention is.
    """
    require_spark()
    from oncemq.spark.pipelines.archives.archive import archive_on

    where = str(Path(to).absolute())
    with running(session, "archive", where, master, conf, verb="archived", follow=follow) as run:
        done = archive_on(run, topics, to, delta=delta, follow=follow, every=every)
    session.answer(as_object(done, where), _report(done, where))


def as_object(done: "Archived", path: str) -> dict[str, object]:
    """What was done, as programs get it."""
    return {
        "path": path,
        "messages": done.messages,
        "ends": done.ends,
        "subscription": done.subscription,
    }


def _report(done: "Archived", path: str) -> str:
    new = f"{output.counted(done.messages, 'new message')} archived to {path}"
    ends = [(f"  {topic}", f"up to {end:,}") for topic, end in done.ends.items()]
    return f"{new}\n{output.pairs(ends)}"
