"""`once`: the table of its commands, and the way in.

Law: `once COMMAND` imports that command and nothing of the others, so that a put in a script
costs what a put costs.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NoReturn

import click

from oncemq.cli.terminal.command import OnceGroup
from oncemq.cli.terminal.guard import guard
from oncemq.cli.terminal.session import CommandSession
from oncemq.config import nearest

# In the order a newcomer meets them: the module below `oncemq.cli`, and what the command does.
COMMANDS = {
    "serve": ("admin.serve", "Run a server in the foreground."),
    "subscribe": ("messages.subscribe", "Subscribe to a topic."),
    "unsubscribe": ("messages.unsubscribe", "End a subscription, or all of them."),
    "put": ("messages.put", "Put a message, or one per line of a file."),
    "get": ("messages.get", "Get the next messages, each exactly once."),
    "peek": ("messages.peek", "Look at stored messages without taking them."),
    "listen": ("messages.listen", "Stream messages until interrupted."),
    "run": ("programs.run", "Run the handlers of an app."),
    "dead": ("programs.dead", "List, show, retry or drop dead letters."),
    "flush": ("messages.flush", "Send what the outbox still holds."),
    "relay": ("programs.relay", "Publish what commits in a database's outbox."),
    "pipeline": ("pipeline.group", "Archive topics and more, on Spark."),
    "topics": ("admin.topic_list", "List the topics."),
    "topic": ("admin.topic", "Show, create, configure or delete a topic."),
    "subscriptions": ("admin.subscriptions", "List the subscriptions and how far each one is."),
    "client": ("admin.client", "List clients, accept a server's loss, forget an id."),
    "status": ("admin.status", "Show how the server is doing."),
    "cluster": ("cluster.group", "Run a cluster, see how it is, drain or remove a server."),
    "config": ("admin.config", "Show each setting and where it comes from."),
    "bench": ("admin.bench", "Measure this machine."),
    "audit": ("admin.audit", "Prove that nothing is missing and nothing is double."),
    "demo": ("demo.command", "See exactly-once survive crashes."),
    "backup": ("admin.backup", "Copy a server's data, also while it runs."),
    "restore": ("admin.restore", "Make a data directory of a backup."),
    "repair": ("admin.repair", "Look at a damaged data directory, and mend it."),
    "completion": ("admin.completion", "Print the completion script of a shell."),
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
        name = f"oncemq.cli.{COMMANDS[cmd_name][0]}"
        try:
            return getattr(import_module(name), cmd_name)
        except ModuleNotFoundError as error:
            if error.name != name:
                raise
            raise click.UsageError(f"this version has no `once {cmd_name}` yet") from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The table above, as it stands."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, said) for name, (_, said) in COMMANDS.items()])

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
        session = CommandSession()

        def run() -> None:
            self._main_shell_completion(extra, "once", complete_var)
            with self.make_context("once", words, obj=session, **extra) as context:
                self.invoke(context)

        sys.exit(guard(run, session))


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
