"""What stands on disk is read by every later version."""

import pytest

from oncemq.protocol.outbox_records import OUTBOX_RECORDS
from oncemq.protocol.records import RECORDS, Retention

KINDS = {
    1: "TopicCreated",
    2: "TopicConfigured",
    3: "TopicDeleted",
    4: "TopicTrimmed",
    5: "MessagesStored",
    6: "MessagesDiscarded",
    7: "SubscriptionMade",
    8: "SubscriptionEnded",
    9: "CursorMoved",
    10: "ClientOpened",
    11: "ProducersForgotten",
    12: "Marked",
    13: "MessagesKeyed",
    14: "KeyedDiscarded",
    15: "KeysForgotten",
    16: "StageMade",
    17: "StageDropped",
    18: "Committed",
    19: "PartKept",
    20: "OwnersForgotten",
    21: "MessagesStaged",
    23: "PatternSubscribed",
    24: "PatternUnsubscribed",
    25: "SubscriptionDerived",
    28: "OwnerBound",
    29: "TopicAwaited",
    32: "GenerationBegan",
    33: "MessagesLost",
    36: "ClientForgotten",
    41: "ContentsCommitted",
    42: "OwnerBoundAlone",
    43: "StagesEnded",
    44: "ClientLeased",
    45: "ClockNoted",
    64: "OutboxLane",
    65: "OutboxPut",
    66: "OutboxDone",
    67: "OutboxOpened",
    68: "OutboxBatch",
    69: "OutboxResumed",
}


def test_a_kind_of_record_is_for_good() -> None:
    """A new record takes a new number; these name what is in logs and outboxes already."""
    known = {**RECORDS, **OUTBOX_RECORDS}
    names = {kind: record.__name__ for kind, record in known.items()}
    assert {kind: names.get(kind) for kind in KINDS} == KINDS


def test_the_outbox_and_the_servers_log_have_no_record_in_common() -> None:
    """So that the one's rules never have to say what they do about the other's records."""
    assert not set(RECORDS) & set(OUTBOX_RECORDS)
    assert not set(RECORDS.values()) & set(OUTBOX_RECORDS.values())


@pytest.mark.parametrize(
    ("retention", "keeps"),
    [
        (Retention(), False),
        (Retention(keep_ms=1), True),
        (Retention(keep_bytes=1), True),
        (Retention(forever=True), True),
    ],
)
def test_a_topic_keeps_settled_messages_for_a_time_up_to_a_size_or_forever(
    retention: Retention, keeps: bool
) -> None:
    assert retention.keeps is keeps
