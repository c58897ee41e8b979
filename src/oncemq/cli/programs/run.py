"""`once run MODULE:APP`."""

import logging
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import click

from oncemq.cli.terminal import logs
from oncemq.cli.terminal.command import command, setting, settings
from oncemq.cli.terminal.session import CommandSession
from oncemq.config import DEFAULT
from oncemq.errors import ConfigError, Fenced

if TYPE_CHECKING:
    from oncemq.apps.app import App


@settings(
    setting("log_level", "LEVEL", "debug, info (the default), warning or error."),
    setting("log_format", "FORMAT", "text (the default) or json."),
)
@command("run")
@click.argument("target", metavar="MODULE[:APP]")
def run(session: CommandSession, target: str) -> None:
    """Run the handlers of an oncemq.App, until Ctrl-C or SIGTERM.

    MODULE is imported from the current directory; APP is a name in it ('app' by default). Prints
    one line on stdout when every handler has its subscription, and logs to stderr. When told to
    stop, each handler finishes and settles the message in hand; told twice, it ends at once.
    """
    config = session.config
    if config.origin("id").startswith("flag"):
        raise click.UsageError("an app has its id in its code, App(id=...); leave --id out")
    logs.start(config.log_level, config.log_format)
    app = load(target)
    if config.origin("state") != DEFAULT:
        app.state = config.state
    _let_others_log()

    def ready() -> None:
        handlers = [f"{app.id}.{each.name}" for each in app.handlers]
        session.answer(
            {"ready": True, "app": app.id, "handlers": handlers},
            f"once run: {app.id} is ready; handlers: {', '.join(handlers)}",
        )
        session.flush()

    try:
        app.run(server=config.server if config.origin("server") != DEFAULT else None, ready=ready)
    except Fenced as error:
        error.add_note(
            f"another process runs the app '{app.id}', or uses its id: stop it, or give this one "
            "an id of its own in its code, App(id=...)"
        )
        raise


def load(target: str) -> "App":
    """The app that MODULE:APP names, imported from the current directory."""
    from oncemq.apps.app import App

    module_name, _, name = target.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = import_module(module_name)
    except (ModuleNotFoundError, ValueError) as error:  # ValueError: an empty name
        missing = getattr(error, "name", None) or module_name
        if not f"{module_name}.".startswith(f"{missing}."):
            raise ConfigError(
                f"module '{module_name}' imports '{missing}', which is not there; install it"
            ) from error
        raise ConfigError(
            f"there is no module '{module_name}' in {here} or on the path; write MODULE:APP, "
            "with dots for directories: shop.worker:app"
        ) from error
    apps = [each for each, value in vars(module).items() if isinstance(value, App)]
    found = getattr(module, name or "app", None)
    if not isinstance(found, App):
        what = "is no oncemq.App" if hasattr(module, name or "app") else "is not there"
        others = f"; there is: {', '.join(f'{module_name}:{each}' for each in apps)}"
        raise ConfigError(f"'{name or 'app'}' {what} in '{module_name}'{others if apps else ''}")
    return found


def _let_others_log() -> None:
    """What the app's own modules log goes where ours goes, unless they see to it themselves."""
    root = logging.getLogger()
    if not root.handlers:
        root.handlers = list(logging.getLogger("oncemq").handlers)
        root.setLevel(logging.getLogger("oncemq").level)
