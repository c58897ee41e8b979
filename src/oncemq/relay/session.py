"""One stay of a relay at a database: look for rows, number them, send them, free them.

Law: what is numbered is committed before it is sent. After any failure the stay ends, and the
next one begins with what the database says.
"""

import logging
import secrets
import threading
import time

from oncemq.protocol.names import PRODUCER_BYTES, ProducerId
from oncemq.relay.database import RelayDatabase
from oncemq.relay.notifications import LOOK_SECONDS, watch
from oncemq.relay.publisher import RelayPublisher
from oncemq.relay.tables import RelayTables
from oncemq.relay.topic_relay import AskStanding, NumberRows, Send, TopicRelay, TopicStanding

ACTIVE_MAX = 16  # topics under way at once: each has a batch in memory
AGAIN_FIRST, AGAIN_LONGEST = 0.25, 5.0  # seconds until a put that was put off is tried again

logger = logging.getLogger("oncemq.relay")


class RelaySession:
    """A desk, a courier, and the errands between them."""

    def __init__(
        self, desk: RelayDatabase, courier: RelayPublisher, *, sets_aside: bool, required: bool
    ) -> None:
        self._desk = desk
        self._courier = courier
        self._sets_aside = sets_aside
        self._required = required
        self._ledger = RelayTables(desk.kind)
        self._watch = watch(desk)
        self._errands: dict[str, TopicRelay] = {}
        self._last_topic = ""
        self._again_at: dict[str, float] = {}  # topics that were put off

    def serve(self, stopping: threading.Event) -> None:
        """Until told to stop, or something fails."""
        while not stopping.is_set():
            self._desk.must_have_its_name()
            changed = [each for each in self._errands.values() if each.change is not None]
            due = self._due()
            moved = self._turn(changed, due)
            self._send(due)
            if self._courier.under_way:
                self._courier.wait(stopping)
            elif not moved and not any(each.change for each in due):
                self._watch.wait(LOOK_SECONDS, stopping)

    def _due(self) -> list[TopicRelay]:
        """The errands that go on now, the next in turn.

        One that was just answered has had its turn: it goes on at once only where there is room
        for all. Else topics that always have rows waiting would keep out the others.
        """
        topics = sorted(self._desk.run(self._ledger.topics()))  # the database's order may differ
        self._try_again(time.monotonic())
        room = ACTIVE_MAX - self._courier.under_way
        later = [topic for topic in topics if topic > self._last_topic]
        due: list[TopicRelay] = []
        for topic in [*later, *topics[: len(topics) - len(later)]]:
            if len(due) >= room:
                break
            errand = self._errand(topic)
            if errand.goes_on:
                self._last_topic = topic
                due.append(errand)
        return due

    def _try_again(self, now: float) -> None:
        """Let go on what was put off long enough, after waits that grow."""
        for topic, errand in self._errands.items():
            if errand.put_off and topic not in self._again_at:
                pause = min(AGAIN_FIRST * 2 ** min(errand.put_offs - 1, 30), AGAIN_LONGEST)
                self._again_at[topic] = now + pause
            elif errand.put_off and now >= self._again_at[topic]:
                del self._again_at[topic]
                errand.put_off = False

    def _errand(self, topic: str) -> TopicRelay:
        errand = self._errands.get(topic)
        if errand is not None and (not errand.standing.stopped or errand.put_off):
            return errand
        fresh = ProducerId(secrets.token_bytes(PRODUCER_BYTES))
        standing = self._desk.run(self._ledger.standing(topic, fresh))
        if errand is None or standing != errand.standing:  # a person let it go on
            if errand is not None or standing.stopped:
                self._report(standing)
            errand = self._errands[topic] = TopicRelay(
                standing,
                sets_aside=self._sets_aside,
                required=self._required,
                notes=self._desk.run(self._ledger.has_notes()),
            )
        return errand

    def _turn(self, changed: list[TopicRelay], due: list[TopicRelay]) -> bool:
        """Commit what was decided and number what waits, at once; whether anything moved."""
        planning = [each for each in due if isinstance(each.next(), NumberRows)]
        if not changed and not planning:
            return False
        before = [(each, each.standing) for each in (*changed, *planning)]
        limit = self._courier.message_bytes
        self._desk.run(self._ledger.turn(changed, due, message_bytes=limit))
        for errand, old in before:
            if errand.standing.stopped != old.stopped:
                self._report(errand.standing)
        return any(errand.standing != old for errand, old in before)

    def _send(self, due: list[TopicRelay]) -> None:
        for errand in due:
            match errand.next():
                case AskStanding():
                    self._courier.ask(errand)
                case Send(_, rows):
                    items = self._desk.run(self._ledger.contents(rows))
                    if items is None:
                        errand.missing()
                    else:
                        self._courier.put(errand, items)
                case _:
                    pass

    def _report(self, standing: TopicStanding) -> None:
        if standing.waits:
            logger.warning("topic waits topic=%s: %s", standing.topic, standing.stopped)
        elif standing.stopped:
            logger.error("topic stopped topic=%s: %s", standing.topic, standing.stopped)
        else:
            logger.info("topic goes on topic=%s", standing.topic)
