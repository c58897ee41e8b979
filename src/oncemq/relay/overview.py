"""What a person sees of an outbox, and may do to it: what waits, what stopped, and to go on."""

from collections.abc import Callable

import msgspec

from oncemq.databases.statements import Ask, Bound, Tell, Work
from oncemq.protocol.names import ProducerId
from oncemq.relay.tables import RelayTables
from oncemq.relay.topic_relay import StandingChange, TopicStanding

_COUNTS = """
    SELECT topic, count(*) - count(failed), count(failed), min(failed), min(written)
    FROM oncemq_outbox GROUP BY topic"""


class TopicOverview(msgspec.Struct, frozen=True):
    """One topic of an outbox. `reason`: why it is stopped or waits, or why a row was set aside."""

    topic: str
    waiting: int
    set_aside: int
    published: int
    stopped: bool
    reason: str
    oldest: str  # when the oldest row was written, as the database says it
    unwanted: bool = False  # it waits until somebody would get its messages


def overview(ledger: RelayTables) -> Work[list[TopicOverview]]:
    """Every topic that has rows, or that the relay has stood on."""
    standings = {each.topic: each for each in (yield from ledger.standings())}
    counts = {topic: row for topic, *row in (yield Ask(_COUNTS, {}))}
    found: list[TopicOverview] = []
    for topic in sorted({*standings, *counts}):
        standing = standings.get(topic) or TopicStanding(topic, ProducerId(b""))
        waiting, set_aside, reason, oldest = counts.get(topic, (0, 0, "", ""))
        unwanted = standing.waits and waiting > 0
        stopped = bool(standing.stopped) and not standing.waits
        found.append(
            TopicOverview(
                topic,
                waiting,
                set_aside,
                published=standing.acknowledged,
                stopped=stopped,
                reason=standing.stopped if stopped or unwanted else reason or "",
                oldest=str(oldest or ""),
                unwanted=unwanted,
            )
        )
    return found


def retry(
    ledger: RelayTables, topics: tuple[str, ...], anew: Callable[[], ProducerId] | None
) -> Work[list[str]]:
    """Let stopped topics go on, and rows that were set aside; which topics that concerned.

    Without names: all of them. `anew` gives a stopped topic a producer it never had: its numbers
    begin again, and rows that were under way are published even if they were before.
    """
    yield Bound.BEGIN
    try:
        stopped = {each.topic: each for each in (yield from ledger.standings()) if each.stopped}
        rows = yield Ask("SELECT DISTINCT topic FROM oncemq_outbox WHERE failed IS NOT NULL", {})
        concerned = sorted({*stopped, *(topic for (topic,) in rows)})
        if topics:
            concerned = [topic for topic in concerned if topic in topics]
        for topic in concerned:
            if topic in stopped:
                before = stopped[topic]
                after = before.anew(anew()) if anew else before.again()
                yield from ledger.write(StandingChange(before, after))
            yield Tell(
                "UPDATE oncemq_outbox SET failed = NULL "
                "WHERE topic = :topic AND failed IS NOT NULL",
                {"topic": topic},
            )
        yield from ledger.wake()
    except Exception:
        yield Bound.ROLLBACK
        raise
    yield Bound.COMMIT
    return concerned
