"""What there is, for people and tools: topics, subscriptions, counters. Decides nothing."""

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import islice

from oncemq.broker.given import Facts, StorageFacts
from oncemq.broker.state.shard import Shard
from oncemq.broker.state.topic import Subscription, Topic
from oncemq.broker.waits import LongPolls
from oncemq.protocol.client_replies import ClientInfo
from oncemq.protocol.names import ClientId, Offset
from oncemq.protocol.patterns import is_pattern
from oncemq.protocol.replies import (
    ClientList,
    RefusedReply,
    Reply,
    StatusReport,
    SubscriptionInfo,
    SubscriptionList,
    TopicInfo,
    TopicList,
    TopicShown,
)
from oncemq.protocol.requests import (
    ListClients,
    ListSubscriptions,
    ListTopics,
    ShowTopic,
    StatusRequest,
)

PAGE_MAX = 1_000
SHOWN_MAX = 1_000  # subscriptions in one answer about a topic
HOLES_SHOWN = 1_000  # of a topic, likewise

Question = ListTopics | ShowTopic | ListSubscriptions | ListClients | StatusRequest


@dataclass(slots=True)
class Counters:
    """What happened since the server started."""

    requests: int = 0
    stored: int = 0
    stored_bytes: int = 0
    discarded: int = 0
    duplicates: int = 0
    sent: int = 0  # messages in answers: what is read ahead or looked at is counted, too
    refused: int = 0
    committed: int = 0


def answer(
    shard: Shard,
    waiting: LongPolls,
    counters: Counters,
    storage: StorageFacts | None,
    question: Question,
) -> Reply:
    """Answer a question about the state."""
    match question:
        case ListTopics():
            return _topics(shard, storage, question)
        case ShowTopic():
            return _topic(shard, waiting, storage, question)
        case ListSubscriptions():
            return _subscriptions(shard, waiting, question)
        case ListClients():
            return _clients(shard, question)
        case StatusRequest():
            facts: dict[str, str | int | float | bool] = {
                "topics": len(shard.topics),
                "subscriptions": sum(len(topics) for topics in shard.by_client.values()),
                "patterns": shard.patterns.count,
                "clients": len(shard.clients.entries),
                "waiting": len(waiting),
                "last_serial": shard.serial,
                "generation": shard.generation,
                "stages": len(shard.stages),
                "stage_bytes": shard.stages.open_bytes,
                "owners": len(shard.owners.entries),
                "idempotency_keys": sum(map(len, shard.keys.values())),
            }
            told: Facts = storage.status() if storage else {}
            return StatusReport({**facts, **asdict(counters), **told})


def no_such_topic(shard: Shard, name: str) -> RefusedReply:
    """The refusal that shows what there is."""
    known = shard.names[:5]
    there = ", ".join(known) + (", …" if len(shard.by_name) > 5 else "")
    return RefusedReply(
        "no_such_topic", f"unknown topic {name!r}; this server has: {there or 'none'}"
    )


def _topics(shard: Shard, storage: StorageFacts | None, question: ListTopics) -> TopicList:
    names = shard.names
    first = bisect_right(names, question.after) if question.after else 0
    limit = min(max(1, question.limit), PAGE_MAX)
    page = names[first : first + limit]
    more = first + limit < len(names)
    found = tuple(_info(shard, storage, shard.by_name[name]) for name in page)
    return TopicList(found, more, shard.deleted)


def _clients(shard: Shard, question: ListClients) -> ClientList:
    limit = min(max(1, question.limit), PAGE_MAX)
    names = (each for each in shard.clients.entries if each > question.after)
    page = heapq.nsmallest(limit + 1, names)
    found = tuple(
        ClientInfo(each, shard.clients.granted(each), len(shard.by_client.get(each, ())))
        for each in page[:limit]
    )
    return ClientList(found, more=len(page) > limit)


def _topic(
    shard: Shard, waiting: LongPolls, storage: StorageFacts | None, question: ShowTopic
) -> Reply:
    topic = shard.by_name.get(question.topic)
    if topic is None:
        return no_such_topic(shard, question.topic)
    shown = list(topic.subscriptions.values())[:SHOWN_MAX]
    subscriptions = tuple(_subscription(shard, topic, each, waiting) for each in shown)
    return TopicShown(_info(shard, storage, topic), topic.why_kept(), subscriptions)


def _subscriptions(shard: Shard, waiting: LongPolls, question: ListSubscriptions) -> Reply:
    if question.topic and question.topic not in shard.by_name and not is_pattern(question.topic):
        return no_such_topic(shard, question.topic)
    limit = min(max(1, question.limit), PAGE_MAX)
    infos = heapq.merge(
        (_subscription(shard, topic, each, waiting) for topic, each in _matching(shard, question)),
        _patterns(shard, waiting, question),
        key=lambda info: (info.topic, info.client),
    )
    found = list(islice(infos, limit + 1))
    return SubscriptionList(tuple(found[:limit]), more=len(found) > limit)


def _patterns(
    shard: Shard, waiting: LongPolls, question: ListSubscriptions
) -> Iterator[SubscriptionInfo]:
    """As `_matching`, the patterns."""
    client, patterns = ClientId(question.client), shard.patterns
    names = sorted(patterns.of(client)) if client else patterns.names
    if question.topic:
        names = [question.topic]
    for name in names[bisect_left(names, question.after[0]) :]:
        found = patterns.clients(name)
        for each in sorted(found) if not client else [client]:
            if each in found and (name, each) > question.after:
                is_waiting = (each, "") in waiting
                yield SubscriptionInfo(
                    name,
                    each,
                    found[each],
                    Offset(0),
                    Offset(0),
                    is_waiting,
                    pattern=True,
                    ends=shard.leases.ends(each),
                    about=shard.leases.about(each),
                )


def _matching(shard: Shard, question: ListSubscriptions) -> Iterator[tuple[Topic, Subscription]]:
    """In order of topic and client, from after the place named; looks no further than asked."""
    client = ClientId(question.client)
    if question.topic:
        names = [question.topic] if question.topic in shard.by_name else []
    elif client:
        names = sorted(topic.name for topic in shard.by_client.get(client, {}).values())
    else:
        names = shard.names
    topic_after, client_after = question.after
    for name in names[bisect_left(names, topic_after) :]:
        topic = shard.by_name[name]
        clients = [client] if client else sorted(topic.subscriptions)
        for each in clients:
            passed = name == topic_after and each <= client_after
            if each in topic.subscriptions and not passed:
                yield topic, topic.subscriptions[each]


def _info(shard: Shard, storage: StorageFacts | None, topic: Topic) -> TopicInfo:
    return TopicInfo(
        name=topic.name,
        topic_id=topic.id,
        low=topic.low,
        end=topic.visible,
        subscriptions=len(topic.subscriptions),
        producers=len(topic.producers),
        retention=topic.retention,
        created=topic.created,
        stored_bytes=storage.stored_bytes(topic.id) if storage else 0,
        idempotency_keys=len(shard.keys.get(topic.id, ())),
        configured=topic.configured,
        lost=topic.lost.above(topic.low)[:HOLES_SHOWN],
    )


def _subscription(
    shard: Shard, topic: Topic, each: Subscription, waiting: LongPolls
) -> SubscriptionInfo:
    is_waiting = (each.client, topic.name) in waiting or (each.client, "") in waiting
    return SubscriptionInfo(
        topic.name,
        each.client,
        each.id,
        each.cursor,
        topic.visible,
        is_waiting,
        ends=shard.leases.ends(each.client),
        about=shard.leases.about(each.client),
        began=each.began,
    )
