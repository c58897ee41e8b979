"""Bugs planted in patterns, and in topics that are deleted and made anew; see `planted`."""

from typing import Any

from oncemq.broker import pattern_subscriptions
from oncemq.broker.broker import Broker
from oncemq.broker.gets import Gets
from oncemq.broker.pattern_subscriptions import PatternSubscriptions
from oncemq.broker.state.deleted_topics import DeletedTopics
from oncemq.broker.state.shard import Shard
from oncemq.broker.state.topic import Topic
from oncemq.protocol.names import ClientId
from oncemq.protocol.patterns import Patterns
from oncemq.protocol.requests import DeleteTopic
from oncemq.protocol.step import Step
from simulator.planted.plant import instead

CUTS = ("wild and server_cut", "wild and server_trap", "wild and blackout")


@instead(Shard, "recovered", *CUTS, "wild and server_kill")
def _forgets_patterns_on_recovery(original: Any) -> Any:
    def recovered(self: Shard) -> None:
        original(self)
        self.patterns = Patterns()

    return recovered


@instead(Gets, "stored", "wild")
def _begins_a_new_topic_of_a_pattern_at_its_end(original: Any) -> Any:
    def stored(self: Any, topic: Topic) -> None:
        original(self, topic)
        for each in topic.subscriptions.values():
            if each.derived and not topic.visible and not each.cursor:
                topic.move(each.client, topic.end)

    return stored


@instead(PatternSubscriptions, "_held", "wild")
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


@instead(pattern_subscriptions, "among", "wild")
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
