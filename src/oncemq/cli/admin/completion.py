"""`once completion`."""

import click
from click.shell_completion import get_completion_class

from oncemq.cli.terminal.command import command
from oncemq.cli.terminal.session import CommandSession


@command(
    "completion",
    epilog="""
\b
To have it in every shell, once and for all:
  bash   once completion bash > ~/.local/share/bash-completion/completions/once
  zsh    once completion zsh > ~/.zfunc/_once          (a directory of $fpath)
  fish   once completion fish > ~/.config/fish/completions/once.fish
""",
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, session: CommandSession, shell: str) -> None:
    """Print the completion script of a shell; topic names come from the server."""
    found = get_completion_class(shell)
    assert found is not None
    root = ctx.find_root().command
    session.say(found(root, {}, "once", "_ONCE_COMPLETE").source().rstrip())
