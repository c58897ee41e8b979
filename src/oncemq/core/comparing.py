"""What a client knows, compared with what the server has: so a server that went back in time shows.

The log's generation grows when the log goes on from an earlier state (loss was accepted, a backup
restored). Each topic remembers where it ended then. What a client saw beyond that end, while it
knew an older generation, is of a future that was lost: the same offsets are other messages now.

Laws: a client that knows no more than the server goes on by itself; one that knows more is told
so, each topic by name, and nothing is moved for it. Nothing here changes the state.
"""

from oncemq.core.client_requests import Compare, Numbers
from oncemq.core.names import Offset, Sequence
from oncemq.core.replies import NO_OFFSET, Compared, LostCommits, LostCursor, LostNumbers, Refused
from oncemq.core.request import Settled
from oncemq.core.requests import Hello
from oncemq.core.shard import Shard


def compare(shard: Shard, question: Compare) -> Compared:
    """What of all that a client knows this server does not have."""
    cursors = (_lost_cursor(shard, question, each) for each in question.cursors)
    numbers = (_lost_numbers(shard, each) for each in question.numbers)
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
    )


def refusal(shard: Shard, hello: Hello) -> Refused | None:
    """Why a client is not let in that knows another log, or more than this one ever granted."""
    if hello.log_id and shard.log_id and hello.log_id != shard.log_id:
        return _history_lost(
            f"client {hello.client!r} knows another log ({hello.log_id.hex()[:8]}) than this "
            f"server's ({shard.log_id.hex()[:8]}): the data directory was emptied or replaced, or "
            "this is another server"
        )
    if hello.generation > shard.generation:
        return _history_lost(
            f"client {hello.client!r} knows generation {hello.generation} of this server's log, "
            f"and the server is at {shard.generation}: an older copy of its data was put back"
        )
    granted = shard.clients.granted(hello.client)
    if hello.last_epoch > granted and not shard.clients.is_repeat(hello):
        return _history_lost(
            f"client {hello.client!r} was granted epoch {hello.last_epoch}, and this server has "
            f"granted it {granted or 'none'}: an older copy of its data was put back, or the id "
            "was forgotten"
        )
    return None


def _history_lost(detail: str) -> Refused:
    return Refused("history_lost", detail)


def _lost_cursor(shard: Shard, question: Compare, known: Settled) -> LostCursor | None:
    topic = shard.by_name.get(known.topic)
    subscription = topic.subscriptions.get(question.client) if topic else None
    if topic is None or subscription is None or subscription.id != known.subscription_id:
        if not shard.identities.is_lost(known.subscription_id):
            return None  # it ended here, and its client was told or will be
        end = topic.end if topic else Offset(0)
        return LostCursor(known.topic, known.cursor, NO_OFFSET, NO_OFFSET, end)
    agreed = topic.agreed(question.generation)
    if known.cursor <= agreed:
        return None
    is_sure = question.generation < shard.generation
    return LostCursor(
        known.topic,
        known.cursor,
        agreed if is_sure else NO_OFFSET,
        subscription.cursor,
        topic.end,
    )


def _was_deleted(shard: Shard, known: Numbers) -> bool:
    """Whether the topic that numbers count on was in this log's history, and is no more."""
    if not known.topic_id or known.topic_id in shard.topics:
        return False
    return not shard.identities.is_lost(known.topic_id)


def _lost_numbers(shard: Shard, known: Numbers) -> LostNumbers | None:
    topic = shard.by_name.get(known.topic)
    if topic is None or topic.id != known.topic_id:
        if not known.topic_id or not shard.identities.is_lost(known.topic_id):
            return None  # deleted here: numbers begin anew on whatever has the name
        last = Sequence(0)
    else:
        entry = topic.producers.get(known.producer)
        last = entry.last_sequence if entry else Sequence(0)
    if known.acknowledged <= last:
        return None
    return LostNumbers(known.topic, known.producer, known.acknowledged, last)
