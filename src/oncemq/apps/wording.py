"""An exception in words: safe to write to a disk, into a header or into a log.

The words are a user's. They may be of any length, hold what is no UTF-8 (a file name as Python
reads it), or not be there at all, because `__str__` raises. Laws: every text about an exception is
made here, is cut to a length that has a name, and can be encoded; nothing here raises.

The words of an exception often quote what the handler was given. What they share with a payload,
more than SHARED_MAX characters in a row or all of it, is left out of a log; a shorter piece stays.
"""

import traceback
from collections.abc import Sequence
from pathlib import Path

from oncemq.client.values import Message

WORDS_MAX = 300  # characters of them in a log
WAIT_WORDS_MAX = 1_000  # likewise, where they say what somebody has to do
REASON_CHARACTERS = 1_000  # of a dead letter
TRACEBACK_CHARACTERS = 4_000  # likewise; the tail says where it happened
SHARED_MAX = 5  # characters in a row that words and a payload may share by chance
LOOKED_AT_BYTES = 1 << 20  # of payloads: beside more than this, no words are shown
HIDDEN = "…"
HERE = Path(__file__).parent


def in_words(error: BaseException, messages: Sequence[Message]) -> str:
    """The type of an exception and its words, on one line, without what a payload says."""
    kind = _one_line(type(error).__name__)[:WORDS_MAX]
    words = _one_line(_words(error))[:WORDS_MAX]
    if not words or sum(len(each.payload) for each in messages) > LOOKED_AT_BYTES:
        return kind
    shown = [text for each in messages for text in _renderings(each.payload)]
    return f"{kind}: {_without(words, shown)}"


def waiting_for(error: BaseException) -> str:
    """Why a handler waits, on one line: the topic that is missing may be one a payload names."""
    return _one_line(_words(error) or type(error).__name__)[:WAIT_WORDS_MAX]


def reason_of(error: BaseException, kind: str = "") -> str:
    """Why a message goes to the dead letters; `kind` in place of the exception's type."""
    return safe(f"{kind or type(error).__name__}: {_words(error)}")[:REASON_CHARACTERS]


def traceback_of(error: BaseException) -> str:
    """The tail of it, from the handler on: the way to it is ours, and the same for all."""
    trace = error.__traceback__
    while trace is not None and Path(trace.tb_frame.f_code.co_filename).parent == HERE:
        trace = trace.tb_next
    try:
        text = "".join(traceback.format_exception(type(error), error, trace))
    except Exception:  # what it shows beside the words is the user's as well: notes, causes
        text = "".join(traceback.format_tb(trace))
    return safe(text)[-TRACEBACK_CHARACTERS:]


def place_of(error: BaseException) -> str:
    """The file and line in which it was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return "unknown"
    return _one_line(f"{Path(frames[-1].filename).name}:{frames[-1].lineno}")[-WORDS_MAX:]


def safe(text: str) -> str:
    """The text, with what is no UTF-8 written out: `\\udce9`."""
    return text.encode(errors="backslashreplace").decode()


def _words(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as raised:
        return f"(its words cannot be shown: str() raised {type(raised).__name__})"


def _one_line(text: str) -> str:
    """Without line ends, and without what moves a terminal's cursor or changes its colours."""
    line = " ".join(safe(text).split())
    return line if line.isprintable() else "".join(map(_printable, line))


def _printable(character: str) -> str:
    return character if character.isprintable() else ascii(character)[1:-1]


def _renderings(payload: bytes) -> set[str]:
    """A payload as words may quote it: read as text, as a file name, or shown as bytes."""
    texts = (
        payload.decode(errors="replace"),
        payload.decode(errors="surrogateescape"),
        repr(payload)[2:-1],
    )
    return {_one_line(each) for each in texts}


def _without(words: str, payloads: list[str]) -> str:
    """The words, without what they share with a payload."""
    hidden = [False] * len(words)
    for payload in filter(None, payloads):
        size = min(len(payload), SHARED_MAX + 1)
        for start in range(len(words) - size + 1):
            if words[start : start + size] in payload:
                hidden[start : start + size] = [True] * size
    shown = "".join(HIDDEN if hide else each for each, hide in zip(words, hidden, strict=True))
    while HIDDEN * 2 in shown:
        shown = shown.replace(HIDDEN * 2, HIDDEN)
    return shown
