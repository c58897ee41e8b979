"""Which topics, from where and up to where: asked of the server on the driver, once a batch.

Law: an offset that the user names is one that is there, or the read is refused; nothing is
rounded to what happens to be kept.
"""

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from oncemq.client.blocking.client import Client
from oncemq.client.verbs.messages import Where
from oncemq.errors import ConfigError, NoSuchTopic
from oncemq.protocol.replies import TopicEnd
from oncemq.spark.options.positions import EARLIEST, LATEST, Position, Time
from oncemq.spark.options.reader import SourceOptions

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def names(mq: Client, options: SourceOptions) -> list[str]:
    """The topics to read: those named, or those there now whose whole name fits the pattern."""
    if options.topics:
        return list(options.topics)
    return [each.name for each in mq.topics() if fits(options, each.name)]


def fits(options: SourceOptions, name: str) -> bool:
    """Whether a topic of this name is to be read."""
    if options.topics:
        return name in options.topics
    return re.fullmatch(options.pattern, name) is not None


def held(mq: Client, topics: Iterable[str]) -> dict[str, TopicEnd]:
    """What the server holds of each; NoSuchTopic when one is not there."""
    wanted = list(topics)
    found = {each.name: each for each in mq.ends([(name, -1) for name in wanted])}
    for name in wanted:
        if name not in found:
            mq.topic(name)  # refuses, and shows what there is
            raise NoSuchTopic(f"topic {name!r} comes and goes")
    return found


def begin(mq: Client, options: SourceOptions, topic: TopicEnd, *, keep: bool) -> int:
    """Where reading a topic begins. With `keep`, what is there from then on is not freed while
    this client lasts (a guest's subscription), so that nothing is lost between here and there."""
    wanted = options.start.of(topic.name)
    if not keep:
        return _offset(mq, wanted, topic, "startingOffsets")
    # Asked of the server, not of `topic`: messages may have come, or gone, since.
    where: Where = "new" if wanted == LATEST else EARLIEST
    if isinstance(wanted, Time):
        where = _moment(wanted)
    elif isinstance(wanted, int):
        where = _there(wanted, topic, "startingOffsets")
    return _subscribed(mq, topic.name, where)


def end(mq: Client, options: SourceOptions, topic: TopicEnd) -> int:
    """Where reading a topic ends: no further than what `topic` says."""
    return min(_offset(mq, options.stop.of(topic.name), topic, "endingOffsets"), topic.end)


def _offset(mq: Client, wanted: Position, topic: TopicEnd, option: str) -> int:
    """The offset meant by a position."""
    if isinstance(wanted, int):
        return _there(wanted, topic, option)
    if isinstance(wanted, Time):
        found = _subscribed(mq, topic.name, _moment(wanted))
        mq.unsubscribe(topic.name)
        return found
    return topic.low if wanted == EARLIEST else topic.end


def _there(offset: int, topic: TopicEnd, option: str) -> int:
    if not topic.low <= offset <= topic.end:
        raise ConfigError(
            f"{option} is {offset} for {topic.name!r}, but it holds offsets {topic.low} up to "
            f"{topic.end}: name one of these, or 'earliest' or 'latest'"
        )
    return offset


def _moment(time: Time) -> datetime:
    return _EPOCH + timedelta(microseconds=time.micros)


def _subscribed(mq: Client, topic: str, where: Where) -> int:
    """Subscribe; the offset that it begins at."""
    mq.subscribe(topic, start=where)
    (mine,) = mq.subscriptions(topic, mq.id)
    return mine.cursor
