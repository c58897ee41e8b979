"""How far a long command is: a bar with rate and time left, on stderr.

Law: nothing in the first second; on a terminal one line that is redrawn and at last removed;
elsewhere (a log, a file) a plain line every five seconds.
"""

import shutil
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self, TextIO

from oncemq.cli.terminal import output

PATIENCE_SECONDS = 1.0
REDRAW_SECONDS = 0.1
PLAIN_SECONDS = 5.0
BAR_CELLS = 20


class Progress:
    """Counts messages, or something else; `stream` None shows nothing."""

    def __init__(
        self,
        verb: str,
        stream: TextIO | None,
        *,
        unit: str = "message",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._verb = verb
        self._unit = unit
        self._stream = stream
        self._clock = clock
        self._started = clock()
        self._live = stream is not None and stream.isatty()
        self._next = self._started + (PATIENCE_SECONDS if self._live else PLAIN_SECONDS)
        self._drawn = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._drawn and self._stream:
            self._stream.write("\r\x1b[K")
            self._stream.flush()

    def update(self, count: int, part: float | None) -> None:
        """So many are done, which is `part` (0 to 1) of all, if that is known."""
        now = self._clock()
        if self._stream is None or now < self._next:
            return
        self._next = now + (REDRAW_SECONDS if self._live else PLAIN_SECONDS)
        line = self._line(count, part, max(now - self._started, 1e-9))
        if self._live:
            width = shutil.get_terminal_size().columns - 1
            self._stream.write(f"\r\x1b[K{line[:width]}")
            self._drawn = True
        else:
            self._stream.write(f"once: {line}\n")
        self._stream.flush()

    def _line(self, count: int, part: float | None, seconds: float) -> str:
        done = f"{self._verb} {output.counted(count, self._unit)}, {count / seconds:,.0f}/s"
        if not part:
            return done
        part = min(part, 1.0)
        full = round(part * BAR_CELLS)
        bar = f"[{'#' * full}{'.' * (BAR_CELLS - full)}] " if self._live else ""
        return f"{bar}{part:.0%} {done}, {_clock_text(seconds / part - seconds)} left"


def _clock_text(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
