"""Which topics, from where and up to where: asked of the server on the driver, once a batch.

Law: an offset that the user names is one that is there, or the read is refused; nothing is
rounded to what happens to be kept.
"""

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from oncemq.client.blocking import Client
from oncemq.core.replies import TopicEnd
from oncemq.errors import ConfigError, NoSuchTopic
from oncemq.spark.options import EARLIEST, LATEST, Position, SourceOptions

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


def position_of(wanted: Position, topic: TopicEnd, option: str) -> int:
    """The offset meant by a position; it must be there."""
    if wanted == EARLIEST:
        return topic.low
    if wanted == LATEST:
        return topic.end
    assert isinstance(wanted, int)
    if not topic.low <= wanted <= topic.end:
        raise ConfigError(
            f"{option} is {wanted} for {topic.name!r}, but it holds offsets {topic.low} up to "
            f"{topic.end}: name one of these, or 'earliest' or 'latest'"
        )
    return wanted


def begin(mq: Client, options: SourceOptions, topic: TopicEnd, *, keep: bool) -> int:
    """Where reading a topic begins. With `keep`, what is there from then on is not freed while
    this client lasts (a guest's subscription), so that nothing is lost between here and there."""
    start = options.start
    if start.timestamp is not None:
        where: datetime | int | str = _EPOCH + timedelta(microseconds=start.timestamp)
    else:
        wanted = start.topics.get(topic.name, start.others)
        # Asked of the server, not of `topic`: messages may have come, or gone, since.
        where = "new" if wanted == LATEST else wanted
        if isinstance(wanted, int):
            where = position_of(wanted, topic, "startingOffsets")
        if not keep:
            return position_of(wanted, topic, "startingOffsets")
    mq.subscribe(topic.name, start=where)
    (mine,) = mq.subscriptions(topic.name, mq.id)
    if not keep:
        mq.unsubscribe(topic.name)
    return mine.cursor
