"""The words of an exception in the log: the reason, and nothing of a payload."""

import sqlite3
from typing import Any, cast

import pytest

from oncemq.apps.wording import (
    LOOKED_AT_BYTES,
    REASON_CHARACTERS,
    TRACEBACK_CHARACTERS,
    WAIT_WORDS_MAX,
    WORDS_MAX,
    in_words,
    reason_of,
    traceback_of,
    waiting_for,
)
from oncemq.client.values import Message


def message(payload: bytes) -> Message:
    return Message(payload, 0, cast("Any", None))


@pytest.mark.parametrize(
    ("error", "payload", "words"),
    [
        (
            sqlite3.OperationalError("no such table: orders"),
            b'{"id": 1, "cups": 2}',
            "OperationalError: no such table: orders",
        ),
        (ValueError("cannot bill b'my secret'"), b"my secret", "ValueError: cannot bill b'…'"),
        (
            ValueError("card 4111111111111111 is refused"),
            b'{"card":"4111111111111111"}',
            "ValueError: card … is refused",
        ),
        (KeyError("tea"), b"tea", "KeyError: '…'"),
        (KeyError(7), b'{"order": 7}', "KeyError: 7"),
        (ValueError("two\n lines"), b"", "ValueError: two lines"),
        (ValueError(), b"x", "ValueError"),
        (ValueError("no file caf\udce9"), b"caf\xe9", "ValueError: no file …"),
        (ValueError("not b'\\xe9\\xe8'"), b"\xe9\xe8", "ValueError: not b'…'"),
        (ValueError("a \x1b[31mred \0 word"), b"", "ValueError: a \\x1b[31mred \\x00 word"),
    ],
)
def test_the_reason_is_named_and_a_payload_is_not(
    error: Exception, payload: bytes, words: str
) -> None:
    assert in_words(error, [message(b"another"), message(payload)]) == words


def test_words_are_cut_and_left_out_beside_payloads_too_large_to_look_at() -> None:
    long = ValueError("x" * 10_000)
    assert in_words(long, []) == "ValueError: " + "x" * WORDS_MAX
    assert in_words(long, [message(b"y" * (LOOKED_AT_BYTES + 1))]) == "ValueError"


class Rude(Exception):
    """Nothing of it can be shown."""

    def __str__(self) -> str:
        raise RuntimeError("no words")

    def __repr__(self) -> str:
        raise RuntimeError("nor these")


class RudeNote:
    def __str__(self) -> str:
        raise RuntimeError("no note")

    __repr__ = __str__


def raised(error: Exception) -> Exception:
    try:
        raise error
    except Exception as caught:
        return caught


def noted(error: Exception, note: object) -> Exception:
    error.__notes__ = [note]  # type: ignore[attr-defined]
    return error


def because_of(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


UNSPEAKABLE: dict[str, Exception] = {
    "no words": Rude(),
    "no words within": Rude(Rude()),
    "no UTF-8": ValueError("\udce9" * 10_000),
    "nothing but NUL": ValueError("\0" * 10_000),
    "four bytes each": ValueError("\U0001f370" * 10_000),
    "a long name": type("long" * 10_000, (Exception,), {})("no"),
    "a rude note": noted(ValueError("no"), RudeNote()),
    "a note that is no UTF-8": noted(ValueError("no"), "\udce9"),
    "a rude cause": because_of(ValueError("no"), Rude()),
    "a group": ExceptionGroup("\udce9", [Rude()]),
}


@pytest.mark.parametrize("error", UNSPEAKABLE.values(), ids=UNSPEAKABLE)
def test_every_text_about_an_exception_can_be_written_and_has_a_limit(error: Exception) -> None:
    error = raised(error)
    texts = {
        in_words(error, [message(b"x")]): 2 * WORDS_MAX + len(": "),
        waiting_for(error): WAIT_WORDS_MAX,
        reason_of(error): REASON_CHARACTERS,
        traceback_of(error): TRACEBACK_CHARACTERS,
    }
    for text, most in texts.items():
        assert 0 < len(text) <= most
        text.encode()
    assert "in raised" in traceback_of(error) or len(traceback_of(error)) == TRACEBACK_CHARACTERS
    assert in_words(error, []).isprintable()
