"""What nobody would get, with both clients: refused where it is required, else said."""

from typing import Any

import pytest

from oncemq import Unwanted
from oncemq.protocol.records import Retention


def test_a_required_put_raises_until_somebody_would_get_it(connect: Any, server: str) -> None:
    shop, billing = connect(server, "shop"), connect(server, "billing")
    puts = [
        lambda: shop.put("orders", b"a", required=True),
        lambda: shop.put("orders", b"a", required=True, durable=False),
        lambda: shop.put("orders", b"a", required=True, idempotency_key="a"),
        lambda: shop.put_many("orders", [b"a", b"b"], required=True),
        lambda: shop.put_many("orders", [b"a"], required=True, idempotency_key="b"),
        lambda: shop.put(["orders", "audit"], b"a", required=True),
    ]
    for put in puts:
        with pytest.raises(Unwanted, match="'orders'"):
            put()
    assert shop.topics() == []
    billing.subscribe("orders")
    shop.create_topic("audit", Retention(forever=True))
    for put in puts:
        put()
    assert len(billing.get("orders", limit=100, wait=5)) == 7


def test_a_put_that_is_not_required_keeps_the_seeds_answer(connect: Any, server: str) -> None:
    shop = connect(server, "shop")
    assert shop.put("orders", b"a").stored is False
    assert [each.stored for each in shop.put(["a", "b"], b"a")] == [False, False]


def test_the_refusal_of_a_put_that_nobody_waits_for_is_raised_by_flush(
    connect: Any, server: str
) -> None:
    shop = connect(server, "shop")
    shop.put("orders", b"a", required=True, wait=False)
    shop.put_many("refunds", [b"a", b"b"], required=True, wait=False)
    with pytest.raises(Unwanted):
        shop.flush()
    shop.flush()
    assert shop.topics() == []
