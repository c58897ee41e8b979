"""What a block got, as the spans that its commit moves over: one a topic."""

from types import SimpleNamespace
from typing import Any

import pytest

from oncemq.client.verbs.inbox_verbs import _row_lost, spans_of
from oncemq.databases.inbox import InboxRow, SubscriptionPlace
from oncemq.protocol.client_replies import LostCursor
from oncemq.protocol.names import Offset, SubscriptionId
from oncemq.protocol.replies import NO_OFFSET
from oncemq.session.inbox_rule import ConsumedSpan


def message(topic: str, offset: int, subscription: int = 1) -> Any:
    head = SimpleNamespace(subscription_id=SubscriptionId(subscription))
    return SimpleNamespace(topic=topic, offset=offset, _origin=SimpleNamespace(head=head))


def span(topic: str, first: int, end: int, subscription: int = 1) -> ConsumedSpan:
    return ConsumedSpan(topic, SubscriptionId(subscription), Offset(first), Offset(end))


def test_messages_of_one_topic_are_one_span() -> None:
    assert spans_of([]) == []
    assert spans_of([message("a", 3), message("a", 4)]) == [span("a", 3, 5)]


def test_a_topic_between_two_messages_of_another_has_a_span_of_its_own() -> None:
    """The first and the last are of one topic, and not all between them is."""
    got = [message("a", 0), message("b", 7), message("a", 1)]
    assert spans_of(got) == [span("a", 0, 2), span("b", 7, 8)]


def test_a_subscription_that_was_made_anew_has_a_span_of_its_own() -> None:
    got = [message("a", 0, subscription=1), message("a", 1, subscription=2)]
    assert spans_of(got) == [span("a", 0, 1), span("a", 1, 2, subscription=2)]


@pytest.mark.parametrize(
    ("agreed", "cursor", "goes_on_at"),
    [(0, 0, 0), (NO_OFFSET, 0, 0), (NO_OFFSET, NO_OFFSET, 0), (NO_OFFSET, 2, 2), (3, 5, 3)],
)
def test_the_command_for_a_row_that_is_ahead_leaves_no_message_out(
    agreed: int, cursor: int, goes_on_at: int
) -> None:
    place = SubscriptionPlace("orders", SubscriptionId(7), Offset(9))
    lost = LostCursor("orders", Offset(9), Offset(agreed), Offset(cursor), Offset(cursor))
    said = _row_lost("shop", place, lost, InboxRow(Offset(9), 4))
    assert f"@{goes_on_at}" in said
    assert said.endswith(
        f"UPDATE oncemq_inbox SET cursor = {goes_on_at} WHERE client = 'shop' AND "
        "topic = 'orders' AND subscription_id = 7 AND cursor = 9 AND fence = 4;"
    )
