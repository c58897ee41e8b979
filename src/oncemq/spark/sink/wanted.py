"""Whether a topic would store what is written to it.

One that nobody subscribes to and that keeps nothing stores nothing.
"""

from oncemq.client.blocking.client import Client
from oncemq.errors import NoSuchTopic
from oncemq.protocol.replies import TopicInfo


def storing(mq: Client, topic: str) -> TopicInfo | None:
    """What there is of the topic; None when it would store nothing."""
    try:
        info = mq.topic(topic).topic
    except NoSuchTopic:
        return None
    return info if info.subscriptions or info.retention.keeps else None
