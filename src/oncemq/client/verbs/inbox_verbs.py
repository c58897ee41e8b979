"""Consuming into the user's own database: the verbs, written once for both shells.

They yield tickets to wait for, as the other verbs do, and steps for the database to carry out.
Laws: the transaction opens only when there is something to hand out or the wait is over; after
the commit the messages count as settled whatever happens next: the database's cursor wins when
anything is found to stand elsewhere.
"""

import contextlib
import logging
from collections.abc import Generator, Sequence
from typing import Any, TypeVar

from oncemq.client.engine.engine import Engine
from oncemq.client.lost_history import goes_on_at
from oncemq.client.ticket import Awaited
from oncemq.client.values import Message
from oncemq.client.verbs import messages as verbs
from oncemq.databases import inbox as table
from oncemq.databases.connections import Connection, make_ready
from oncemq.databases.inbox import SubscriptionPlace
from oncemq.databases.statements import Bound, Step
from oncemq.errors import (
    DatabaseRefused,
    Fenced,
    HistoryLost,
    InboxGap,
    InvalidRequest,
    NoSuchTopic,
)
from oncemq.protocol.client_replies import LostCursor
from oncemq.protocol.client_requests import Compare
from oncemq.protocol.names import Micros, Offset, SubscriptionId
from oncemq.protocol.replies import NO_OFFSET, Compared
from oncemq.protocol.structs import Settled
from oncemq.session.inbox_rule import ConsumedSpan, Inbox, Mark
from oncemq.session.prefetched import is_single

T = TypeVar("T")
InboxVerb = Generator[Awaited | Step, Any, T]

SURVEYS_MAX = 20  # in one block: each follows a change by someone else
TAKES_MAX = 20  # likewise
log = logging.getLogger("oncemq.client")


