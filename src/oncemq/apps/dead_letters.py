"""Dead letters: messages that a handler could not handle, kept with the reason. Pure.

A letter is the message again (payload, key and headers as they were) with headers of ours. It is
in the topic `orders.dead`; what became of a letter is said in `orders.dead.done`, so that the
open ones are a fold of the two.

Law: a letter is put under a key of its own, so that an app that is killed half-way and begins
again adds nothing.
"""

from collections.abc import Mapping
from hashlib import blake2b
from typing import NamedTuple

import msgspec

from oncemq.apps.retrying import Verdict
from oncemq.apps.wording import REASON_CHARACTERS, TRACEBACK_CHARACTERS
from oncemq.client.values import Headers, Message
from oncemq.errors import Corrupt

DEAD = ".dead"
DONE = ".done"
PREFIX = "oncemq-dead-"
ONLY = "oncemq-only"  # the client id of the one handler that a retried message is for

RETRIED, DROPPED = "retried", "dropped"


class DeadLetter(msgspec.Struct, frozen=True):
    """One dead letter, as `once dead` shows it."""

    id: str
    handler: str
    topic: str
    offset: int
    key: bytes | None
    payload: bytes
    headers: Headers
    reason: str
    traceback: str
    attempts: int
    time: str

    @property
    def origin(self) -> str:
        """The message that died: `orders@42`."""
        return f"{self.topic}@{self.offset}"

    @property
    def name(self) -> bytes:
        """Its own for good: in a topic that was deleted and made anew, ids begin again."""
        return f"{self.id} {self.handler} {self.origin} {self.time}".encode()


class Sealed(NamedTuple):
    """A letter as it is put."""

    payload: bytes
    key: bytes | None
    headers: Headers
    idempotency_key: str


def dead_topic(topic: str) -> str:
    """Where the dead letters of a topic are, unless a handler says otherwise."""
    return topic + DEAD


def seal(message: Message, handler: str, verdict: Verdict) -> Sealed:
    """The letter of a message: the message again, with headers of ours."""
    key, headers = given(message)
    ours = {
        "handler": handler,
        "topic": message.topic,
        "offset": str(message.offset),
        "key": "" if key is None else key.hex(),
        "reason": verdict.reason[:REASON_CHARACTERS],
        "traceback": verdict.traceback[-TRACEBACK_CHARACTERS:],
        "attempts": str(verdict.attempts),
        "time": verdict.time,
    }
    return Sealed(
        message.payload,
        key,
        _theirs(headers) | {PREFIX + name: text for name, text in ours.items()},
        # One for each message (a topic made anew has the same offsets at other times) and handler.
        _key("dead", handler, message.id, message.timestamp.isoformat()),
    )


def read(message: Message) -> DeadLetter | None:
    """The letter that a message of a dead-letter topic is; None when it is none."""
    headers = message.headers
    try:
        ours = {name: headers[PREFIX + name] for name in _NAMES}
        return DeadLetter(
            id=message.id,
            handler=ours["handler"],
            topic=ours["topic"],
            offset=int(ours["offset"]),
            key=message.key,
            payload=message.payload,
            headers=_theirs(headers),
            reason=ours["reason"],
            traceback=ours["traceback"],
            attempts=int(ours["attempts"]),
            time=ours["time"],
        )
    except (KeyError, ValueError):
        return None


def retry_headers(letter: DeadLetter) -> Headers:
    """The headers of a message that goes back: its own, and for which handler it is."""
    return letter.headers | {ONLY: letter.handler}


def is_for(message: Message, handler: str) -> bool:
    """Whether a handler should handle a message: a retried one is for the one that failed."""
    return given(message)[1].get(ONLY, handler) == handler


def given(message: Message) -> tuple[bytes | None, Headers]:
    """Key and headers; none where the publisher put something else in their place."""
    try:
        return message.key, message.headers
    except Corrupt:
        return None, {}


def _key(*words: str) -> str:
    """Names may be as long as a key may be: a digest always fits."""
    return f"{words[0]} {blake2b(chr(0).join(words).encode(), digest_size=16).hexdigest()}"


_NAMES = ("handler", "topic", "offset", "reason", "traceback", "attempts", "time")


def _theirs(headers: Mapping[str, str]) -> Headers:
    ours = (PREFIX, ONLY)
    return {name: text for name, text in headers.items() if not name.startswith(ours)}
