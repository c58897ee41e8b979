"""Puts that the server discarded because nobody would get them, told once for each topic.

A server refuses what is required and nobody would get. One from before there was `required`
accepts it and discards it: its receipt says so, and whoever required it is told here.
"""

import logging
from collections.abc import Iterable

from oncemq.client.values import Receipt
from oncemq.errors import Unwanted

TOPICS_MAX = 1_000  # that were told of and are remembered; one more, and all are told again

logger = logging.getLogger("oncemq.lost")


class Discards:
    """Which topics were told of."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def note(self, receipt: Receipt) -> None:
        """Say in the log that what this receipt is for is gone, the first time on its topic."""
        if receipt.stored or receipt.topic in self._told:
            return
        if len(self._told) >= TOPICS_MAX:
            self._told.clear()
        self._told.add(receipt.topic)
        logger.warning(
            "put discarded topic=%s: nobody subscribes to it, and it keeps nothing; subscribe "
            "first, let the topic keep messages, or put with required=True to have this refused",
            receipt.topic,
        )


def discarded(receipts: Iterable[Receipt]) -> Unwanted | None:
    """Why something that was required failed though it was accepted; None when it did not."""
    topics = sorted({each.topic for each in receipts if not each.stored})
    if not topics:
        return None
    names = ", ".join(map(repr, topics))
    return Unwanted(
        f"discarded, though it was required: nobody subscribes to {names}, which keeps nothing, "
        "and the server is an older one, which does not know what is required: it accepted the "
        "messages, and everything that was settled with them. Subscribe first, or let the topic "
        "keep messages; then put them again as new ones. Upgrade the server to have such puts "
        "refused, with nothing changed",
        code="discarded",
    )
