"""What users give, looked at before anything is done with it: numbers, names, keys, headers.

Law: what cannot go over the wire is refused here, in words, before a request is made of it. A
request that cannot be encoded would stay with the engine, and fail every later verb.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any

from oncemq.client.values import Headers
from oncemq.errors import InvalidRequest
from oncemq.protocol.records import Retention
from oncemq.wire import batch

OURS = "oncemq-"  # headers that a dead letter or a retry adds: the message fits without them
NUMBER_MAX = (1 << 62) - 1  # of an offset
LIMIT_MAX = (1 << 31) - 1  # messages of one get
WAIT_SECONDS_MAX = 366 * 24 * 3600

Topics = str | Sequence[str]


def check_limit(limit: Any) -> None:
    """How many messages are asked for."""
    if not isinstance(limit, int) or not 1 <= limit <= LIMIT_MAX:
        raise InvalidRequest(
            f"a get asks for at least 1 message and at most {LIMIT_MAX}, not {limit!r}"
        )


def check_offset(offset: Any, what: str = "an offset") -> None:
    """Where something begins."""
    if not isinstance(offset, int) or not 0 <= offset <= NUMBER_MAX:
        raise InvalidRequest(f"{what} is a number from 0 to {NUMBER_MAX}, not {offset!r}")


def wait_ms_of(wait: Any) -> int:
    """The milliseconds of a wait in seconds."""
    known = isinstance(wait, int | float) and math.isfinite(wait)
    if not known or not 0 <= wait <= WAIT_SECONDS_MAX:
        raise InvalidRequest(f"a wait is 0 to {WAIT_SECONDS_MAX} seconds, not {wait!r}")
    return int(wait * 1000)


def check_text(text: Any, what: str) -> None:
    """A name, or a part of a header."""
    if not isinstance(text, str):
        raise InvalidRequest(f"{what} is text, not {type(text).__name__} ({text!r:.80})")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidRequest(
            f"{what} {text!r:.80} is not valid UTF-8", code="name_invalid"
        ) from None


def check_topics(topics: Iterable[Any]) -> None:
    """The names of topics, or patterns of them."""
    for topic in topics:
        check_text(topic, "the name of a topic")


def named(topics: Topics) -> Sequence[str]:
    """One topic, or several."""
    if isinstance(topics, str):
        return [topics]
    if not isinstance(topics, list | tuple):
        kind = type(topics).__name__
        raise InvalidRequest(f"a topic is text, or topics a list of that, not {kind}")
    check_topics(topics)
    return topics


def check_retention(retention: Any) -> None:
    """What a topic is to keep."""
    if not isinstance(retention, Retention):
        raise InvalidRequest(
            "a retention is made like Retention(keep_ms=86_400_000), Retention(keep_bytes=10**9) "
            f"or Retention(forever=True), not {retention!r:.80}"
        )
    for number in (retention.keep_ms, retention.keep_bytes):
        check_offset(number, "what a retention keeps")


def check_payloads(payloads: Any) -> None:
    """Several payloads, and not the bytes of one."""
    if isinstance(payloads, bytes | bytearray | memoryview | str):
        raise InvalidRequest("put_many takes a list of payloads, not the bytes of one; put does")


def item_of(payload: Any, key: Any, headers: Any) -> batch.Item:
    """A message as it was when it was put: what users change later is theirs."""
    try:
        copied = None if key is None else batch.payload_of(key)
    except TypeError:
        kind = key.__class__.__name__
        raise InvalidRequest(f"a key is bytes, not {kind}; encode it first") from None
    return batch.Item(batch.payload_of(payload), copied, headers_of(headers))


def headers_of(headers: Any) -> Headers | None:
    """Headers that are headers: text by text."""
    if headers is None:
        return None
    if not isinstance(headers, dict):
        raise InvalidRequest(f"headers are a dict of text by text, not {type(headers).__name__}")
    copied: dict[Any, Any] = dict(headers)  # pyright: ignore[reportUnknownArgumentType]
    for name, value in copied.items():
        check_text(name, "the name of a header")
        check_text(value, f"the value of the header {name!r:.80}")
    return copied


def size_of(item: batch.Item) -> int:
    """The bytes of a message that count: payload, key and headers, without those of ours."""
    size = len(item.payload) + len(item.key or b"")
    for name, value in (item.headers or {}).items():
        if not name.startswith(OURS):
            size += len(name.encode()) + len(value.encode())
    return size