def open_block(
    engine: Engine, inbox: Inbox, connection: Connection, topic: str, limit: int, wait_ms: int
) -> InboxVerb[list[Message]]:
    """The next messages that the database lacks, with a transaction open on it."""
    engine.check_open()  # before the connection is touched, which may be the parent's
    if not engine.state.lasting:
        raise InvalidRequest(
            "an inbox belongs to a subscription that outlives its process, and an anonymous "
            "client has none: give the client an id"
        )
    yield from make_ready(connection)
    deadline = engine.now() + wait_ms * 1000
    for _ in range(SURVEYS_MAX):
        yield from _agree(engine, inbox, connection, topic)
        messages = yield from _again(engine, inbox, topic, limit)
        if not messages:
            left = max(0, (deadline - engine.now()) // 1000)
            messages = yield from verbs.take(engine, topic, limit, left)
        misfits = inbox.misfits(spans_of(messages))
        if not misfits and (not messages or inbox.is_of(engine.generation)):
            yield Bound.BEGIN
            return messages
        # Subscribed again since, taken past the inbox by a plain get, or the server went back in
        # time while it was waited for: look where all stand.
        engine.subscriber.prefetched.put_back(topic)
        inbox.forget(misfits)
    raise DatabaseRefused(
        f"{topic or 'a topic'} is taken from beside this inbox all the time; use one or the other"
    )


def close_block(engine: Engine, inbox: Inbox, messages: list[Message]) -> InboxVerb[None]:
    """Effect and cursor in one commit; then the client and the server learn of it."""
    engine.check_open()  # a block that was begun before a fork is committed by the parent alone
    spans = spans_of(messages)
    moves = inbox.moves(spans, _moments_of(messages, spans))
    topics = [move.topic for move in moves]
    inbox.doubt(topics)
    try:
        yield from table.commit(engine.client, moves)
    except Fenced as fenced:
        engine.fail(fenced)
        raise
    inbox.committed(moves)
    inbox.is_sure(topics)
    _settle(engine, inbox, messages)


def spans_of(messages: Sequence[Message]) -> list[ConsumedSpan]:
    """The messages as spans, one a topic: offsets are dense within each."""
    if not messages:
        return []
    first, last = messages[0], messages[-1]
    if first.topic == last.topic and last.offset - first.offset == len(messages) - 1:
        identity = _subscription(first)
        if identity == _subscription(last):
            return [
                ConsumedSpan(first.topic, identity, Offset(first.offset), Offset(last.offset + 1))
            ]
    spans: dict[tuple[str, SubscriptionId], ConsumedSpan] = {}
    for message in messages:
        key = (message.topic, _subscription(message))
        begun = spans[key].first if key in spans else Offset(message.offset)
        spans[key] = ConsumedSpan(*key, begun, Offset(message.offset + 1))
    return list(spans.values())


def _moments_of(messages: Sequence[Message], spans: Sequence[ConsumedSpan]) -> dict[str, Micros]:
    """When the server stored the last message of each topic."""
    last = {message.topic: message for message in (messages if len(spans) > 1 else messages[-1:])}
    return {topic: _moment(message) for topic, message in last.items()}


def _moment(message: Message) -> Micros:
    run, _ = message._origin.run(message.offset)  # pyright: ignore[reportPrivateUsage]
    return run.timestamp


def _subscription(message: Message) -> SubscriptionId:
    return message._origin.head.subscription_id  # pyright: ignore[reportPrivateUsage]


def _settle(engine: Engine, inbox: Inbox, messages: list[Message]) -> None:
    """The effect is committed: nothing that goes wrong here may say otherwise."""
    ended = {
        span.topic  # or read again: there is nothing to settle
        for span in spans_of(messages)
        if not engine.subscriber.cursors.is_current(span.topic, span.subscription_id)
    }
    if ended:
        messages = [message for message in messages if message.topic not in ended]
    try:
        engine.settle(messages, synced=False)  # the database has synced it
    except Fenced as fenced:
        engine.fail(fenced)  # the next call says it
    except Exception as error:
        inbox.doubt([message.topic for message in messages])
        log.warning("state not written, the database knows client=%s: %s", engine.client, error)


def _agree(engine: Engine, inbox: Inbox, connection: Connection, topic: str) -> InboxVerb[None]:
    """See that the client knows where the database stands, and stands no earlier itself."""
    inbox.began(engine.generation)
    if doubted := inbox.doubted(topic):
        try:
            cursors = yield from table.look(engine.client, doubted)
        except Fenced as fenced:
            engine.fail(fenced)
            raise
        for name, cursor in cursors.items():
            inbox.stands(name, cursor)
            _catch_up(engine, name, inbox.marks[name])
        inbox.is_sure(doubted)
    if inbox.knows(topic):
        return
    places = yield from _survey(engine, topic)
    unknown = sorted(place for place in places if place.topic not in inbox.marks)
    if unknown:
        notes = yield from table.see_to_table(connection)
        for name, mark in (yield from _take_over(engine, unknown, notes=notes)):
            inbox.took(name, mark)
            _catch_up(engine, name, mark)
    if not is_single(topic):
        inbox.surveyed()


def _take_over(
    engine: Engine, places: list[SubscriptionPlace], *, notes: bool
) -> InboxVerb[list[tuple[str, Mark]]]:
    """Raise the fences, but not over the head of a newer process.

    Whoever wrote a row had said hello before. So the server is asked whether we are the current
    one after the rows were read; and if they change before we take them, all begins anew.
    """
    for _ in range(TAKES_MAX):
        generation = engine.generation  # under which they are compared
        rows = yield from table.read(engine.client, places, notes=notes)
        yield from verbs.confirm(engine)
        yield from _compare(engine, places, rows)
        with contextlib.suppress(table.RowOvertaken):
            take = table.take(engine.client, places, rows, generation, notes=notes)
            return (yield from take)
    raise DatabaseRefused(
        f"other processes of client {engine.client!r} change its rows in {table.TABLE} all the "
        "time; let one of them run"
    )


def _compare(
    engine: Engine, places: list[SubscriptionPlace], rows: list[table.InboxRow | None]
) -> InboxVerb[None]:
    """Whether the server has all that the database knows; HistoryLost when it went back."""
    for place, row in zip(places, rows, strict=True):
        if row is None:
            continue
        if row.cursor > place.reached or _is_of_another(engine, row):
            known = Settled(place.topic, place.subscription_id, row.cursor)
            question = Compare(engine.client, table.generation_of(row), cursors=(known,))
            compared: Compared = yield from verbs.ask(engine, lambda _, it=question: it)
            for lost in compared.cursors:
                raise HistoryLost(_row_lost(engine.client, place, lost, row))
        if (yield from _has_another(engine, place, row)):
            lost = LostCursor(place.topic, row.cursor, NO_OFFSET, place.served, row.cursor)
            raise HistoryLost(_row_lost(engine.client, place, lost, row))


def _has_another(engine: Engine, place: SubscriptionPlace, row: table.InboxRow) -> InboxVerb[bool]:
    """Whether the server has another message where the database says that it took one.

    An older copy of the server's data, put back by hand, keeps its generation. What the database
    has and the server does not know to be settled is still there, so it can be compared.
    """
    note = row.note
    if note is None or row.cursor <= place.served:
        return False
    try:
        found = yield from verbs.read(engine, place.topic, note.offset, 1)
    except InvalidRequest as refused:
        if refused.code != "offset_out_of_range":
            raise
        return False  # nothing that could be compared
    there = [each for each in found if each.offset == note.offset]  # or it is in a hole
    return any(_moment(each) != note.moment for each in there)


def _is_of_another(engine: Engine, row: table.InboxRow) -> bool:
    return table.generation_of(row) != engine.generation


def _row_lost(client: str, place: SubscriptionPlace, lost: LostCursor, row: table.InboxRow) -> str:
    """In words, with the command that moves the row: run again, or late, it changes nothing.

    The same offset may be reached again, by other messages; the fence tells that.
    """
    then = goes_on_at(lost)
    known = f"the database stands at {place.topic}/{client}@{lost.known}, and the server"
    if lost.agreed == NO_OFFSET:
        what = (
            f"{known} goes on from another copy of its data: nobody can say which of the messages "
            "that took effect here it has. Their effects stay in the database. To go on from where "
            f"the server has the subscription, @{then or 0}, so that messages may take effect "
            "again and none is left out:"
        )
    else:
        what = (
            f"{known} went back in time: it has the messages that took effect here only up to "
            f"@{then or 0}. Their effects stay in the database; what the server has since under "
            "the same offsets are other messages. To go on with those:"
        )
    return (
        f"{what}\nUPDATE {table.TABLE} SET cursor = {then or 0} WHERE "
        f"client = '{table.quoted(client)}' AND topic = '{table.quoted(place.topic)}' "
        f"AND subscription_id = {place.subscription_id} AND cursor = {lost.known} "
        f"AND fence = {row.fence};"
    )


def _survey(engine: Engine, topic: str) -> InboxVerb[list[SubscriptionPlace]]:
    """The subscriptions asked for, and how far this client or its server has come on each."""
    try:
        single = topic if is_single(topic) else None
        found = yield from verbs.subscriptions(engine, single, engine.client)
    except NoSuchTopic:
        return []  # the get will say that there is no subscription
    settled = engine.state.cursors()
    places: list[SubscriptionPlace] = []
    for each in found:
        if each.pattern:
            continue  # the topics it stands for have subscriptions of their own
        reached = engine.subscriber.cursors.reached(each.topic, each.subscription_id)
        # The server knows it too: the journal may have been lost together with the database.
        has_settled = NO_OFFSET < each.began < each.cursor or (
            each.topic in settled and settled[each.topic][0] == each.subscription_id
        )
        at = Offset(max(each.cursor, reached)), has_settled, each.cursor, each.began
        places.append(SubscriptionPlace(each.topic, each.subscription_id, *at))
    return places


def _catch_up(engine: Engine, topic: str, mark: Mark) -> None:
    """What the database has is settled: here, and at the server with the next request."""
    identity, cursor = mark.subscription_id, mark.cursor
    if engine.subscriber.cursors.reached(topic, identity) >= cursor:
        return
    journal, client_epoch = engine.state.journal, engine.client_epoch
    if journal is not None and client_epoch is not None:  # else it says hello again just now
        try:
            journal.settle(client_epoch, [(topic, identity, cursor)], synced=False)
        except Fenced as fenced:
            engine.fail(fenced)
            raise
    engine.subscriber.recall({topic: (identity, cursor)})


def _again(engine: Engine, inbox: Inbox, topic: str, limit: int) -> InboxVerb[list[Message]]:
    """Messages that the client has passed and the database lacks, while they are kept."""
    found = inbox.behind(topic)
    if found is None:
        return []
    name, mark = found
    log.warning(
        "database behind client=%s topic=%s cursor=%d reached=%d: reading again",
        *(engine.client, name, mark.cursor, mark.reached),
    )
    messages: list[Message] = []
    refusal: InvalidRequest | None = None
    try:
        start = engine.losses.over(name, mark.cursor)
        count = min(limit, mark.reached - start)
        messages = yield from verbs.read(engine, name, start, count)
    except NoSuchTopic:
        inbox.forget([name])
        return []
    except InvalidRequest as refused:
        if refused.code != "offset_out_of_range":
            raise
        refusal = refused
    # What was read is by name. A subscription ends with its topic, and one that is there now was
    # there then: so these are messages of its topic, and not of one that was made anew.
    if not (yield from _is_there(engine, name, mark.subscription_id)):
        inbox.forget([name])
        return []
    if refusal is None:
        return messages
    inbox.forget([name])
    low = (yield from verbs.topic(engine, name)).topic.low
    if low <= mark.cursor:
        raise refusal  # it is the server that lacks messages: restored, perhaps
    raise InboxGap(_gap(engine.client, name, mark, low))


def _is_there(engine: Engine, topic: str, subscription_id: SubscriptionId) -> InboxVerb[bool]:
    places = yield from _survey(engine, topic)
    return any(place.subscription_id == subscription_id for place in places)


def _gap(client: str, topic: str, mark: Mark, low: Offset) -> str:
    kept = min(low, mark.reached)
    return (
        f"the database stands at {topic}/{client}@{mark.cursor}, the subscription at "
        f"@{mark.reached}, and the server keeps messages from @{low} on: the database was "
        "restored from a backup, or messages were taken past it, and some of them are gone. To "
        f"go on without them:\nUPDATE {table.TABLE} SET cursor = {kept} WHERE "
        f"client = '{table.quoted(client)}' AND topic = '{table.quoted(topic)}' "
        f"AND subscription_id = {mark.subscription_id} AND cursor = {mark.cursor};"
    )
