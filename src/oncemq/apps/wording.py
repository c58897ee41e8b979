"""An exception in words that may go into a log: what went wrong, and nothing of a payload.

The words of an exception often quote what the handler was given. What they share with a payload,
more than SHARED_MAX characters in a row or all of it, is left out; a shorter piece stays.
"""

from collections.abc import Sequence

from oncemq.client.values import Message

WORDS_MAX = 300  # characters of them
SHARED_MAX = 5  # characters in a row that words and a payload may share by chance
LOOKED_AT_BYTES = 1 << 20  # of payloads: beside more than this, no words are shown
HIDDEN = "…"


def in_words(error: BaseException, messages: Sequence[Message]) -> str:
    """The type of an exception and its words, on one line."""
    kind = type(error).__name__
    words = " ".join(str(error).split())[:WORDS_MAX]
    if not words or sum(len(each.payload) for each in messages) > LOOKED_AT_BYTES:
        return kind
    payloads = [" ".join(each.payload.decode(errors="replace").split()) for each in messages]
    return f"{kind}: {_without(words, payloads)}"


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
