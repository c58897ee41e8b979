"""What every command of `once` has: the global options, a session, topic names on Tab.

Law: a global option means the same before and after the name of the command.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from oncemq.cli.terminal.session import CommandSession

COMPLETION_SECONDS = 0.3  # a Tab that hangs is worse than a Tab that does nothing

pass_session = click.make_pass_decorator(CommandSession, ensure=True)


def _set_flag(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    if value is not None and param.name:
        ctx.ensure_object(CommandSession).flags[param.name] = value


def _set_file(ctx: click.Context, _param: click.Parameter, value: str | None) -> None:
    if value is not None:
        ctx.ensure_object(CommandSession).file = value


def _set_json(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if value:
        ctx.ensure_object(CommandSession).json = True


def _show_version(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        from oncemq import __version__

        session = ctx.ensure_object(CommandSession)
        session.answer({"version": __version__}, f"once {__version__}")
        ctx.exit()


def setting(name: str, metavar: str, text: str) -> click.Option:
    """An option that overrides one of the settings; `oncemq.config` reads its text."""
    flag = "--" + name.replace("_", "-")
    return click.Option(
        [flag, name], metavar=metavar, help=text, expose_value=False, callback=_set_flag
    )


def _switch(flag: str, text: str, callback: Callable[..., None]) -> click.Option:
    """Eager: it holds for whatever goes wrong after it."""
    return click.Option(
        [flag], is_flag=True, is_eager=True, expose_value=False, callback=callback, help=text
    )


GLOBAL: list[click.Parameter] = [
    setting("server", "ADDRESS[,ADDRESS]", "Where the server is  [ONCEMQ_SERVER]"),
    setting("id", "ID", "The client's name  [ONCEMQ_ID]"),
    setting("state", "DIR", "Where the client's state lives  [ONCEMQ_STATE]"),
    setting("timeout", "SECONDS", "Wait this long for an answer (10)  [ONCEMQ_TIMEOUT]"),
    click.Option(
        ["--config"],
        metavar="PATH",
        expose_value=False,
        callback=_set_file,
        help="A file of settings  [ONCEMQ_CONFIG]",
    ),
    _switch("--json", "Answer in JSON.", _set_json),
    _switch("--version", "Show the version.", _show_version),
]


class OnceCommand(click.Command):
    """A command that takes the global options too, and lists them apart."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Its own, and the global ones."""
        return [*super().get_params(ctx), *GLOBAL]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """What is particular to the command comes first."""
        params = [param for param in self.get_params(ctx) if isinstance(param, click.Option)]
        for title, wanted in (("Options", False), ("Global options", True)):
            records = [
                record
                for param in params
                if (param in GLOBAL) is wanted and (record := param.get_help_record(ctx))
            ]
            with formatter.section(title):
                formatter.write_dl(records)


class OnceGroup(OnceCommand, click.Group):
    """A command of commands."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order they were added."""
        return list(self.commands)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands first: they are what one came for."""
        self.format_commands(ctx, formatter)
        super().format_options(ctx, formatter)


Body = Callable[..., None]
AnyCommand = TypeVar("AnyCommand", bound=click.Command)


def command(
    name: str, *, epilog: str | None = None, **attributes: Any
) -> Callable[[Body], OnceCommand]:
    """Make a command; its function gets the session first."""

    def wrap(body: Body) -> OnceCommand:
        return click.command(name, cls=OnceCommand, epilog=epilog, **attributes)(pass_session(body))

    return wrap


def settings(*options: click.Option) -> Callable[[AnyCommand], AnyCommand]:
    """Settings that a command takes beside the global ones."""

    def add(made: AnyCommand) -> AnyCommand:
        made.params.extend(options)
        return made

    return add


def topic_names(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """The server's topics, for Tab; none when it is slow, away or angry."""
    try:
        with ctx.ensure_object(CommandSession).visitor(timeout=COMPLETION_SECONDS) as client:
            topics = client.topics()
    except Exception:  # whatever it is: a Tab is no place for it
        return []
    return [topic.name for topic in topics if topic.name.startswith(incomplete)]
