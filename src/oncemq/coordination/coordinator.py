"""The port to what the servers of a cluster agree through: requests in, events out.

A coordinator is told its requests with `ask`, each under a token of the caller's, and calls `ring`
(from any thread) when `take` has something. It watches the whole cluster from the beginning: the
first `Snapshot` comes by itself, then each change as it is seen, in the order of revisions.

A revision is a place in the store's history; an entry carries the one of its last change, and a
transaction names those that it rests on. Laws of every coordinator:

1. A transaction happens only while every key that it expects has the revision that it expects (0:
   there is no such key), and then all of it happens at once.
2. `Happened` and `Overtaken` are final. After `Unanswered` it may have happened, or may still
   happen, until one of the keys that it expects is seen with another revision. The caller goes on
   as if both were so: it waits for more, never for less.
3. Every request is answered once.
4. What is told of the cluster never goes back: a key's revision only grows from event to event, and
   what a key was in between may be left out, but never what it is. A `Snapshot` replaces all that
   was told before.
5. `announce` is a hint: its key vanishes some time after the announcer did, or sooner.

A put's value must be unlike any other that its key ever had (see the nonce in `values`): by that a
transaction whose answer was lost is known again.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

Ring = Callable[[], object]


@dataclass(frozen=True, slots=True)
class KeyEntry:
    """A key with its value, and the revision of its last change."""

    key: str
    value: bytes
    revision: int


# ------------------------------------------------------------------ requests


@dataclass(frozen=True, slots=True)
class ReadEntries:
    """What these keys are now, as everybody agrees."""

    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Transact:
    """Change some keys at once, if nobody changed those that this rests on."""

    expected: dict[str, int]  # by key; 0: there is no such key
    puts: dict[str, bytes]
    deletes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        changed = {*self.puts, *self.deletes}
        if not changed or not changed <= self.expected.keys():
            # Sent twice, it must not happen twice.
            raise ValueError("a transaction must expect a revision of each key that it changes")


Request = ReadEntries | Transact


# ------------------------------------------------------------------ what became of them


@dataclass(frozen=True, slots=True)
class Found:
    """What a read found: the keys that are there."""

    entries: dict[str, KeyEntry]
    revision: int


@dataclass(frozen=True, slots=True)
class Happened:
    """The transaction happened; its keys have this revision, or a newer one."""

    revision: int


@dataclass(frozen=True, slots=True)
class Overtaken:
    """The keys are otherwise than expected, and so they are now.

    The transaction did not happen, or it did and others changed the keys after it: the same to a
    caller that goes on from what the keys are.
    """

    entries: dict[str, KeyEntry]


@dataclass(frozen=True, slots=True)
class Unanswered:
    """No answer in time: a transaction may have happened, and may still happen."""

    why: str


Outcome = Found | Happened | Overtaken | Unanswered


# ------------------------------------------------------------------ events


@dataclass(frozen=True, slots=True)
class Answered:
    """What became of a request."""

    token: int
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All keys of the cluster: what was told before is void."""

    entries: dict[str, KeyEntry]
    revision: int


@dataclass(frozen=True, slots=True)
class Changes:
    """What changed at one revision; None: the key is gone."""

    entries: dict[str, KeyEntry | None]
    revision: int


@dataclass(frozen=True, slots=True)
class StoreAway:
    """Nothing is heard any more: what was told may be old. Said once."""

    why: str


@dataclass(frozen=True, slots=True)
class StoreBack:
    """After `StoreAway`: what was told is up to date again, with what came before this event."""


CoordinatorEvent = Answered | Snapshot | Changes | StoreAway | StoreBack


class Coordinator(Protocol):
    """Asks for changes and hears of them; of one cluster, for one server."""

    def ask(self, request: Request, token: int) -> None:
        """Ask; the answer comes as `Answered` under this token."""
        ...

    def announce(self, key: str, value: bytes) -> None:
        """Keep a key there while this coordinator lives; said again, it has a new value."""
        ...

    def take(self) -> list[CoordinatorEvent]:
        """What happened since, in order. Never waits."""
        ...

    def close(self) -> None:
        """End it: nothing is announced any more, and what is not answered will not be."""
        ...
