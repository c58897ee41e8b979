"""The values that the servers of a cluster agree on, and their keys.

A value is JSON, so that `etcdctl get` shows a person what is there. Each has a nonce, new with each
change: a value that is read back is ours when it is equal to what we wrote, for nobody else writes
the same bytes.

Laws: a value with fields that this version does not know is refused, not read in part: a change
would otherwise drop what a newer server wrote. So a field that came later is left out while it has
its default, and has another value only in shards of the version that it came with (`versions`).
"""

import re
from typing import TypeVar

import msgspec

from oncemq.errors import OnceMQError
from oncemq.protocol.names import ServerId
from oncemq.protocol.replicas.versions import FIRST

SERVER_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
CLUSTER_NAME = SERVER_ID  # both become parts of keys


class NotUnderstood(OnceMQError):
    """A value of the cluster was written by another version, or by hand."""

    code = "not_understood"


class Value(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What all values have."""

    nonce: str


class ClusterConfig(Value, frozen=True, forbid_unknown_fields=True):
    """What was decided when the cluster was founded."""

    replicas: int = 3  # of a shard, at most
    min_in_sync: int = 2  # of them, before anything is committed
    lease_ms: int = 6_000  # how long a server that is silent is taken to be there
    founder: ServerId | None = None  # whose directory the cluster begins with; None: whoever comes
    secret: str = ""  # that seals what servers say to each other; drawn by who founds the shard


class ServerState(Value, frozen=True, forbid_unknown_fields=True):
    """A server of the cluster, whether it runs or not."""

    address: str
    draining: bool = False  # it is to lead nothing


class OpenedDirectory(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A data directory as it was opened: which one, for the how manieth time, by which start.

    Two starts may count the same opening when one has a copy of the other's disk; the claim, which
    each start draws, tells them apart.
    """

    incarnation: str  # in hex
    openings: int
    claim: str


class ShardReplicas(Value, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Who leads a shard, in which epoch, and which directories have all that was committed.

    A server may be in `in_sync` and in `joining`: its directory that was in sync was replaced by
    another one, or by an older copy. Only what is in `in_sync` is in sync, and nobody has it then.
    """

    identity: str  # of the log, in hex; its replicas have it in common, with what follows
    tag: int
    generation: int
    leader: ServerId | None  # nobody, from when the leader starts again until an election
    leader_epoch: int
    in_sync: dict[ServerId, OpenedDirectory]
    joining: dict[ServerId, OpenedDirectory]  # replicas that are not in sync
    proposed: ServerId | None  # of those joining: commits wait for it, and do not count it yet
    min_in_sync: int
    version: int = FIRST  # of what may be written: every replica reads it

    @property
    def replicas(self) -> list[ServerId]:
        """The servers that have the shard's log, or are getting it."""
        return sorted({*self.in_sync, *self.joining})

    def has_in_sync(self, server: ServerId, directory: OpenedDirectory) -> bool:
        """Whether this very directory has all that was committed: only its word counts."""
        return self.in_sync.get(server) == directory


class Announcement(msgspec.Struct, frozen=True):
    """What a server says while it is there: which start of it this is, and what it can read.

    Nobody else changes it, so fields that are not known here are passed over.
    """

    claim: str
    reads: int = FIRST  # the newest version


V = TypeVar("V", bound=Value)


def encoded(value: Value) -> bytes:
    """A value as it is stored."""
    return msgspec.json.encode(value)


def decoded(data: bytes, kind: type[V], *, key: str) -> V:
    """A stored value, or `NotUnderstood`."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise NotUnderstood(
            f"this version cannot read {key} of the cluster ({error}): it was written by a newer "
            f"server, or by hand. Run the version that the other servers run"
        ) from None


def announced(data: bytes) -> Announcement:
    """What a server announced; the first ones announced the bare claim."""
    try:
        return msgspec.json.decode(data, type=Announcement)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Announcement(data.decode(errors="replace"))


class ClusterKeys:
    """Where the values of one cluster are."""

    def __init__(self, cluster: str) -> None:
        if fault := name_fault(cluster, what="the cluster's name"):
            raise ValueError(fault)
        self.cluster = cluster
        self.prefix = f"/oncemq/{cluster}/"
        self.config = f"{self.prefix}cfg"

    def shard(self, number: int) -> str:
        """A shard's state."""
        return f"{self.prefix}shard/{number}"

    def server(self, server: ServerId) -> str:
        """What is known of a server, whether it runs or not."""
        return f"{self.prefix}server/{server}"

    def alive(self, server: ServerId) -> str:
        """There while a server has its lease: a hint that it runs, and no more."""
        return f"{self.prefix}alive/{server}"

    def parts(self, key: str) -> tuple[str, str]:
        """What a key is of, and whose; ("", "") for a key of somebody else."""
        if not key.startswith(self.prefix):
            return "", ""
        kind, _, name = key.removeprefix(self.prefix).partition("/")
        return kind, name


def name_fault(name: str, *, what: str) -> str | None:
    """Why a name cannot be part of a key, or None."""
    if SERVER_ID.fullmatch(name):
        return None
    return f"{what} {name!r} must be 1 to 64 of A-Z a-z 0-9 . _ - and begin with a letter or digit"
