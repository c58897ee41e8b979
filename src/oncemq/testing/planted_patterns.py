"""Bugs planted in patterns, and in topics that are deleted and made anew; see `planted`."""

from typing import Any

from oncemq.core import wildcards
from oncemq.core.broker import Broker
from oncemq.core.deleted_topics import DeletedTopics
from oncemq.core.delivery import Delivery
from oncemq.core.names import ClientId
from oncemq.core.patterns import Patterns
from oncemq.core.requests import DeleteTopic
from oncemq.core.shard import Shard
from oncemq.core.step import Step
from oncemq.core.topic import Topic
from oncemq.core.wildcards import Wildcards
from oncemq.testing.planting import instead

CUTS = ("wild and server_cut", "wild and server_trap", "wild and blackout")


@instead(Shard, "recovered", *CUTS, "wild and server_kill")
def _forgets_patterns_on_recovery(original: Any) -> Any:
    def recovered(self: Shard) -> None:
        original(self)
        self.patterns = Patterns()

    return recovered


@instead(Delivery, "stored", "wild")
def _begins_a_new_topic_of_a_pattern_at_its_end(original: Any) -> Any:
    def stored(self: Any, topic: Topic) -> None:
        original(self, topic)
        for each in topic.subscriptions.values():
            if each.derived and not topic.visible and not each.cursor:
                topic.move(each.client, topic.end)

    return stored


@instead(Wildcards, "_held", "wild")
def _leaves_a_subscription_of_a_pattern_behind(original: Any) -> Any:
    def held(self: Any, client: ClientId, topic: Topic) -> bool:
        return topic.name == "x.a" or original(self, client, topic)

    return held


@instead(Patterns, "wanting", "wild")
def _takes_a_star_for_several_segments(original: Any) -> Any:
    def wanting(self: Patterns, topic: str) -> list[ClientId]:
        segments = topic.split(".")
        shorter = [".".join(segments[: n + 1]) for n in range(1, len(segments))]
        return list(dict.fromkeys(c for name in (topic, *shorter) for c in original(self, name)))

    return wanting


@instead(Patterns, "wanting", "wild")
def _takes_the_rest_for_one_segment(original: Any) -> Any:
    def wanting(self: Patterns, topic: str) -> list[ClientId]:
        deep = len(topic.split(".")) > 2
        return [] if deep else original(self, topic)

    return wanting


@instead(wildcards, "among", "wild")
def _does_not_look_for_topics_that_are_there(_: Any) -> Any:
    def among(pattern: str, names: list[str]) -> list[str]:
        return []

    return among


@instead(Broker, "_delete_topic", "wild and double")
def _deletes_a_topic_that_was_made_anew(original: Any) -> Any:
    def delete_topic(self: Any, step: Step, delete: DeleteTopic) -> Any:
        return original(self, step, DeleteTopic(delete.topic))

    return delete_topic


@instead(DeletedTopics, "last_number")
def _forgets_what_a_deleted_topic_had(_: Any) -> Any:
    def last_number(self: Any, name: str, producer: bytes, topic_id: int) -> int:
        return 0

    return last_number
