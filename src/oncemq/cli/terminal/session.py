"""One run of a command: its settings, its client, and its ways to speak.

Law: answers go to stdout, everything else to stderr. `--json` changes the form of an answer,
never what is answered.
"""

import os
import re
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING

import click

from oncemq.cli.terminal import failures, output
from oncemq.config import Config, load

if TYPE_CHECKING:
    from oncemq import Client


SILENT_SECONDS = 1.0  # without an answer, until a look at the address says why


class CommandSession:
    """What a command gets: settings, client, stdout and stderr."""

    def __init__(self) -> None:
        self.flags: dict[str, str] = {}  # as the command line gave them
        self.file: str | None = None
        self.json = False
        self._looking = False  # whether somebody will look why no server answers

    # -------------------------------------------------------------- who and where

    @cached_property
    def config(self) -> Config:
        """The settings; read when first needed, so that `--help` works whatever they say."""
        return load(self.flags, file=self.file)

    @property
    def client_id(self) -> str:
        """The id that subscribes and gets: the one given, else USER@HOST."""
        return self.config.id or default_id(os.environ)

    @property
    def servers(self) -> str:
        """The addresses as a person wrote them."""
        return ", ".join(self.config.server)

    def client(self) -> "Client":
        """A client with an id: it owns subscriptions and state."""
        return self._client(self.client_id)

    def publisher(self) -> "Client":
        """A client for puts: with an outbox when an id is given, else anonymous."""
        if self.config.id is None and self.config.origin("state").startswith("flag"):
            raise click.UsageError("--state keeps the state of a client; name the client with --id")
        return self._client(self.config.id)

    def visitor(self, *, timeout: float | None = None) -> "Client":
        """A client that only asks: no id, no state."""
        return self._client(None, timeout)

    def _client(self, client_id: str | None, timeout: float | None = None) -> "Client":
        import logging

        from oncemq import Client

        self._watch_for_silence()
        # A command says by itself what became of its puts: nothing of the client's log on stderr.
        logging.getLogger("oncemq.lost").addHandler(logging.NullHandler())
        return Client(
            self.config.server,
            id=client_id,
            state=self.config.state if client_id else None,
            timeout=timeout or self.config.timeout,
        )

    def trouble(self) -> str | None:
        """What is wrong at the server's addresses; None: nothing that a look from here shows."""
        from oncemq.cli.terminal.probe import trouble_at

        found = [trouble_at(address) for address in self.config.server]
        return None if None in found else "; ".join(filter(None, found))

    def _watch_for_silence(self) -> None:
        """Say after a second that nobody is there, instead of waiting in silence."""
        from threading import Timer

        def look() -> None:
            if (found := self.trouble()) and self._looking:
                self.note(f"once: {found}; trying on for {self.config.timeout:g} s in all")

        if not self._looking and self.config.timeout > 2 * SILENT_SECONDS:
            self._looking = True
            timer = Timer(SILENT_SECONDS, look)
            timer.daemon = True
            timer.start()

    # -------------------------------------------------------------- answers, on stdout

    def write(self, raw: bytes) -> None:
        """Bytes, untouched."""
        if sys.stdout is None:  # pyright: ignore[reportUnnecessaryComparison]  (closed: `>&-`)
            raise failures.OutputFailed("the answer cannot be written: standard output is closed")
        with _output():
            sys.stdout.buffer.write(raw)

    def flush(self) -> None:
        """What was written has left us."""
        if sys.stdout is not None:  # pyright: ignore[reportUnnecessaryComparison]
            with _output():
                sys.stdout.flush()

    def say(self, text: str) -> None:
        """A line for people; what their terminal cannot show is escaped, never an error."""
        encoding = getattr(sys.stdout, "encoding", "utf-8")  # closed, it is None
        self.write(text.encode(encoding, "backslashreplace") + b"\n")

    def emit(self, value: object) -> None:
        """A value for programs: JSON on one line."""
        from msgspec.json import encode

        self.write(encode(value) + b"\n")

    def answer(self, value: object, text: str) -> None:
        """The one answer of a command, in the form that was asked for."""
        self.emit(value) if self.json else self.say(text)

    def listing(
        self, objects: Sequence[object], heads: Sequence[str], rows: Sequence[Sequence[object]]
    ) -> None:
        """A list: an array for programs, a table for people, who see nothing when it is empty."""
        if self.json:
            self.emit(objects)
        elif rows:
            self.say(output.table(heads, rows))

    # -------------------------------------------------------------- diagnostics, on stderr

    def note(self, text: str) -> None:
        """A remark."""
        _err(text)

    def complain(self, code: str, detail: str, *, hint: str | None = None) -> None:
        """What happened and why, then what to do; as an object too, for programs."""
        _err(f"{output.painted('once:', sys.stderr, 31)} {output.shown(detail)}")
        if hint:
            _err(f"      {output.shown(hint)}")
        if self.json:
            from msgspec.json import encode

            _err(encode({"error": code, "detail": detail}).decode())


@contextmanager
def _output() -> Generator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        what = error.strerror or str(error)
        raise failures.OutputFailed(
            f"the answer cannot be written to standard output: {what}"
        ) from error


def _err(text: str) -> None:
    # Python gives stderr the error handler `backslashreplace`: any text can be written.
    if sys.stderr is not None:  # pyright: ignore[reportUnnecessaryComparison]  (closed: `2>&-`)
        sys.stderr.write(text + "\n")
        sys.stderr.flush()


def default_id(environ: Mapping[str, str]) -> str:
    """USER@HOST, of characters that are safe anywhere; the same in each run of one user."""
    user = environ.get("USER") or environ.get("LOGNAME") or _login()
    return f"{_safe(user)}@{_safe(os.uname().nodename)}"[:200]


def _login() -> str:
    from pwd import getpwuid

    try:
        return getpwuid(os.getuid()).pw_name
    except KeyError:  # a container that runs under a number
        return f"uid{os.getuid()}"


def _safe(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9.-]+", "-", name).strip("-.") or "unknown"
