"""The log of a server, on stderr: lines for people, coloured on a terminal, or JSON."""

import logging
import sys
import time

import msgspec

from oncemq.cli.terminal.output import painted

COLOURS = {"debug": 2, "info": 36, "warning": 33, "error": 31}


class JsonFormatter(logging.Formatter):
    """`{"time": ..., "level": ..., "logger": ..., "message": ...}`."""

    def format(self, record: logging.LogRecord) -> str:
        """One record as one line."""
        facts = {
            "time": _moment(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            facts["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(facts).decode()


class TextFormatter(logging.Formatter):
    """`2026-11-15T08:30:00.123Z info oncemq.server: segment sealed first=1 last=9`."""

    def format(self, record: logging.LogRecord) -> str:
        """One record as one line, an exception below it."""
        level = record.levelname.lower()
        level = painted(level, sys.stderr, COLOURS.get(level, 31))
        line = f"{_moment(record)} {level} {record.name}: {record.getMessage()}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def _moment(record: logging.LogRecord) -> str:
    at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{at}.{int(record.msecs):03}Z"


def start(level: str, form: str) -> None:
    """Send what `oncemq` logs to stderr."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    logger = logging.getLogger("oncemq")
    logger.handlers = [handler]
    logger.setLevel(level.upper())
    logger.propagate = False
