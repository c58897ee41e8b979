"""Owners of commits: the last number each has used, so that a commit takes effect once.

Laws: a number that was used, or one below it, never publishes anything again. An owner that
lasts is remembered for good; one that ends with its process is forgotten a day after its last word.
An owner that is bound commits for its bond alone, and its numbers go on from the last. A bond whose
numbers follow each other is one owner's alone. A number that was used with some messages is never
taken for a repeat of itself with others. A commit that its owner is known to have made, and that
this log does not have, or recorded at another moment (another branch of it did), is missed.
"""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice, repeat
from typing import NamedTuple

import msgspec

from oncemq.protocol.commit_records import (
    Committed,
    ContentsCommitted,
    OwnerBound,
    OwnerBoundAlone,
    OwnersForgotten,
    Part,
)
from oncemq.protocol.generations import UNKNOWN
from oncemq.protocol.names import Micros, Offset, Serial, TopicId
from oncemq.protocol.replies import NO_OFFSET, RefusedReply
from oncemq.protocol.requests import CommitRequest

RECENT_MAX = 4  # answers kept word for word


class Published(NamedTuple):
    """What a topic got by a commit. `first_offset` is -1 when nobody wanted it."""

    topic_id: TopicId
    first_offset: Offset
    messages: int


class Answer(NamedTuple):
    """A commit as it was accepted."""

    number: int
    published: tuple[Published, ...]
    contents: int = 0  # 0: not said
    moment: Micros = UNKNOWN


@dataclass(slots=True)
class Owner:
    """One owner."""

    lasting: bool
    last_number: int
    seen: Micros
    last_serial: Serial
    recent: tuple[Answer, ...] = ()
    bond: str = ""
    alone: bool = False  # whether no other owner has the bond


