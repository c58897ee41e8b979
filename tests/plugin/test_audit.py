"""The checker of the plugin sees what is wrong with effects and receipts, and only that."""

from collections.abc import Callable

import pytest

from oncemq import Client, Receipt
from oncemq.protocol.records import Retention
from tests.e2e.processes import until

Connect = Callable[..., Client]
Audit = Callable[..., None]
Got = tuple[list[str], list[Receipt]]


@pytest.fixture(params=["kept", "let go"])
def got(request: pytest.FixtureRequest, oncemq_client: Connect) -> Got:
    """What a subscriber got: of a topic that keeps it, and of one that does not any more."""
    mq = oncemq_client(id="reader")
    kept = request.param == "kept"
    mq.create_topic("orders", Retention(forever=kept))
    mq.subscribe("orders")
    receipts = [mq.put("orders", b"%d" % n) for n in range(5)]
    ids = [each.id for each in mq.get("orders", limit=5, wait=10)]
    mq.get("orders")  # tells that they are settled
    until(lambda: mq.topic("orders").topic.low == (0 if kept else 5))
    return ids, receipts


def test_effects_that_are_whole_pass(oncemq_audit: Audit, got: Got) -> None:
    ids, receipts = got
    oncemq_audit("orders", effects={"reader": ids}, receipts=receipts)
    oncemq_audit("orders", effects={"reader": [0, 1, 2, 3, 4]})
    oncemq_audit("orders", effects={"late": ids[2:]}, start=2)
    oncemq_audit("orders")


@pytest.mark.parametrize(
    ("broken", "kind"),
    [
        ([0, 1, 3, 4], "G4 lost_middle: orders@2"),
        ([0, 1, 2, 3], "G4 lost_tail: orders@4"),
        ([1, 2, 3, 4], "G4 lost_prefix: orders@0"),
        ([], "G4 lost"),
        ([0, 1, 1, 2, 3, 4], "G4 redelivered: orders@1"),
        ([0, 2, 1, 3, 4], "G3 reordered: orders@1"),
        ([0, 1, 2, 3, 4, 5], "G3 phantom: orders@5"),
    ],
    ids=str,
)
def test_effects_that_are_not_whole_are_told(
    oncemq_audit: Audit, got: Got, broken: list[int], kind: str
) -> None:
    assert len(got[0]) == 5
    with pytest.raises(AssertionError, match=kind):
        oncemq_audit("orders", effects={"reader": broken})


def test_a_receipt_without_its_message_is_told(oncemq_audit: Audit, got: Got) -> None:
    invented = Receipt("orders", 5, stored=True, duplicate=False)
    with pytest.raises(AssertionError, match="G1 lost: orders@5"):
        oncemq_audit("orders", receipts=[*got[1], invented])


def test_a_message_of_another_topic_is_no_effect(oncemq_audit: Audit, got: Got) -> None:
    assert len(got[0]) == 5
    with pytest.raises(ValueError, match="'teas@0' is no message of 'orders'"):
        oncemq_audit("orders", effects={"reader": ["teas@0"]})
