"""What etcd is asked, and what it answers, as values."""

from dataclasses import dataclass

from oncemq.coordination.coordinator import KeyEntry, Transact


@dataclass(frozen=True, slots=True)
class ReadKeys:
    """These keys as everybody agrees on them (etcd: linearizable), all at one revision."""

    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReadPrefix:
    """All keys that begin so, at one revision."""

    prefix: str


@dataclass(frozen=True, slots=True)
class Attempt:
    """A compare-and-swap; where it fails, it reads what it compared."""

    transaction: Transact


@dataclass(frozen=True, slots=True)
class Grant:
    """A lease of so many milliseconds, or of more: etcd counts whole seconds."""

    lease_ms: int


@dataclass(frozen=True, slots=True)
class KeepAlive:
    """The lease is to begin anew."""

    lease: int


@dataclass(frozen=True, slots=True)
class Revoke:
    """The lease is over, and its keys are gone."""

    lease: int


@dataclass(frozen=True, slots=True)
class PutLeased:
    """A key that vanishes with its lease; whatever was there."""

    key: str
    value: bytes
    lease: int


Call = ReadKeys | ReadPrefix | Attempt | Grant | KeepAlive | Revoke | PutLeased


@dataclass(frozen=True, slots=True)
class HasRead:
    """The keys that are there, and the revision of the whole store."""

    entries: dict[str, KeyEntry]
    revision: int


@dataclass(frozen=True, slots=True)
class Attempted:
    """Whether the comparison held; if not, what was there."""

    succeeded: bool
    entries: dict[str, KeyEntry]
    revision: int


@dataclass(frozen=True, slots=True)
class Granted:
    """The lease's number."""

    lease: int


@dataclass(frozen=True, slots=True)
class Kept:
    """Whether the lease was still there."""

    is_there: bool


@dataclass(frozen=True, slots=True)
class CallDone:
    """Nothing more is to be said."""


CallAnswer = HasRead | Attempted | Granted | Kept | CallDone


@dataclass(frozen=True, slots=True)
class WatchFrom:
    """All changes of keys that begin so, from this revision on."""

    prefix: str
    revision: int
