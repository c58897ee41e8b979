"""`once pipeline`: the table of its commands.

Law: Spark is imported by the pipeline that runs, and by nothing before it.
"""

from importlib import import_module

import click

from oncemq.cli.terminal.command import OnceGroup
from oncemq.config import nearest

# Each in `cli/pipeline/NAME`.
PIPELINES = {
    "archive": "Archive topics as Parquet or Delta.",
    "replay": "Put an archive back into a topic.",
    "check": "Look whether an archive is whole.",
    "transform": "Transform topics by SQL or a function.",
    "audit": "Prove that nothing is missing and nothing is double.",
    "list": "List the pipelines and how each is doing.",
}


class Pipelines(OnceGroup):
    """The group of all pipelines."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every pipeline, without importing one."""
        return list(PIPELINES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, imported now."""
        if cmd_name not in PIPELINES:
            if ctx.resilient_parsing:
                return None  # a Tab in the middle of a word
            said = nearest(cmd_name, list(PIPELINES))
            raise click.UsageError(f"no pipeline {cmd_name!r}; {said}")
        return getattr(import_module(f"oncemq.cli.pipeline.{cmd_name}"), f"{cmd_name}_command")

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The table above, as it stands."""
        with formatter.section("Commands"):
            formatter.write_dl(list(PIPELINES.items()))


@click.group("pipeline", cls=Pipelines)
def pipeline() -> None:
    """Run a data pipeline on Spark, exactly once.

    Needs the extra: pip install 'oncemq[spark]'. How each is doing is told on the topic
    _pipelines, which `once pipeline list` reads.
    """
