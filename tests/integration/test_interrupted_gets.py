"""A get that is interrupted after it settled: what it did not return comes first, wherever."""

from collections.abc import Iterator
from typing import Any

import pytest

from oncemq import InvalidRequest
from oncemq.client.shell.handouts import Handouts
from tests.integration.conftest import Connect, OnALoop


class Interrupted(Exception):
    """What a signal handler raises."""


@pytest.fixture
def mq(server: str, connect: Connect, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A client whose get was interrupted when it had settled the first two messages of three."""
    mq = connect(server, "ada")
    mq.subscribe("orders")
    mq.subscribe("bills")
    mq.put_many("orders", [b"0", b"1", b"2"])
    mq.put("bills", b"b")
    whole = Handouts.settled

    def cut_short(self: Handouts, *about: Any) -> None:
        whole(self, *about)
        raise Interrupted

    with monkeypatch.context() as patched:
        patched.setattr(Handouts, "settled", cut_short)
        with pytest.raises(Interrupted):
            mq.get("orders", limit=2)
    return mq


def taken_in_a_transaction(mq: Any, topic: str | None) -> list[str]:
    """What a transaction of either client takes."""

    async def awaited() -> list[str]:
        async with mq._client.transaction() as tx:
            return [each.id for each in await tx.get(topic, limit=9)]

    if isinstance(mq, OnALoop):
        return mq._run(awaited())
    with mq.transaction() as tx:
        return [each.id for each in tx.get(topic, limit=9)]


@pytest.mark.parametrize("topic", ["orders", None])
def test_a_transaction_does_not_pass_over_what_an_interrupted_get_left(
    mq: Any, topic: str | None
) -> None:
    with pytest.raises(InvalidRequest, match="settled orders@0 and not returned it"):
        taken_in_a_transaction(mq, topic)
    assert [each.id for each in mq.get("orders", limit=9)] == ["orders@0", "orders@1"]
    assert taken_in_a_transaction(mq, "orders") == ["orders@2"]


def test_a_transaction_takes_from_topics_of_which_nothing_was_left(mq: Any) -> None:
    assert taken_in_a_transaction(mq, "bills") == ["bills@0"]
