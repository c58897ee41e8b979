"""What the server says it has lost, as this client hears of it: told once, in words."""

import logging

from oncemq.protocol.lost_ranges import Holes
from oncemq.protocol.names import Offset, TopicId
from oncemq.protocol.replies import LostMessages

log = logging.getLogger("oncemq.lost")


class Losses:
    """The holes of each topic that this client met; bounded by those that its server has."""

    def __init__(self) -> None:
        self._by_topic: dict[str, tuple[TopicId, Holes]] = {}

    def met(self, lost: LostMessages) -> None:
        """This client wanted messages that are gone: it goes on behind them."""
        topic_id, holes = self._by_topic.get(lost.topic, (lost.topic_id, Holes()))
        if topic_id != lost.topic_id:  # the topic was made anew
            holes = Holes()
        if holes.at(lost.first_offset) is None:
            log.warning(
                "messages lost at the server topic=%s first=%d last=%d: a person agreed to go on "
                "without them (once repair --accept-loss); going on at %s@%d",
                *(lost.topic, lost.first_offset, lost.end_offset - 1),
                *(lost.topic, lost.end_offset),
            )
        holes.add(lost.first_offset, lost.end_offset)
        self._by_topic[lost.topic] = lost.topic_id, holes

    def over(self, topic: str, offset: Offset) -> Offset:
        """Where a topic goes on from an offset, as far as this client knows its holes."""
        return self._by_topic[topic][1].over(offset) if topic in self._by_topic else offset
