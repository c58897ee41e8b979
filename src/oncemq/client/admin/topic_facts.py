"""What is stored in a topic, as facts for the checker: for `once audit`, and for users' tests.

It is read through a client, which verifies the publishers' checksums; what is damaged is walked
around, and told.
"""

import time
from collections.abc import Iterator
from datetime import datetime
from hashlib import sha256

from oncemq.audit.facts import Fact, Held, Skipped, StoredFact
from oncemq.client.blocking.client import Client
from oncemq.client.values import Message
from oncemq.errors import Corrupt, InvalidRequest
from oncemq.protocol.lost_ranges import Holes
from oncemq.protocol.names import Micros, Offset, Sequence
from oncemq.protocol.replies import TopicInfo

PAGE = 5_000
PATIENCE_SECONDS = 2.0  # for messages that are stored, and about to be durable


def walk(client: Client, info: TopicInfo, *, digests: bool = False) -> Iterator[Fact]:
    """The facts about one topic's stored messages, from its lowest offset to its end."""
    yield Held(info.name, info.low, info.end)
    at, give_up = info.low, time.monotonic() + PATIENCE_SECONDS
    holes = Holes(info.lost)
    while at < info.end:
        if hole := holes.at(at):
            at = hole.end
            yield Skipped(info.name, at, accepted=True)
            continue
        try:
            whole = holes.up_to(at, info.end)
            messages = client.read(info.name, at, limit=min(PAGE, whole - at))
        except InvalidRequest as refused:
            if refused.code != "offset_out_of_range":
                raise
            at = _after_retention(client, info.name, at)
            yield Skipped(info.name, at)
            continue
        except Corrupt as damage:
            for fact in _around_damage(client, info, at, damage.detail, digests=digests):
                yield fact
                at = fact.until if isinstance(fact, Skipped) else Offset(fact.offset + 1)
            continue
        if messages:
            yield from _facts(messages, digests=digests)
            at = Offset(messages[-1].offset + 1)
            give_up = time.monotonic() + PATIENCE_SECONDS
        elif time.monotonic() > give_up:
            return  # what is not there now is a gap
        else:
            time.sleep(0.02)


def _facts(messages: list[Message], *, digests: bool) -> Iterator[StoredFact]:
    for message in messages:
        yield StoredFact(
            message.topic,
            Offset(message.offset),
            message.producer,
            Sequence(message.sequence),
            _micros(message.timestamp),
            sha256(message.payload).digest() if digests else b"",
        )


def _around_damage(
    client: Client, info: TopicInfo, at: Offset, damage: str, *, digests: bool
) -> Iterator[StoredFact | Skipped]:
    """One by one: up to what cannot be read, over it, and one beyond."""
    bad = 0
    while at < info.end:
        try:
            messages = client.read(info.name, at, limit=1)
        except Corrupt:
            bad += 1
        else:
            if bad:
                yield Skipped(info.name, at, damage)
            yield from _facts(messages, digests=digests)
            if bad or not messages:
                return
        at = Offset(at + 1)
    if bad:
        yield Skipped(info.name, at, damage)


def _after_retention(client: Client, name: str, at: Offset) -> Offset:
    """Where the topic begins by now."""
    low = client.topic(name).topic.low
    if low <= at:
        raise InvalidRequest(f"'{name}' was deleted while the audit looked at it; run it again")
    return low


def _micros(moment: datetime) -> Micros:
    return Micros(round(moment.timestamp() * 1_000_000))