class OwnerState(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """An owner as a checkpoint keeps it: true as of its `last_serial`."""

    owner: str
    lasting: bool
    last_number: int
    seen: Micros
    last_serial: Serial
    recent: tuple[tuple[int, tuple[tuple[TopicId, Offset, int], ...]], ...]
    bond: str = ""
    contents: tuple[int, ...] = ()  # of `recent`
    alone: bool = False
    moments: tuple[Micros, ...] = ()  # of `recent`


class Owners:
    """All owners of a shard."""

    def __init__(self) -> None:
        self.entries: dict[str, Owner] = {}
        self.guests: OrderedDict[str, None] = OrderedDict()  # that end with their process
        self._alone: dict[str, str] = {}  # bonds that are one owner's alone, which has committed

    def used(self, owner: str, number: int) -> Answer | None:
        """The first answer to a number that was used (or passed over); None when it is new."""
        entry = self.entries.get(owner)
        if entry is None or number > entry.last_number:
            return None
        known = (each for each in entry.recent if each.number == number)
        return next(known, Answer(number, ()))

    def lost(self, commit: CommitRequest) -> RefusedReply | None:
        """Why a commit does not go on from the one before that its committer knows; or None.

        All numbers since the oldest of the recent ones are known, and all there ever were where
        those are few. Of what is older nobody can say when it was.
        """
        if not commit.after:
            return None
        entry = self.entries.get(commit.owner)
        recent = entry.recent if entry else ()
        found = next((each for each in recent if each.number == commit.after), None)
        if found is not None:
            if (
                UNKNOWN in (found.moment, commit.after_moment)
                or found.moment == commit.after_moment
            ):
                return None
            what = "recorded another one under that number"
        elif len(recent) == RECENT_MAX and commit.after < recent[0].number:
            return None
        else:
            what = f"does not have it: its last number is {self.last_number(commit.owner)}"
        return RefusedReply(
            "history_lost",
            f"owner {commit.owner!r} has committed number {commit.after}, as the committer knows, "
            f"and this server {what}. An older copy of its data was put back or restored, or "
            "copies are served in turn; nothing was committed",
        )

    def moment(self, owner: str, number: int) -> Micros:
        """When a number was committed; 0: that is not known any more."""
        entry = self.entries.get(owner)
        recent = entry.recent if entry else ()
        return next((each.moment for each in recent if each.number == number), UNKNOWN)

    def misfit(self, commit: CommitRequest) -> RefusedReply | None:
        """Why a commit is not the bound owner's next, nor its last again; or None."""
        entry = self.entries.get(commit.owner)
        if not commit.bond and (entry is None or not entry.bond):
            return None
        last = entry.last_number if entry else 0
        if other := self._taken(commit):
            detail = f"{commit.bond!r} commits as {other!r}, and not as {commit.owner!r} too"
            return RefusedReply("bond_taken", f"{detail}; nothing was committed")
        if entry is not None and last and entry.bond != commit.bond:
            whose = repr(entry.bond) if entry.bond else "nobody in particular"
            detail = f"owner {commit.owner!r} is bound to {whose}, not to {commit.bond!r}"
            return RefusedReply(
                "owner_bound", f"{detail}; its last number is {last}; nothing committed"
            )
        if commit.number < last or (commit.follows and commit.number > last + 1):
            detail = f"owner {commit.owner!r} has committed number {last}, and not {commit.number}"
            return RefusedReply("number_misfit", f"{detail} after it; nothing was committed")
        return None

    def _taken(self, commit: CommitRequest) -> str | None:
        """The other owner that has committed under this bond, which is its alone."""
        owner = self._alone.get(commit.bond) if commit.follows else None
        return None if owner == commit.owner else owner

    def differs(self, commit: CommitRequest) -> RefusedReply | None:
        """Why a commit is no repeat of the one that has its number: it has other messages."""
        before = self.used(commit.owner, commit.number)
        if before is None or not commit.contents or before.contents in (0, commit.contents):
            return None
        messages = sum(each.messages for each in before.published)
        return RefusedReply(
            "contents_differ",
            f"owner {commit.owner!r} has committed number {commit.number} with other messages: "
            f"{messages} with the sum {before.contents:016x}, now "
            f"{sum(piece.count for piece in commit.pieces)} with {commit.contents:016x}; nothing "
            "was committed",
        )

    def needs_bond(self, commit: CommitRequest) -> bool:
        """Whether the log does not say yet whose the owner is."""
        entry = self.entries.get(commit.owner)
        if entry is None or entry.bond != commit.bond:
            return bool(commit.bond)
        return commit.follows and not entry.alone

    def last_number(self, owner: str) -> int:
        """The newest number that was used; 0: none that is known."""
        entry = self.entries.get(owner)
        return entry.last_number if entry else 0

    def before(self, owner: str, number: int) -> int:
        """The number of the commit that took effect before this one; 0: none, or long ago."""
        entry = self.entries.get(owner)
        known = (each.number for each in entry.recent if each.number < number) if entry else ()
        return max(known, default=0)

    def apply(self, record: Committed, serial: Serial) -> None:
        """A commit is in the log."""
        entry = self.entries.get(record.owner)
        if entry is not None and serial <= entry.last_serial:
            return
        recent = entry.recent if entry else ()
        contents = record.contents if isinstance(record, ContentsCommitted) else 0
        answer = Answer(record.number, published_by(record.parts), contents, record.timestamp)
        self.entries[record.owner] = Owner(
            record.lasting,
            record.number,
            record.timestamp,
            serial,
            (*recent[1 - RECENT_MAX :], answer),
            entry.bond if entry else "",
            entry.alone if entry else False,
        )
        if entry is not None and entry.alone:
            self._alone[entry.bond] = record.owner
        if not record.lasting:
            self.guests[record.owner] = None
            self.guests.move_to_end(record.owner)

    def note(self, record: OwnersForgotten | OwnerBound, serial: Serial) -> None:
        """What becomes of owners beside their commits."""
        if isinstance(record, OwnersForgotten):
            self._forget(record, serial)
            return
        entry = self.entries.get(record.owner)
        if entry is None:
            entry = Owner(True, 0, record.timestamp, Serial(0))
            self.entries[record.owner] = entry
        if serial > entry.last_serial:
            entry.bond, entry.last_serial = record.bond, serial
            entry.alone = isinstance(record, OwnerBoundAlone)

    def _forget(self, record: OwnersForgotten, serial: Serial) -> None:
        """Their processes were silent for long enough."""
        for owner in record.owners:
            entry = self.entries.get(owner)
            if entry is not None and entry.last_serial < serial:
                del self.entries[owner]
                self.guests.pop(owner, None)

    def silent_since(self, moment: Micros, most: int) -> tuple[str, ...]:
        """Guests that committed nothing after that moment."""
        found: list[str] = []
        for owner in islice(self.guests, most):
            if self.entries[owner].seen > moment:
                break
            found.append(owner)
        return tuple(found)

    def capture(self, owner: str) -> OwnerState:
        """The owner as a value."""
        entry = self.entries[owner]
        return OwnerState(
            owner,
            entry.lasting,
            entry.last_number,
            entry.seen,
            entry.last_serial,
            tuple((each.number, each.published) for each in entry.recent),
            entry.bond,
            tuple(each.contents for each in entry.recent),
            entry.alone,
            tuple(each.moment for each in entry.recent),
        )

    def restore(self, state: OwnerState) -> None:
        """The owner a checkpoint kept."""
        sums = state.contents or repeat(0)  # of a checkpoint from before there were sums
        moments = state.moments or (*repeat(UNKNOWN, len(state.recent) - 1), state.seen)
        recent = tuple(
            Answer(number, tuple(Published(*each) for each in published), contents, moment)
            for (number, published), contents, moment in zip(
                state.recent, sums, moments, strict=False
            )
        )
        self.entries[state.owner] = Owner(
            state.lasting,
            state.last_number,
            state.seen,
            state.last_serial,
            recent,
            state.bond,
            state.alone,
        )
        if state.alone and state.last_number:
            self._alone[state.bond] = state.owner
        if not state.lasting:
            self.guests[state.owner] = None

    def recovered(self) -> None:
        """A replay may have mixed them up: the longest silent stand first again."""
        order = sorted(self.guests, key=lambda owner: self.entries[owner].seen)
        self.guests = OrderedDict.fromkeys(order)


def published_by(parts: Iterable[Part]) -> tuple[Published, ...]:
    """What each topic got by a commit with these parts."""
    found: dict[TopicId, Published] = {}
    for part in parts:
        known = found.get(part.topic_id, Published(part.topic_id, part.first_offset, 0))
        first = known.first_offset if known.first_offset != NO_OFFSET else part.first_offset
        found[part.topic_id] = Published(part.topic_id, first, known.messages + part.count)
    return tuple(found.values())
