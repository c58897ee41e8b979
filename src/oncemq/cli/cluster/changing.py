"""What the commands that change a cluster have in common: their options, and how they wait."""

import sys
import time

import click

from oncemq.cli.terminal.command import AnyCommand, setting, settings
from oncemq.cli.terminal.session import CommandSession
from oncemq.config.quantities import parse_duration
from oncemq.errors import ConfigError

PATIENCE_SECONDS = 1.0
AGAIN_SECONDS = 5.0


def of_a_cluster(made: AnyCommand) -> AnyCommand:
    """It says which cluster is meant."""
    return settings(
        setting("cluster", "NAME", "The cluster  [ONCEMQ_CLUSTER]"),
        setting("etcd", "ADDRESS[,…]", "Where its etcd is  [ONCEMQ_ETCD]"),
    )(made)


def _seconds(_ctx: click.Context, _param: click.Parameter, text: str) -> float:
    try:
        return parse_duration(text) / 1000
    except ConfigError as error:
        raise click.BadParameter(error.detail) from error


wait_option = click.option(
    "--wait", metavar="SECONDS", default="30s", callback=_seconds,
    help="Wait this long until it is so; 30s by default.",
)  # fmt: skip


class WaitNotes:
    """Says what is waited for: after a second, and then now and then."""

    def __init__(self, session: CommandSession, what: str) -> None:
        self._session, self._what = session, what
        self._due = time.monotonic() + PATIENCE_SECONDS

    def __call__(self) -> None:
        now = time.monotonic()
        if now >= self._due:
            self._due = now + AGAIN_SECONDS
            self._session.note(f"once: {self._what}")
            sys.stderr.flush()
