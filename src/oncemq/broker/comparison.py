"""What a client knows, compared with what the server has: so a server that went back in time shows.

The log's generation grows when the log goes on from an earlier state (loss was accepted, a backup
restored). Each topic remembers where it ended then. What a client saw beyond that end, while it
knew an older generation, is of a future that was lost: the same offsets are other messages now.
A client that knows a generation which never led to this one is of another branch (one backup was
restored twice, say): where that parted from this one, this server cannot know, so it believes
nothing of it, and its own cursors stand in.

Generations do not tell all branches apart: a copy that is put back by hand keeps its own, and a
state that was moved to an older generation knows one that led to this one. Grants do: an epoch is
granted to a nonce that no other start has. A state whose newest grant is not this server's was let
in by another branch since. Where the server's newest grant is not in the state's past either, the
server has let in somebody that this state does not know of: then it is an old copy of a state.

Laws: a client that knows no more than the server goes on by itself; one that knows more is told
so, each topic by name, and nothing is moved for it. Nothing here changes the state.
"""

from collections.abc import Iterator

from oncemq.broker.state.producers import Recent
from oncemq.broker.state.shard import Shard
from oncemq.broker.state.topic import Subscription, Topic
from oncemq.protocol.client_replies import LostCommits, LostCursor, LostNumbers, ThereAgain
from oncemq.protocol.client_requests import Compare, KnownNumbers
from oncemq.protocol.generations import in_words
from oncemq.protocol.names import Epoch, Offset, Sequence
from oncemq.protocol.replies import NO_OFFSET, Compared, RefusedReply
from oncemq.protocol.requests import Hello
from oncemq.protocol.structs import Settled


def compare(shard: Shard, question: Compare) -> Compared:
    """What of all that a client knows this server does not have."""
    parted = _has_parted(shard, question)
    lost_cursor = _parted_cursor if parted else _lost_cursor
    cursors = (lost_cursor(shard, question, each) for each in question.cursors)
    numbers = (_lost_numbers(shard, each, parted=parted) for each in question.numbers)
    return Compared(
        shard.log_id,
        shard.generation,
        shard.clients.granted(question.client),
        tuple(each for each in cursors if each is not None),
        tuple(each for each in numbers if each is not None),
        tuple(each.topic_id for each in question.numbers if _was_deleted(shard, each)),
        tuple(
            LostCommits(each.owner, each.acknowledged, last)
            for each in question.commits
            if (last := shard.owners.last_number(each.owner)) < each.acknowledged
        ),
        parted,
        tuple(_there_again(shard, question, parted=parted)),
        stale=not parted and _is_old_copy(shard, question),
    )


def refusal(shard: Shard, hello: Hello) -> RefusedReply | None:
    """Why a client is not let in that knows another log, or more than this one ever granted."""
    if hello.log_id and shard.log_id and hello.log_id != shard.log_id:
        return _history_lost(
            f"client {hello.client!r} knows another log ({hello.log_id.hex()[:8]}) than this "
            f"server's ({shard.log_id.hex()[:8]}): the data directory was emptied or replaced, or "
            "this is another server"
        )
    if not shard.generations.has(hello.generation):
        return _history_lost(
            f"client {hello.client!r} knows generation {in_words(hello.generation)} of this "
            f"server's log, which is none of those that led to {in_words(shard.generation)}, where "
            "it is now: another copy of its data was put back or restored"
        )
    granted = shard.clients.granted(hello.client)
    if hello.last_epoch > granted and not shard.clients.is_repeat(hello):
        return _history_lost(
            f"client {hello.client!r} was granted epoch {hello.last_epoch}, and this server has "
            f"granted it {granted or 'none'}: an older copy of its data was put back, or the id "
            "was forgotten"
        )
    if hello.last_epoch == granted and _is_anothers(shard, hello):
        return _history_lost(
            f"client {hello.client!r} was granted epoch {granted} by another copy of this server's "
            "data than this one: copies were put back by hand"
        )
    if not hello.compares and hello.last_epoch and shard.clients.must_compare(hello.client):
        return _history_lost(
            f"this server's log went back in time since client {hello.client!r} was let in, and "
            "the version of OnceMQ that it runs on cannot tell what it knows of that: upgrade the "
            "client"
        )
    return None


def _history_lost(detail: str) -> RefusedReply:
    return RefusedReply("history_lost", detail)


def _has_parted(shard: Shard, question: Compare) -> bool:
    """Whether what is asked about is of another branch of history than this log's."""
    if not shard.generations.has(question.generation):
        return True
    entry = shard.clients.entries.get(question.client)
    granted = entry.client_epoch if entry else Epoch(0)
    if question.last_epoch > granted:
        is_own = question.generation == shard.generation
        return is_own or _went_on_before(shard, question)
    if question.last_epoch == granted:
        return _is_anothers(shard, question)
    was_here = entry is not None and any(each.nonce == entry.nonce for each in question.grants)
    return was_here and bool(question.last_epoch)


