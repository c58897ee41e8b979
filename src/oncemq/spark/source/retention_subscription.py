"""The durable subscription of a query: what it has not committed is not freed.

Laws: its name is in the query's checkpoint before it is made to last, so none is left behind
by a query that never began; its cursor moves only to what Spark has committed; two live
queries with one name fence each other, and the older one is told. A hold that may be nobody's
soon (see `StreamReader`) has a lease: it ends by itself when no query renews it. A thread does so
for as long as the query lives, however long a batch takes and however seldom one is triggered.
"""

import getpass
import logging
import math
import socket
import threading
import time
import weakref
from collections.abc import Iterable, Mapping

from oncemq.client.blocking.client import Client
from oncemq.client.state.memory_journal import state_in_memory
from oncemq.errors import OnceMQError, Refused
from oncemq.protocol.names import Offset, SubscriptionId
from oncemq.protocol.replies import SubscriptionInfo
from oncemq.protocol.requests import Settled

RENEWALS = 8  # in the time of a lease
RENEWED_SECONDS = 86_400.0  # for a hold without an end, instead of that time

log = logging.getLogger(__name__)


class Hold:
    """The subscription of one query on its topics, under one name."""

    def __init__(
        self, server: str, timeout: float, name: str, *, lease: float | None = None
    ) -> None:
        self.name = name
        self._lease = lease  # seconds; 0: it never ends by itself; None: left as it is
        self._renewed = -math.inf
        self._mq = Client(server, timeout=timeout, state=state_in_memory(name))
        self._ids: dict[str, SubscriptionId] = {}
        self._ended: set[str] = set()  # topics whose subscriptions were ended by others
        self._closed = threading.Event()
        if lease:
            arguments = weakref.ref(self), self._closed, lease / RENEWALS
            threading.Thread(target=_renewing, args=arguments, daemon=True).start()

    def keep(self, places: Mapping[str, int]) -> None:
        """From now on nothing from these offsets on is freed; where it is held, it stays so."""
        self.renew()
        missing = [topic for topic in places if topic not in self._ids]
        for topic in missing:
            try:
                self._mq.subscribe(topic, start=places[topic])
            except Refused as refused:
                if refused.code != "offset_out_of_range":
                    raise  # else there is nothing left to hold: the reader says so
        if missing:
            self._recall()

    def keep_all(self, topics: Iterable[str]) -> dict[str, int]:
        """From now on nothing of these topics is freed that is there; the cursors held at.

        Where a topic is held already, it stays so, and the cursor is where it was.
        """
        for topic in topics:
            self._mq.subscribe(topic, start="earliest")
        mine = self._recall()
        return {each.topic: each.cursor for each in mine}

    def renew(self) -> None:
        """The query is still there; said now and then, however often this is called."""
        now = time.monotonic()
        if self._lease is None or now < self._renewed + (self._lease or RENEWED_SECONDS) / RENEWALS:
            return
        self._mq.lease(self._lease, _about())
        self._renewed = now
        held = self._ids
        if held and (ended := held.keys() - {each.topic for each in self._recall()}):
            self._ended |= ended
            log.warning(
                "hold ended at the server client=%s topics=%s: what was put since may be gone",
                *(self.name, ", ".join(sorted(ended))),
            )

    def keep_on(self, places: Mapping[str, int]) -> None:
        """The query is still there, at these offsets of topics that are there: renew all of it."""
        self.renew()
        if ended := self._ended & places.keys():
            self.keep({topic: places[topic] for topic in ended})
            self._ended -= ended

    def settle(self, places: Mapping[str, int]) -> None:
        """Everything below these offsets is committed: let it go."""
        self.renew()
        if not self._ids:
            self._recall()  # the first commit after a restart is of the batch before it
        self._mq.settle_below(
            [
                Settled(topic, self._ids[topic], Offset(offset))
                for topic, offset in places.items()
                if topic in self._ids
            ]
        )

    def forget(self, topic: str) -> None:
        """It may be another topic than the one that is held: hold it anew when asked to."""
        self._ids.pop(topic, None)

    def release(self, topics: Iterable[str]) -> None:
        """These are not held any more, whether or not they were."""
        for topic in topics:
            self._mq.unsubscribe(topic)
            self.forget(topic)

    def _recall(self) -> list[SubscriptionInfo]:
        mine = self._mq.subscriptions(client=self.name)
        self._ids = {each.topic: each.subscription_id for each in mine}
        return mine

    def close(self) -> None:
        """Let go of the connection; the subscription stays."""
        self._closed.set()
        self._mq.close()


def _renewing(held: "weakref.ref[Hold]", closed: threading.Event, seconds: float) -> None:
    """While the query is at work on a batch, or waits for the next trigger, nobody else does."""
    while not closed.wait(seconds):
        hold = held()
        if hold is None:
            return
        try:
            hold.renew()
        except OnceMQError as error:  # whoever plans the next batch is told by name
            log.info("hold not renewed client=%s: %s", hold.name, error)
        del hold


def _about() -> str:
    """Whose hold it is, for `once subscriptions`."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "?"
    return f"Spark query of {user} on {socket.gethostname()}"[:100]
