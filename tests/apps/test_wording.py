"""The words of an exception in the log: the reason, and nothing of a payload."""

import sqlite3
from typing import Any, cast

import pytest

from oncemq.apps.wording import LOOKED_AT_BYTES, WORDS_MAX, in_words
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
