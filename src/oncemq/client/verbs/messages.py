"""The verbs, written once for both shells: each yields the tickets it must wait for.

A verb that is closed before its end (a timeout, an interrupt) takes its request back; what it
recorded stays recorded.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from oncemq.client.checks import check_limit, check_offset, check_retention, check_text
from oncemq.client.engine.engine import Engine
from oncemq.client.ticket import Ticket, Verb
from oncemq.client.values import Message, Receipts, messages_of
from oncemq.errors import Fenced, InvalidRequest, Refused, StorageUnsure
from oncemq.protocol.names import NO_SUBSCRIPTION, Epoch, Offset, SubscriptionId, TopicId
from oncemq.protocol.patterns import is_pattern, matches
from oncemq.protocol.records import Retention
from oncemq.protocol.replies import (
    Done,
    Reply,
    StatusReport,
    Subscribed,
    SubscriptionInfo,
    SubscriptionList,
    TopicInfo,
    TopicList,
    TopicShown,
    Unsubscribed,
)
from oncemq.protocol.requests import (
    START_EARLIEST,
    START_NEW,
    START_OFFSET,
    START_TIME,
    ConfigureTopic,
    CreateTopic,
    DeleteTopic,
    ListSubscriptions,
    ListTopics,
    Read,
    Request,
    Settle,
    ShowTopic,
    Start,
    StatusRequest,
    Subscribe,
    Unsubscribe,
)

Where = str | int | datetime

PAGE = 1_000
WAIT_MS = 20_000  # one long poll; a longer wait is several


def ask(engine: Engine, make: Callable[[Epoch], Request], *, patience_ms: int = 0) -> Verb[Any]:
    """One request; its reply, or the error it was refused with."""
    if engine.failure is not None:
        raise engine.failure.with_traceback(None)
    ticket: Ticket[Reply] = Ticket()
    token = engine.ask(make, ticket=ticket, patience_ms=patience_ms)
    try:
        yield ticket
    finally:
        engine.drop(token)
    return ticket.result()


def start_of(where: Where) -> Start:
    """Where a subscription begins, as the wire says it."""
    if isinstance(where, datetime):
        return Start(START_TIME, int(where.timestamp() * 1_000_000))
    if isinstance(where, int):
        check_offset(where)
        return Start(START_OFFSET, where)
    if where in (START_NEW, START_EARLIEST):
        return Start(where)
    raise InvalidRequest(
        f"a subscription starts at 'new', 'earliest', an offset or a time, not {where!r}"
    )


def confirm(engine: Engine) -> Verb[None]:
    """Ask whether this client is still the current one; Fenced when it is not."""
    yield from ask(engine, lambda client_epoch: Settle(engine.client, client_epoch, ()))


def subscribe(engine: Engine, topic: str, where: Where) -> Verb[bool]:
    """Subscribe; False when it already was."""
    check_text(topic, "the name of a topic")
    start = start_of(where)
    while True:
        number = engine.subscriber.next_change()
        try:
            reply: Subscribed = yield from ask(
                engine,
                lambda client_epoch, n=number: Subscribe(
                    engine.client, client_epoch, topic, start, n, engine.context.leader_epoch
                ),
            )
            break
        except Refused as error:  # it was carried out, and undone by a deletion of the topic
            if error.code != "deleted_since":
                raise
    if reply.made:
        engine.forget_fetches(topic)
    if is_pattern(topic):
        engine.subscriber.patterns[topic] = reply.subscription_id
    else:
        engine.subscriber.subscribed(topic, reply.subscription_id, reply.cursor)
    return reply.made


def unsubscribe(engine: Engine, topic: str) -> Verb[bool]:
    """Unsubscribe; False when it was not."""
    check_text(topic, "the name of a topic")
    number = engine.subscriber.next_change()
    reply: Unsubscribed = yield from ask(
        engine,
        lambda client_epoch: Unsubscribe(
            engine.client, client_epoch, topic, number, engine.context.leader_epoch
        ),
    )
    ended = _ended(engine, topic, reply)
    if is_pattern(topic) and not reply.ended:
        ended += yield from _gone(engine, topic)
    for name, _ in ended:
        engine.forget_fetches(name)
        engine.subscriber.forget(name)
    if engine.state.journal is not None and engine.client_epoch is not None:
        try:
            engine.state.journal.forget(engine.client_epoch, ended)
        except StorageUnsure as error:
            engine.fail(error)
            raise
    engine.subscriber.patterns.pop(topic, None)
    return reply.ended


def _ended(engine: Engine, topic: str, reply: Unsubscribed) -> list[tuple[str, SubscriptionId]]:
    """What has ended: as the server says it, or (its first answer was lost) as this client knows.

    What ended with a pattern is not noted by itself: who hears of the pattern hears of it.
    """
    known = engine.subscriber
    mine = known.patterns.get(topic) if is_pattern(topic) else known.cursors.subscription(topic)
    own, *made = reply.subscription_ids or (NO_SUBSCRIPTION,)
    own = own or mine or NO_SUBSCRIPTION
    theirs = made if made and own == NO_SUBSCRIPTION else [NO_SUBSCRIPTION] * len(reply.topics)
    return [(topic, own), *zip(reply.topics, theirs, strict=True)]


def _gone(engine: Engine, pattern: str) -> Verb[list[tuple[str, SubscriptionId]]]:
    """What of a pattern this client takes for subscribed and is not: the answer was lost."""
    found = yield from subscriptions(engine, None, engine.client)
    there = {(each.topic, each.subscription_id) for each in found}
    known = engine.subscriber.cursors
    mine = [
        (name, known.subscription(name) or NO_SUBSCRIPTION)
        for name in known.topics
        if matches(pattern, name)
    ]
    return [each for each in mine if each not in there]


def unsubscribe_all(engine: Engine) -> Verb[int]:
    """Unsubscribe from everything; how many subscriptions ended."""
    ended = 0
    found = yield from subscriptions(engine, None, engine.client)
    for each in sorted(found, key=lambda info: not info.pattern):  # first: it ends what it made
        ended += yield from unsubscribe(engine, each.topic)
    return ended


def take(
    engine: Engine, topic: str, limit: int, wait_ms: int, *, inside: bool = False
) -> Verb[list[Message]]:
    """The next messages, not yet settled; none when none came in time.

    `inside`: for the transaction that is open.
    """
    if not inside:
        yield from engine.transactions.certain()
    check_limit(limit)
    check_text(topic, "the name of a topic")
    deadline = engine.now() + wait_ms * 1000
    prefetched = engine.subscriber.prefetched
    while True:
        if engine.failure is not None:
            raise engine.failure.with_traceback(None)
        messages = prefetched.take(topic, limit)
        if messages:
            if prefetched.hungry(topic):
                # The next ones come while these are worked on.
                engine.fetch(topic, limit, 0)
            return messages
        left = max(0, (deadline - engine.now()) // 1000)
        asked = min(left, WAIT_MS)
        generation = engine.generation
        ticket = engine.fetch(topic, limit, asked)
        yield ticket
        if not ticket.result() or engine.generation != generation:
            continue  # it was given up, or the server went back: what was on its way is void
        nothing = prefetched.drained(topic) and not prefetched.feed(topic).more
        if nothing and engine.now() >= deadline:
            return []


def settle(engine: Engine, messages: list[Message]) -> None:
    """Record that these took effect; a fenced client learns it here at the latest."""
    # A block begun before a fork is settled by the parent alone; before a close, not at all.
    engine.check_open()
    if not messages:
        return
    try:
        engine.settle(messages)
    except BaseException as error:
        # They were not handed out: they come again (or it fails).
        engine.subscriber.prefetched.put_back_all()
        if isinstance(error, Fenced | StorageUnsure):
            engine.fail(error)
        raise


def settle_one(engine: Engine, message: Message) -> None:
    """As `settle`, for each message of a listener; without a disk that is a step or two."""
    if engine.state.journal is None and engine.context.failure is None:
        engine.subscriber.settle_one(message)
    else:
        settle(engine, [message])


def read(engine: Engine, topic: str, offset: int, limit: int) -> Verb[list[Message]]:
    """Stored messages by offset, without a subscription."""
    check_text(topic, "the name of a topic")
    check_offset(offset)
    check_limit(limit)
    ticket: Ticket[list[Message]] = Ticket()
    token = engine.ask_messages(Read(topic, Offset(offset), limit, 4 << 20), messages_of, ticket)
    try:
        yield ticket
    finally:
        engine.drop(token)
    return ticket.result()


def receipts(engine: Engine, ticket: Ticket[Receipts]) -> Verb[Receipts]:
    """Wait for a put."""
    yield ticket
    return ticket.result()


def topics(engine: Engine) -> Verb[list[TopicInfo]]:
    """Every topic, by name."""
    found: list[TopicInfo] = []
    more = True
    while more:
        after = found[-1].name if found else ""
        reply: TopicList = yield from ask(engine, lambda _, a=after: ListTopics(a, PAGE))
        found += reply.topics
        more = reply.more
    return found


def topic(engine: Engine, name: str) -> Verb[TopicShown]:
    """One topic, and why what it holds is kept."""
    check_text(name, "the name of a topic")
    return (yield from ask(engine, lambda _: ShowTopic(name)))


def create_topic(engine: Engine, name: str, retention: Retention) -> Verb[bool]:
    """Make a topic; False when it was there."""
    check_text(name, "the name of a topic")
    check_retention(retention)
    while True:
        # Whatever is deleted from here on makes copies of the request void.
        seen: TopicList = yield from ask(engine, lambda _: ListTopics(name, 1))
        create = CreateTopic(name, retention, seen.deleted)
        try:
            reply: Done = yield from ask(engine, lambda _, it=create: it)
        except Refused as error:
            if error.code != "outdated":
                raise
        else:
            return reply.changed


def configure_topic(engine: Engine, name: str, retention: Retention) -> Verb[bool]:
    """Change what a topic keeps; False when it was so. Refused when it was changed meanwhile."""
    check_retention(retention)
    shown = (yield from topic(engine, name)).topic
    configure = ConfigureTopic(name, retention, shown.topic_id, shown.configured)
    reply: Done = yield from ask(engine, lambda _: configure)
    return reply.changed


def delete_topic(engine: Engine, name: str) -> Verb[bool]:
    """Delete the topic that has this name now, with everything in it; True once it is gone."""
    shown = yield from topic(engine, name)
    return (yield from delete_this_topic(engine, name, shown.topic.topic_id))


def delete_this_topic(engine: Engine, name: str, topic_id: TopicId) -> Verb[bool]:
    """As `delete_topic`, that very one: a copy that comes late spares what was made since."""
    yield from ask(engine, lambda _: DeleteTopic(name, topic_id))
    return True  # by this, by a copy of it that came first, or by somebody else


def subscriptions(
    engine: Engine, name: str | None, client: str | None
) -> Verb[list[SubscriptionInfo]]:
    """Subscriptions, by topic and client."""
    check_text(name or "", "the name of a topic")
    check_text(client or "", "the id of a client")
    found: list[SubscriptionInfo] = []
    more = True
    while more:
        after = (found[-1].topic, str(found[-1].client)) if found else ("", "")
        reply: SubscriptionList = yield from ask(
            engine, lambda _, a=after: ListSubscriptions(name or "", client or "", a, PAGE)
        )
        found += reply.subscriptions
        more = reply.more
    return found


def status(engine: Engine) -> Verb[dict[str, str | int | float | bool]]:
    """The server's own account of itself."""
    reply: StatusReport = yield from ask(engine, lambda _: StatusRequest())
    return reply.facts


def leave(engine: Engine) -> Verb[None]:
    """Before going: tell what is settled; a guest also ends its subscriptions."""
    if engine.listening.goodbye is not None:
        yield engine.listening.goodbye
    if engine.state.lasting:
        while (ticket := engine.telling.tell()) is not None:
            yield ticket
            if ticket.error is not None:
                return  # the next start tells it
        return
    engine.context.leaving = True
    for name in (*engine.subscriber.patterns, *engine.subscriber.cursors.topics):
        yield from unsubscribe(engine, name)
