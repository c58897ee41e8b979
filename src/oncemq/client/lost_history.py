"""In words: what a client knows and its server has lost, and how a person lets it go on."""

import shlex
from collections.abc import Sequence
from typing import NamedTuple

from oncemq.client.context import ClientContext
from oncemq.errors import HistoryLost, OnceMQError
from oncemq.protocol.client_replies import Compared, LostCommits, LostCursor, ThereAgain
from oncemq.protocol.generations import in_words
from oncemq.protocol.names import Offset
from oncemq.protocol.replies import NO_OFFSET
from oncemq.session.handshake import LogSeen

NAMED_MAX = 5  # topics named in an error; `once client accept` shows all


def with_way_out(error: OnceMQError, client: ClientContext) -> OnceMQError:
    """The error with the full command that helps, where it is about lost history."""
    if not isinstance(error, HistoryLost):
        return error
    if not client.state.directory:
        return HistoryLost(
            f"{error.detail}. This client has no state on disk: start it again to go on with what "
            "the server has"
        )
    command = [
        *("once", "client", "accept", "--id", client.client),
        *("--state", client.state.directory),
        *("--server", ",".join(client.settings.servers)),
    ]
    return HistoryLost(
        f"{error.detail}. Nothing was changed. To see what is lost and go on with what the server "
        f"has, end this client and run: {shlex.join(command)}"
    )


def went_back(log: LogSeen, here: LogSeen) -> str:
    """What happened to the server's log."""
    return (
        f"the server's log went back in time (generation {in_words(here.generation)}, this client "
        f"knows {in_words(log.generation)}): loss was accepted there, or a backup restored"
    )


class LostHistory(NamedTuple):
    """What a client knows, and its server does not have."""

    cursors: list[LostCursor]
    commits: list[LostCommits]
    again: list[ThereAgain]
    parted: bool = False  # what it knows is of another branch of the log's history


def lost_of(answers: Sequence[Compared]) -> LostHistory:
    """What the server's answers say is lost."""
    return LostHistory(
        [each for answer in answers for each in answer.cursors],
        [each for answer in answers for each in answer.commits],
        [each for answer in answers for each in answer.again],
        any(answer.parted for answer in answers),
    )


def what_is_lost(lost: LostHistory) -> str:
    """What this client took, or committed, that is not on the server any more."""
    words = ""
    if lost.cursors:
        topics = "; ".join(map(cursor_in_words, lost.cursors[:NAMED_MAX]))
        more = len(lost.cursors) - NAMED_MAX
        rest = f"; and {more} topics more" if more > 0 else ""
        words += f". It does not have what this client took: {topics}{rest}"
    if lost.commits:
        count = sum(each.acknowledged - each.last for each in lost.commits)
        words += f". It does not have up to {count} transactions of this client that had ended well"
    if lost.again:
        topics = ", ".join(repr(each.topic) for each in lost.again[:NAMED_MAX])
        words += f". Subscriptions that this client had ended are there again: {topics}"
    return words


def cursor_in_words(lost: LostCursor) -> str:
    """One topic."""
    if lost.cursor == NO_OFFSET:
        return f"{lost.topic!r} (the subscription that stood at @{lost.known} is not there)"
    if lost.agreed == NO_OFFSET:
        return (
            f"{lost.topic!r} (this client stands at @{lost.known}, the topic ends at @{lost.end})"
        )
    return f"{lost.topic}@{lost.agreed} to {lost.topic}@{lost.known - 1}"


def numbers_in_words(topic: str, first: int, last: int) -> str:
    """Puts of this client that the server acknowledged and lost."""
    count = f"{last - first + 1} messages" if last > first else "1 message"
    return (
        f"the server went back in time: {count} that this client put to {topic!r} (its numbers "
        f"{first} to {last}) have receipts, and the server does not have them any more"
    )


def goes_on_at(lost: LostCursor) -> Offset | None:
    """The offset a client goes on from; None when its subscription is not there any more."""
    if lost.cursor == NO_OFFSET:
        return None
    return lost.cursor if lost.agreed == NO_OFFSET else lost.agreed


def goes_on_again_at(again: ThereAgain) -> Offset:
    """Where the subscription goes on that had ended: nothing that the client took comes again.

    Where it took nothing, the server's own cursor stands; NO_OFFSET: it is a pattern.
    """
    if NO_OFFSET in (again.agreed, again.known):
        return again.cursor
    return min(again.agreed, again.known)


def again_in_words(again: ThereAgain) -> str:
    """What it is, where it goes on, and how a person ends it."""
    place, command = goes_on_again_at(again), shlex.join(["once", "unsubscribe", again.topic])
    if place == NO_OFFSET:
        return (
            f"{again.topic}: the client had ended this pattern, and the server has it again; it "
            f"goes on, also with the subscriptions that it makes ({command} ends it, and them)"
        )
    return (
        f"{again.topic}: the client had ended this subscription, and the server has it again; it "
        f"goes on from {place} ({command} ends it)"
    )
