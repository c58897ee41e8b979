"""`once cluster`: the table of its commands."""

from importlib import import_module

import click

from oncemq.cli.terminal.command import OnceGroup
from oncemq.config import nearest

# The module below `oncemq.cli.cluster`, and what the command does.
CLUSTER_COMMANDS = {
    "dev": ("dev", "Run a cluster on this machine, to try it out."),
    "status": ("status", "Show who leads, who is in sync, and what is wrong."),
    "drain": ("drain", "Let a server lead nothing, before you stop it."),
    "remove": ("remove", "Give a server up for good, and make room for another."),
    "found": ("found", "Begin again with one server's directory, where etcd lost its data."),
    "demo": ("demo.command", "See exactly-once survive the leaders' crashes."),
}


class ClusterCommands(OnceGroup):
    """The group of all of them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every command, without importing one."""
        return list(CLUSTER_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, imported now."""
        if cmd_name not in CLUSTER_COMMANDS:
            if ctx.resilient_parsing:
                return None  # a Tab in the middle of a word
            said = nearest(cmd_name, list(CLUSTER_COMMANDS))
            raise click.UsageError(f"no command {cmd_name!r} of once cluster; {said}")
        module = f"oncemq.cli.cluster.{CLUSTER_COMMANDS[cmd_name][0]}"
        return getattr(import_module(module), f"{cmd_name}_command")

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The table above, as it stands."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, said) for name, (_, said) in CLUSTER_COMMANDS.items()])


@click.group("cluster", cls=ClusterCommands)
def cluster() -> None:
    """Run servers that keep one log together, and look after them.

    Each server is a `once serve --cluster NAME --etcd ADDRESS,… --server-id ID`; --server names
    several addresses, and clients find the leader by themselves. docs/OPERATING.md, Clusters.
    """
