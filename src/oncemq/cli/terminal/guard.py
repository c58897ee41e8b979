"""How a command fails: words on stderr, and an exit code for scripts.

Law: the exit codes are part of the interface. No traceback for anything a user can cause; what
no one foresaw keeps its traceback, for it is our mistake.
"""

import os
import sys
from collections.abc import Callable

import click

from oncemq import errors
from oncemq.cli.terminal.failures import NothingNew, OutputFailed
from oncemq.cli.terminal.session import CommandSession

DONE = 0
REFUSED = 1
USAGE = 2
UNREACHABLE = 3
NOTHING_NEW = 4
FENCED = 5
STORAGE = 7
OUTPUT = 8
INTERRUPTED = 130
BROKEN_PIPE = 141  # what a shell reports for any program that SIGPIPE ends

EXITS: list[tuple[type[errors.OnceMQError], int]] = [
    (NothingNew, NOTHING_NEW),
    (OutputFailed, OUTPUT),
    (errors.Unreachable, UNREACHABLE),
    (errors.Fenced, FENCED),
    (errors.HistoryLost, FENCED),
    (errors.StorageRefused, STORAGE),
    (errors.OutboxFull, STORAGE),
    (errors.TooManyFiles, STORAGE),
    (errors.ConfigError, USAGE),
    (errors.OnceMQError, REFUSED),
]

# A refusal that the client gives no class of its own.
EXITS_BY_CODE = {"storage_full": STORAGE, "fenced": FENCED, "not_allowed": FENCED}

# What to do, where the error itself cannot know that a person at a command line asks.
HINTS = {
    "unreachable": "is it running? `once serve` starts one; --server names another",
    "fenced": "another client runs under this id; give each its own with --id",
    "corrupt": "`once repair --data DIR` shows the damage and the choices",
}


def exit_code(error: errors.OnceMQError) -> int:
    """The number scripts see."""
    by_class = next(code for kind, code in EXITS if isinstance(error, kind))
    return EXITS_BY_CODE.get(error.code, by_class)


def guard(run: Callable[[], None], session: CommandSession) -> int:
    """Run; say what went wrong, if anything; return the exit code."""
    try:
        run()
        session.flush()  # a full disk or a closed pipe must show here, not at shutdown
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except (KeyboardInterrupt, click.Abort):
        if sys.stderr.isatty():
            session.note("")  # ends the line with the terminal's ^C
        return INTERRUPTED
    except BrokenPipeError:
        _hush()
        return BROKEN_PIPE
    except click.UsageError as error:
        return _usage(error, session)
    except errors.OnceMQError as error:
        if isinstance(error, OutputFailed):
            _hush()
        hint = session.trouble() if error.code == errors.Unreachable.code else None
        session.complain(error.code, error.detail, hint=_hint(error, hint))
        return exit_code(error)
    except OSError as error:
        what = error.strerror or str(error)
        where = f"{error.filename}: " if error.filename else ""
        session.complain("os_error", f"{where}{what}")
        return STORAGE
    return DONE


def _hint(error: errors.OnceMQError, seen: str | None) -> str | None:
    """What to do: as the command noted it, else as anyone may know, unless it is said already.

    `seen`: what a look at the address has shown; it comes first.
    """
    noted: list[str] = ([seen] if seen else []) + getattr(error, "__notes__", [])
    if seen and len(noted) == 1 and error.code in HINTS:
        noted.append(HINTS[error.code])
    usual = None if "`once " in error.detail else HINTS.get(error.code)
    return "; ".join(noted) or usual


def _usage(error: click.UsageError, session: CommandSession) -> int:
    """`once put: Missing argument 'TOPIC'`, and where the help is."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        session.note(error.format_message())
        return USAGE
    path = error.ctx.command_path if error.ctx else "once"
    said = error.format_message().rstrip(".")
    hint = f"`{path} --help` shows how"
    if isinstance(error, click.NoSuchOption) and path == "once put":
        hint = "a message that begins with '-' goes after `--`: once put TOPIC -- -5"
    session.complain("usage", said[:1].lower() + said[1:], hint=hint)
    return USAGE


def _hush() -> None:
    """Let nothing more be written, at shutdown least of all."""
    if sys.stdout is None:  # pyright: ignore[reportUnnecessaryComparison]  (closed: `>&-`)
        return
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, sys.stdout.fileno())
    os.close(devnull)
