"""`once config`."""

from pathlib import Path

from oncemq.cli.terminal.command import command
from oncemq.cli.terminal.session import CommandSession
from oncemq.client.state.paths import state_directory
from oncemq.config import SETTINGS, SIZES
from oncemq.config.quantities import format_duration, format_size


@command("config")
def config(session: CommandSession) -> None:
    """Show each setting, its value and where it comes from.

    A flag beats an ONCEMQ_* variable, which beats the file (--config, ONCEMQ_CONFIG,
    ./oncemq.toml, else ~/.config/oncemq/config.toml), which beats the default.
    """
    settings = session.config
    shown: dict[str, dict[str, object]] = {}
    for name, setting in SETTINGS.items():
        value: object = getattr(settings, name)
        origin = settings.origin(name)
        if name == "id" and value is None:
            value, origin = session.client_id, "default; `once put` then is anonymous"
        elif name == "state":
            value = state_directory(session.client_id, settings.state)
        shown[name] = {"value": _plain(value), "origin": origin, "about": setting.about}
    if session.json:
        session.emit(shown)
    else:
        rows = [(name, _text(name, each["value"]), each["origin"]) for name, each in shown.items()]
        session.listing([], ("setting", "value", "origin"), rows)


def _plain(value: object) -> object:
    return str(value) if isinstance(value, Path) else value


def _text(name: str, value: object) -> str:
    """As a flag or a file would have it."""
    match value:
        case None:
            return "none"
        case tuple():
            return ",".join(map(str, value))  # pyright: ignore[reportUnknownArgumentType]
        case int() if name in SIZES:
            return format_size(value)
        case float():
            return format_duration(round(value * 1000))
        case _:
            return str(value)
