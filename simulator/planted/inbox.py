"""Bugs planted in the inbox: each breaks the rule that makes an effect happen once."""

from collections.abc import Callable
from typing import Any

from oncemq.client.values import Message
from oncemq.client.verbs import inbox_verbs as rules
from oncemq.client.verbs.inbox_verbs import InboxVerb
from oncemq.databases import inbox as table
from oncemq.databases.statements import Bound, Tell, Work
from oncemq.session.inbox_rule import Inbox, Mark
from simulator.planted.plant import instead

_UNCONDITIONAL = table.MOVE.partition(" AND fence = ")[0]


@instead(rules, "open_block", "inbox")
def _commits_the_cursor_before_the_effect(
    original: Callable[..., InboxVerb[list[Message]]],
) -> Any:
    def open_block(engine: Any, inbox: Inbox, *args: Any) -> InboxVerb[list[Message]]:
        messages = yield from original(engine, inbox, *args)
        moves = inbox.moves(rules.spans_of(messages))
        yield from table.commit(engine.client, moves)
        inbox.committed(moves)
        yield Bound.BEGIN
        return messages

    return open_block


@instead(table, "MOVE", "inbox and twin")
def _commits_though_another_process_took_over(_: Any) -> Any:
    return _UNCONDITIONAL


@instead(table, "_take", "inbox")
def _believes_the_server_before_the_database(original: Callable[..., Work[Mark]]) -> Any:
    def take(client: str, place: table.SubscriptionPlace, *rest: Any) -> Work[Mark]:
        mark = yield from original(client, place, *rest)
        keys = {"client": client, "topic": place.topic, "subscription_id": mark.subscription_id}
        yield Tell(_UNCONDITIONAL, {**keys, "after": place.reached})
        return Mark(mark.subscription_id, mark.fence, place.reached, place.reached)

    return take