def _is_old_copy(shard: Shard, question: Compare) -> bool:
    """Whether this server has let in a start since that is not one of this state's.

    A state that has no starts in mind is from a version that kept none: nobody can say.
    """
    entry = shard.clients.entries.get(question.client)
    if entry is None or not question.grants or not 0 < question.last_epoch < entry.client_epoch:
        return False
    return entry.nonce not in question.claims


def _is_anothers(shard: Shard, known: Hello | Compare) -> bool:
    """Whether the epoch that this server granted last is another start's than the client knows."""
    entry = shard.clients.entries.get(known.client)
    return entry is not None and known.last_nonce not in (0, entry.nonce)


def _went_on_before(shard: Shard, question: Compare) -> bool:
    """Whether the state that an own generation began with is no state that the client has seen.

    A copy that was put back by hand, used, and then restored or mended: where its topics ended
    says nothing to whom it never let in. A start that this log lacks was later than all that a
    backup has of the log that granted it. What the log has that is later was stored elsewhere.
    """
    granted = shard.clients.granted(question.client)
    lacking = [each.moment for each in question.grants if each.client_epoch > granted]
    first = min(filter(None, lacking), default=None)
    return first is not None and shard.generations.ended_after(question.generation) > first


def _lost_cursor(shard: Shard, question: Compare, known: Settled) -> LostCursor | None:
    found = _subscribed(shard, question, known)
    if found is None:
        return _lost_subscription(shard, known)
    topic, subscription = found
    agreed = topic.agreed(question.generation)
    if known.cursor <= agreed:
        return None
    is_sure = question.generation < shard.generation
    sure = agreed if is_sure else NO_OFFSET
    return LostCursor(known.topic, known.cursor, sure, subscription.cursor, topic.end)


def _parted_cursor(shard: Shard, question: Compare, known: Settled) -> LostCursor | None:
    """Where the server has it, all before was settled in this branch: it goes on there alone."""
    found = _subscribed(shard, question, known)
    if found is None:
        return _lost_subscription(shard, known)
    topic, subscription = found
    if known.cursor == subscription.cursor:
        return None
    return LostCursor(known.topic, known.cursor, NO_OFFSET, subscription.cursor, topic.end)


def _there_again(shard: Shard, question: Compare, *, parted: bool) -> Iterator[ThereAgain]:
    """Subscriptions and patterns that ended in the future that was lost.

    They give what was taken before, or hold what nobody wants; patterns make new ones.
    """
    is_sure = not parted and question.generation < shard.generation
    for known in question.ended:
        found = _subscribed(shard, question, known)
        if found is not None:
            topic, subscription = found
            agreed = topic.agreed(question.generation) if is_sure else NO_OFFSET
            yield ThereAgain(
                known.topic, subscription.id, known.cursor, agreed, subscription.cursor
            )
        elif shard.patterns.of(question.client).get(known.topic) == known.subscription_id:
            nowhere = NO_OFFSET, NO_OFFSET, NO_OFFSET  # it has no cursor; what it made has
            yield ThereAgain(known.topic, known.subscription_id, *nowhere)


def _subscribed(
    shard: Shard, question: Compare, known: Settled
) -> tuple[Topic, Subscription] | None:
    """The very subscription that a cursor is of."""
    topic = shard.by_name.get(known.topic)
    subscription = topic.subscriptions.get(question.client) if topic else None
    if topic is None or subscription is None or subscription.id != known.subscription_id:
        return None
    return topic, subscription


def _lost_subscription(shard: Shard, known: Settled) -> LostCursor | None:
    if not shard.identities.is_lost(known.subscription_id):
        return None  # it ended here, and its client was told or will be
    topic = shard.by_name.get(known.topic)
    end = topic.end if topic else Offset(0)
    return LostCursor(known.topic, known.cursor, NO_OFFSET, NO_OFFSET, end)


def _was_deleted(shard: Shard, known: KnownNumbers) -> bool:
    """Whether the topic that numbers count on was in this log's history, and is no more."""
    if not known.topic_id or known.topic_id in shard.topics:
        return False
    return not shard.identities.is_lost(known.topic_id)


def _lost_numbers(shard: Shard, known: KnownNumbers, *, parted: bool) -> LostNumbers | None:
    """Of another branch, numbers that are used here for other messages are lost as well."""
    topic, recent = shard.by_name.get(known.topic), tuple[Recent, ...]()
    if topic is None or topic.id != known.topic_id:
        if not known.topic_id:
            return None
        last = shard.deleted_topics.last_number(known.topic, known.producer, known.topic_id)
        if not last and not shard.identities.is_lost(known.topic_id):
            return None  # deleted here, and how far it had come is not known any more
    else:
        entry = topic.producers.get(known.producer)
        last, recent = (entry.last_sequence, entry.recent) if entry else (Sequence(0), ())
    if known.acknowledged == last or (known.acknowledged < last and not parted):
        return None
    puts = tuple((each.first_sequence, each.messages, each.checksum) for each in recent)
    return LostNumbers(known.topic, known.producer, known.acknowledged, last, puts)
