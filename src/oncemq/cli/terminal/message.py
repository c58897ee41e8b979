"""How a message is shown: its payload and a newline, or one JSON object a line.

Law: payload bytes pass untouched, except to a terminal, which would obey the control characters
among them: there they are escaped. JSON cannot hold bytes that are not text; those are given as
`payload_base64` (and `key_base64`), so that a program never sees a changed byte. Headers that are
none, from before servers refused them, are given as `odd_headers_base64`.
"""

import sys
from base64 import b64encode
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import click

from oncemq.cli.terminal import output
from oncemq.cli.terminal.session import CommandSession

if TYPE_CHECKING:
    from oncemq import Message


Body = TypeVar("Body", bound=Callable[..., None])


def count_option(default: int) -> Callable[[Body], Body]:
    """`-n N`, for commands that show messages."""
    return click.option(
        "-n",
        "count",
        metavar="N",
        type=click.IntRange(min=1),
        default=default,
        help=f"How many at most; {default} by default.",
    )


def show(session: CommandSession, message: "Message") -> None:
    """One message on stdout."""
    if session.json:
        session.emit(as_object(message))
    elif sys.stdout is not None and sys.stdout.isatty():  # pyright: ignore[reportUnnecessaryComparison]
        text = message.payload.decode(errors="backslashreplace")
        session.say(output.shown(text, kept="\n\t"))
    else:
        session.write(message.payload + b"\n")


def as_object(message: "Message") -> dict[str, object]:
    """The message as programs get it; the keys are part of the interface."""
    odd = message.odd_headers
    return {
        "topic": message.topic,
        "offset": message.offset,
        **text_of("key", message.key),
        "headers": message.headers,
        **({"odd_headers_base64": b64encode(odd).decode()} if odd else {}),
        "timestamp": output.moment(message.timestamp),
        **text_of("payload", message.payload),
    }


def text_of(name: str, raw: bytes | None) -> dict[str, object]:
    """Bytes under this name, as text where they are text."""
    if raw is None:
        return {name: None}
    try:
        return {name: raw.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": b64encode(raw).decode()}
