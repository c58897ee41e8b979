"""How a pipeline runs from the command line: its options, its words on stderr, its Spark.

@command("archive")
@SPARK
def running_command(session, …, master, conf):
    with running(session, "archive", path, master, conf) as run:
        …
"""

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from oncemq.cli.terminal.progress import Progress
from oncemq.cli.terminal.session import CommandSession

if TYPE_CHECKING:
    from oncemq.spark.pipelines.run import PipelineRun

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


def _pairs(_ctx: click.Context, _param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for each in values:
        name, equals, text = each.partition("=")
        if not equals or not name.startswith("spark."):
            raise click.BadParameter(f"{each!r} is not like spark.driver.memory=2g")
        found[name] = text
    return found


def spark_options(function: Decorated) -> Decorated:
    """`--master` and `--conf`, for every pipeline."""
    conf = click.option(
        "--conf",
        metavar="NAME=VALUE",
        multiple=True,
        callback=_pairs,
        help="A setting of Spark. May be repeated.",
    )
    master = click.option(
        "--master", default="local[*]", metavar="URL", help="The Spark to run on; local[*]."
    )
    return master(conf(function))


class Terminal:
    """A run's words and its bar, on stderr."""

    def __init__(self, session: CommandSession, bar: Progress) -> None:
        self._session, self._bar = session, bar

    def note(self, text: str) -> None:
        """A remark."""
        self._session.note(f"once: {text}")

    def progress(self, count: int, part: float | None) -> None:
        """How far it is."""
        self._bar.update(count, part)


@contextmanager
def running(
    session: CommandSession,
    pipeline: str,
    name: str,
    master: str,
    conf: dict[str, str],
    *,
    verb: str,
    follow: bool = False,
    told: bool = True,
) -> "Generator[PipelineRun]":
    """A run with the settings of the session; `verb` is what it does to messages: `archived`.

    With `follow` a signal asks it to end (`run.stopping`); else it ends at once. One that is not
    `told` leaves no word on `_pipelines`.
    """
    require_spark()
    from oncemq.spark.pipelines.run import PipelineRun, stopped_by_signals

    config = session.config
    with Progress(verb, sys.stderr) as bar:
        run = PipelineRun(
            pipeline,
            name,
            server=",".join(config.server),
            timeout=config.timeout,
            master=master,
            config=conf,
            screen=Terminal(session, bar),
            quiet=True,
            told=told,
        )
        with stopped_by_signals(run, gently=follow), run:
            yield run


def require_spark() -> None:
    """Say what to install when Spark is not there."""
    from oncemq.spark.runtime.environment import require

    try:
        require()
    except ImportError as error:
        raise click.UsageError(str(error)) from None
