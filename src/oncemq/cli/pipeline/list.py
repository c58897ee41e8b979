"""`once pipeline list`."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from oncemq.cli.terminal import output
from oncemq.cli.terminal.command import command
from oncemq.cli.terminal.session import CommandSession

if TYPE_CHECKING:
    from oncemq.spark.pipeline_status import StatusHeard

HEADS = ("pipeline", "state", "messages", "done", "started", "last word", "about")


@command("list")
def list_command(session: CommandSession) -> None:
    """List the pipelines that ran within a week, and how each is doing.

    `silent` is a pipeline that said it runs, and nothing for two minutes: it was killed, or it
    does not reach the server.
    """
    from oncemq.spark.pipeline_status import latest  # which needs no Spark

    with session.visitor() as client:
        found = latest(client)
    now = datetime.now(UTC)
    session.listing(
        [as_object(each, now) for each in found], HEADS, [_row(each, now) for each in found]
    )
    if not found and not session.json:
        session.note("no pipeline ran within a week; `once pipeline --help` shows what there is")


def as_object(heard: "StatusHeard", now: datetime) -> dict[str, object]:
    """A pipeline as programs get it."""
    status = heard.status
    return {
        "pipeline": status.pipeline,
        "name": status.name,
        "run": status.run,
        "state": heard.state(now),
        "messages": status.messages,
        "part": status.part,
        "started": status.started,
        "at": output.moment(heard.at),
        "facts": status.facts,
        "error": status.error,
    }


def _row(heard: "StatusHeard", now: datetime) -> tuple[object, ...]:
    status = heard.status
    done = None if status.part is None else f"{min(status.part, 1.0):.0%}"
    about = status.error.partition("\n")[0] or ", ".join(
        f"{name} {value}" for name, value in status.facts.items()
    )
    last = output.moment(heard.at)[:19] + "Z"
    return status.key, heard.state(now), status.messages, done, status.started, last, about
