"""Numbers on topics that were deleted: the server is asked about them, and they are forgotten.

A client that makes a topic for every order would keep a lane for each as long as it lives, and
write it into each new edition of its outbox. So once there are many it asks the server which of
the topics that nothing is on its way to were deleted, by their ids (`Compare`).

Laws: what may be forgotten is decided by `core.publisher`, from the server's own word; whoever
forgot some numbers gets no topic that it does not know (`client.producers`); the disk forgets when
its outbox is written anew, so that a start before that knows more, never less.
"""

import logging
from collections.abc import Sequence as Many
from typing import NamedTuple

from oncemq.client.context import ClientContext
from oncemq.client.puts.producers import Producers
from oncemq.protocol.client_requests import Compare, KnownNumbers
from oncemq.protocol.replies import Compared, Reply
from oncemq.protocol.requests import Request
from oncemq.protocol.step import Body
from oncemq.session.outgoing import Outgoing
from oncemq.session.publisher import Publisher

PAGE = 1_000  # numbers in one question

logger = logging.getLogger("oncemq.client")


class NumbersAsked(NamedTuple):
    """A question about numbers, and those that are asked about after it."""

    question: Compare
    others: tuple[KnownNumbers, ...]


class Forgetting:
    """Keeps the lanes of one publisher few: about twice as many as there are topics for them."""

    def __init__(
        self,
        client: ClientContext,
        outgoing: Outgoing,
        publisher: Publisher,
        producers: Producers,
    ) -> None:
        self._client = client
        self._outgoing = outgoing
        self._producers = producers
        self._publisher = publisher
        self.most = client.settings.lanes_kept  # with more lanes than this the server is asked
        self._asking = False

    def begin(self) -> None:
        """There are many lanes: ask, if nothing is asked already."""
        if not self._asking:
            self._asking = True
            self._ask(self._publisher.idle())

    def _ask(self, known: Many[KnownNumbers]) -> None:
        if not known:
            self._end()
            return
        client, page = self._client, tuple(known[:PAGE])
        question = Compare(client.client, client.generation, numbers=page)
        self._outgoing.begin(self, NumbersAsked(question, tuple(known[PAGE:])))

    def request(self, key: NumbersAsked) -> tuple[Request, None]:
        """Which of these topics were deleted?"""
        return key.question, None

    def on_reply(self, key: NumbersAsked, reply: Reply, bodies: Many[Body]) -> None:
        """Forget those, and ask about the others."""
        del bodies
        if self._client.failure is not None:
            return
        if not isinstance(reply, Compared):  # it cannot say: nothing is forgotten
            self._end()
            return
        before = len(self._publisher.by_topic)
        # Who has receipts that the deleted topic did not have is to be told with its next put.
        lost = {(each.topic, each.producer) for each in reply.numbers}
        known = [each for each in key.question.numbers if (each.topic, each.producer) not in lost]
        forgot = self._publisher.forget(known, frozenset(reply.deleted))
        self._producers.replace(forgot)
        gone = before - len(self._publisher.by_topic)
        logger.debug("numbers forgotten topics=%d: they were deleted", gone)
        self._ask(key.others)

    def _end(self) -> None:
        """Those that are left are asked about when there are twice as many."""
        self._asking = False
        self.most = max(self._client.settings.lanes_kept, 2 * len(self._publisher.by_topic))
