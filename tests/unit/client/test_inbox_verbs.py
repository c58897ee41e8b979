"""What a block got, as the spans that its commit moves over: one a topic."""

from types import SimpleNamespace
from typing import Any

from oncemq.client.verbs.inbox_verbs import spans_of
from oncemq.protocol.names import Offset, SubscriptionId
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
