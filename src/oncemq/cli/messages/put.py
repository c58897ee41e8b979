"""`once put`."""

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from oncemq.cli.messages.put_failures import not_stored, unreachable
from oncemq.cli.terminal.command import command, topic_names
from oncemq.cli.terminal.lines import LineSource, whole
from oncemq.cli.terminal.session import CommandSession
from oncemq.errors import Unreachable

if TYPE_CHECKING:
    from oncemq import Receipt


def headers_of(
    _ctx: click.Context, _param: click.Parameter, texts: tuple[str, ...]
) -> dict[str, str] | None:
    """`NAME=VALUE`, any number of times."""
    headers: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise click.BadParameter(f"{text!r} is not NAME=VALUE")
        if not text.isprintable() and any("\udc80" <= char <= "\udcff" for char in text):
            raise click.BadParameter(f"{text!r} is not UTF-8")
        headers[name] = value
    return headers or None


@command("put")
@click.argument("topic", shell_complete=topic_names)
@click.argument("message", required=False)
@click.option(
    "--file",
    "path",
    metavar="PATH",
    type=click.Path(exists=True, dir_okay=False, readable=True, allow_dash=True),
    help="Read the message from a file; - is standard input.",
)
@click.option("--lines", is_flag=True, help="Put one message a line, in large batches.")
@click.option("--key", help="A key that goes with the message.")
@click.option(
    "--header",
    "headers",
    metavar="NAME=VALUE",
    multiple=True,
    callback=headers_of,
    help="A header that goes with the message; may be repeated.",
)
@click.option(
    "--also",
    metavar="TOPIC",
    multiple=True,
    shell_complete=topic_names,
    help="Put to this topic, too: to all of them or to none; may be repeated.",
)
@click.option(
    "--idempotency-key",
    metavar="TEXT",
    help="The same put whoever repeats it: stored once, as long as the server remembers keys.",
)
def put(
    session: CommandSession,
    topic: str,
    message: str | None,
    path: str | None,
    lines: bool,
    key: str | None,
    headers: dict[str, str] | None,
    also: tuple[str, ...],
    idempotency_key: str | None,
) -> None:
    """Put MESSAGE, or what --file or standard input hold, to TOPIC.

    Prints where the message is, such as orders@42, once it is safe on the server's disk. Bytes
    pass untouched, a newline at the end included. A MESSAGE of `-` is standard input as well.

    With --id the message is recorded on this side first: when no server answers, the exit code
    is 3, and the next command with that id sends it, once. Exit code 1: not stored, for nobody
    subscribes to the topic and nothing retains it.
    """
    if message == "-":
        message, path = None, path or "-"
    if message is not None and (path or lines):
        raise click.UsageError("give the MESSAGE, or --file, or standard input: one of them")
    if lines and (key is not None or headers or idempotency_key is not None):
        raise click.UsageError(
            "--key, --header, --idempotency-key: with one message, not with --lines"
        )
    if also and (lines or idempotency_key is not None):
        raise click.UsageError("--also goes neither with --lines nor with --idempotency-key")
    with _source(session, path, asked=message is None) as source:
        if lines:
            from oncemq.cli.messages.bulk import put_lines

            put_lines(session, topic, source)
        else:
            payload = whole(source) if message is None else os.fsencode(message)
            raw_key = None if key is None else os.fsencode(key)
            if also:
                _put_to_all(session, [topic, *also], payload, key=raw_key, headers=headers)
                return
            _put_one(
                session, topic, payload, key=raw_key, headers=headers, once_key=idempotency_key
            )


def _put_to_all(
    session: CommandSession,
    topics: list[str],
    payload: bytes,
    *,
    key: bytes | None,
    headers: dict[str, str] | None,
) -> None:
    with session.publisher() as client:
        try:
            receipts = client.put(topics, payload, key=key, headers=headers)
        except Unreachable as error:
            error.add_note("it may be stored or not: in all of the topics, or in none")
            raise
    missing = [receipt for receipt in receipts if not receipt.stored]
    for receipt in receipts:
        if receipt.stored or session.json:
            _say(session, receipt)
    if missing:
        raise not_stored(missing[0].topic)


def _put_one(
    session: CommandSession,
    topic: str,
    payload: bytes,
    *,
    key: bytes | None,
    headers: dict[str, str] | None,
    once_key: str | None,
) -> None:
    with session.publisher() as client:
        try:
            receipt = client.put(topic, payload, key=key, headers=headers, idempotency_key=once_key)
        except Unreachable as error:
            if once_key is not None:
                error.add_note("it may be stored or not: the same put with the same key is safe")
                raise
            raise unreachable(session, error, 1) from error
    _show(session, receipt)


def _show(session: CommandSession, receipt: "Receipt") -> None:
    _say(session, receipt)
    if not receipt.stored:
        raise not_stored(receipt.topic)
    if receipt.at_risk_ms and not session.json:
        session.note(f"once: synced within {receipt.at_risk_ms} ms; a power cut could take it")


def _say(session: CommandSession, receipt: "Receipt") -> None:
    if session.json:
        session.emit(
            {
                "topic": receipt.topic,
                "offset": receipt.offset,
                "stored": receipt.stored,
                "duplicate": receipt.duplicate,
                "at_risk_ms": receipt.at_risk_ms,
            }
        )
    elif receipt.stored:
        session.say(receipt.id or f"{receipt.topic}: stored before")


@contextmanager
def _source(session: CommandSession, path: str | None, *, asked: bool) -> Generator[LineSource]:
    """The file, or standard input."""
    if path is None or path == "-":
        if asked and sys.stdin.isatty():
            session.note("once: reading from the terminal; Ctrl-D ends it")
        yield LineSource(sys.stdin.buffer)
        return
    with open(path, "rb", buffering=0) as stream:
        yield LineSource(stream)
