"""`once`: the table of its commands, and the way in.

Law: `once COMMAND` imports that command and nothing of the others, so that a put in a script
costs what a put costs.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NoReturn

import click

from oncemq.cli import failures
from oncemq.cli.command import OnceGroup
from oncemq.cli.session import Session
from oncemq.config import nearest

# In the order a newcomer meets them.
COMMANDS = {
    "serve": "Run a server in the foreground.",
    "subscribe": "Subscribe to a topic.",
    "unsubscribe": "End a subscription, or all of them.",
    "put": "Put a message, or one per line of a file.",
    "get": "Get the next messages, each exactly once.",
    "peek": "Look at stored messages without taking them.",
    "listen": "Stream messages until interrupted.",
    "run": "Run the handlers of an app.",
    "dead": "List, show, retry or drop dead letters.",
    "flush": "Send what the outbox still holds.",
    "relay": "Publish what commits in a database's outbox.",
    "pipeline": "Archive topics and more, on Spark.",
    "topics": "List the topics.",
    "topic": "Show, create, configure or delete a topic.",
    "subscriptions": "List the subscriptions and how far each one is.",
    "client": "List clients, accept a server's loss, forget an id.",
    "status": "Show how the server is doing.",
    "config": "Show each setting and where it comes from.",
    "bench": "Measure this machine.",
    "audit": "Prove that nothing is missing and nothing is double.",
    "demo": "See exactly-once survive crashes.",
    "backup": "Copy a server's data, also while it runs.",
    "restore": "Make a data directory of a backup.",
    "repair": "Look at a damaged data directory, and mend it.",
    "completion": "Print the completion script of a shell.",
}


class Once(OnceGroup):
    """The group of all commands."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every command, without importing one."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, imported now."""
        if cmd_name not in COMMANDS:
            if ctx.resilient_parsing:
                return None  # a Tab in the middle of a word
            raise click.UsageError(f"no command {cmd_name!r}; {nearest(cmd_name, list(COMMANDS))}")
        name = f"oncemq.cli.{cmd_name}"
        try:
            return getattr(import_module(name), cmd_name)
        except ModuleNotFoundError as error:
            if error.name != name:
                raise
            raise click.UsageError(f"this version has no `once {cmd_name}` yet") from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The table above, as it stands."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> NoReturn:
        """Run, and end the process with the code that says how it went."""
        words = list(sys.argv[1:] if args is None else args)
        session = Session()

        def run() -> None:
            self._main_shell_completion(extra, "once", complete_var)
            with self.make_context("once", words, obj=session, **extra) as context:
                self.invoke(context)

        sys.exit(failures.guard(run, session))


EXIT_CODES = """
\b
Exit codes:
  0  done (a duplicate that was absorbed included)
  1  refused: not subscribed, already subscribed, not stored, no such topic
  2  wrong usage or settings      5  fenced, or history lost
  3  no server answered           6  an audit found a gap or a duplicate
  4  nothing new to get           7  the storage refused: corrupt or full
                                  8  standard output could not be written

\b
A first message:
  once serve &
  once subscribe orders
  once put orders hello
  once get orders
"""


@click.group("once", cls=Once, epilog=EXIT_CODES)
def cli() -> None:
    """Publish and subscribe, exactly once."""


def main() -> NoReturn:
    """The console script."""
    cli.main()
