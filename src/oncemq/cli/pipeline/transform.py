"""`once pipeline transform`."""

from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from oncemq.cli.pipeline.running import require_spark, running, spark_options
from oncemq.cli.terminal import output
from oncemq.cli.terminal.command import command
from oncemq.cli.terminal.session import CommandSession

if TYPE_CHECKING:
    from oncemq.spark.pipelines.transforms.definition import Definition
    from oncemq.spark.pipelines.transforms.transform import QueryPlan


@command("transform")
@click.argument("file", metavar="FILE[:NAME]")
@click.option("--follow", is_flag=True, help="Go on until interrupted.")
@click.option(
    "--dead",
    metavar="TOPIC",
    help="Where messages go that do not fit, or for which the query fails.",
)
@click.option("--dry-run", is_flag=True, help="Show columns and plan; read and write nothing.")
@spark_options
def transform_command(
    session: CommandSession,
    file: str,
    follow: bool,
    dead: str | None,
    dry_run: bool,
    master: str,
    conf: dict[str, str],
) -> None:
    """Transform topics into a topic or a table, by SQL or a Python function, exactly once.

    FILE is TOML (sources, sql, target), or Python with a function under @pipeline; NAME says
    which, if there are several. It goes on where it ended the last time, up to where the topics
    end now.
    """
    require_spark()
    from oncemq.spark.pipelines.transforms.files import load
    from oncemq.spark.pipelines.transforms.transform import plan, transform_on

    definition = load(file)
    if dead is not None:
        definition = replace(definition, dead=dead).check()
    settings = {**definition.spark, **conf}
    name = definition.name
    with running(
        session,
        "transform",
        name,
        master,
        settings,
        verb="transformed",
        follow=follow,
        told=not dry_run,
    ) as run:
        if dry_run:
            return _show(session, definition, plan(run, definition))
        done = transform_on(run, definition, follow=follow)
    text = f"{name}: {output.counted(done.messages, 'message')} read in {done.batches:,} batches"
    return session.answer(
        {
            "name": done.name,
            "messages": done.messages,
            "batches": done.batches,
            "checkpoint": done.checkpoint,
        },
        f"{text}; checkpoint {done.checkpoint}",
    )


def _show(session: CommandSession, definition: "Definition", found: "QueryPlan") -> None:
    if session.json:
        columns, written = (
            [{"name": name, "type": kind} for name, kind in each]
            for each in (found.columns, found.written)
        )
        return session.emit(
            {
                "name": definition.name,
                "columns": columns,
                "written": written,
                "plan": found.text,
            }
        )
    session.say(output.table(["column", "type"], found.columns))
    if found.written != found.columns:
        session.say("\nas messages:\n" + output.table(["column", "type"], found.written))
    return session.say(f"\n{found.text}")
