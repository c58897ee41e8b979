"""Puts that the server discarded because nobody would get them, told once for each topic."""

import logging

from oncemq.client.values import Receipt

TOPICS_MAX = 1_000  # that were told of and are remembered; one more, and all are told again

logger = logging.getLogger("oncemq.client")


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
