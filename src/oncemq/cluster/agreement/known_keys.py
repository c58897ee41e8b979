"""The keys of a cluster as one server knows them: what was watched, and what answers said.

An answer may know of a change before the watch tells it, and an answer may come late. So of each
key the newest revision that was heard of counts, whoever said it.

Law: a key never goes back to an earlier revision. When the whole store did (an older copy of etcd
was put there), nothing of it is believed: `set_back` says so, and all stays as it was.
"""

from collections.abc import Mapping
from hashlib import sha256

from oncemq.coordination.coordinator import KeyEntry
from oncemq.coordination.transactions import Declined, raise_version
from oncemq.coordination.values import (
    Announcement,
    ClusterConfig,
    ClusterKeys,
    NotUnderstood,
    ServerState,
    ShardReplicas,
    V,
    announced,
    decoded,
)
from oncemq.protocol.names import ServerId, ShardId


class KnownKeys:
    """All values of a cluster, of one of its shards."""

    def __init__(self, keys: ClusterKeys, shard: ShardId) -> None:
        self.keys = keys
        self.shard_key = keys.shard(shard)
        self.has_snapshot = False
        self.set_back: str | None = None  # the store is older than it was: in words
        self.faults: dict[str, str] = {}  # values that this version cannot read, by key
        self.shard: ShardReplicas | None = None
        self.shard_revision = 0  # of that value: a newer one may not be understood
        self.config: ClusterConfig | None = None
        self.secret: bytes | None = None  # of the newest settings that were there
        self.servers: dict[ServerId, ServerState] = {}
        self.alive: frozenset[ServerId] = frozenset()
        self.announced: dict[ServerId, Announcement] = {}  # of those
        self.changes = 0  # how often anything became otherwise
        self._revisions: dict[str, int] = {}  # of keys that are there
        self._told = 0  # everything was watched up to here

    def revision(self, key: str) -> int:
        """Of the key's last change; 0: there is no such key."""
        return self._revisions.get(key, 0)

    def older(self, reads: int) -> list[ServerId]:
        """The replicas that are not known to read this version, while it is not written."""
        shard, there = self.shard, self.announced
        if shard is None or shard.version >= reads:
            return []
        return [each for each in shard.replicas if each not in there or there[each].reads < reads]

    def raised(self, leader: ServerId, nonce: str) -> ShardReplicas | None:
        """The shard's value with the version that its replicas read; None: it is to stay."""
        shard = self.shard
        if shard is None or shard.leader != leader or self.shard_key in self.faults:
            return None
        reads = {each.claim: each.reads for each in self.announced.values()}
        changed = raise_version(
            shard, leader, leader_epoch=shard.leader_epoch, reads=reads, nonce=nonce
        )
        return None if isinstance(changed, Declined) or changed is shard else changed

    @property
    def unsealed(self) -> str | None:
        """Why nothing that other servers say is believed, or None."""
        if self.shard is None or self.secret is not None:
            return None
        return (
            f"etcd has no secret of this cluster ({self.keys.config} was removed, or written by "
            "hand): put that value back as it was, then start this server again"
        )

    def snapshot(self, entries: Mapping[str, KeyEntry], revision: int) -> None:
        """All there is, at a revision; what was heard of later changes stays."""
        if self.set_back is not None:
            return
        if revision < self._told:
            self.set_back = (
                f"etcd was put back to an older copy (revision {revision}, after {self._told}): "
                "what it says is not believed, and this server goes on as it was. See "
                "docs/OPERATING.md, etcd"
            )
            return
        self.has_snapshot, self._told = True, revision
        for key in [each for each in self._revisions if each not in entries]:
            self._remove(key, revision)
        for entry in entries.values():
            self._put(entry)

    def watched(self, changes: Mapping[str, KeyEntry | None], revision: int) -> None:
        """What changed at a revision."""
        if self.set_back is not None:
            return
        self._told = max(self._told, revision)
        for key, entry in changes.items():
            if entry is None:
                self._remove(key, revision)
            else:
                self._put(entry)

    def answered(self, entries: Mapping[str, KeyEntry]) -> None:
        """What an answer said that some keys are; of keys it does not name it says nothing.

        It may come late: a key that is not there, though all was watched up to that revision, is
        gone since.
        """
        if self.set_back is None:
            for entry in entries.values():
                if entry.key in self._revisions or entry.revision > self._told:
                    self._put(entry)

    # ------------------------------------------------------------------ one key

    def _put(self, entry: KeyEntry) -> None:
        key = entry.key
        if entry.revision <= self._revisions.get(key, 0):
            return
        self._revisions[key] = entry.revision
        self.faults.pop(key, None)
        self.changes += 1
        match self.keys.parts(key):
            case ("alive", name):
                self.alive |= {ServerId(name)}
                self.announced[ServerId(name)] = announced(entry.value)
            case ("server", name):
                if (state := self._decoded(entry, ServerState)) is not None:
                    self.servers = {**self.servers, ServerId(name): state}
            case ("cfg", ""):
                self.config = self._decoded(entry, ClusterConfig) or self.config
                if self.config is not None and self.config.secret:
                    self.secret = sha256(self.config.secret.encode()).digest()
                elif self.config is not None:
                    self.secret = self.secret or b""  # it was founded before there were seals
            case _ if key == self.shard_key:
                if (shard := self._decoded(entry, ShardReplicas)) is not None:
                    self.shard, self.shard_revision = shard, entry.revision
            case _:
                pass  # of another shard

    def _remove(self, key: str, revision: int) -> None:
        if self._revisions.get(key, revision) >= revision:
            return
        del self._revisions[key]
        self.faults.pop(key, None)
        self.changes += 1
        match self.keys.parts(key):
            case ("alive", name):
                self.alive -= {ServerId(name)}
                self.announced.pop(ServerId(name), None)
            case ("server", name):
                self.servers = {each: v for each, v in self.servers.items() if each != name}
            case ("cfg", ""):
                self.config = None
            case _ if key == self.shard_key:
                self.shard, self.shard_revision = None, 0
            case _:
                pass

    def _decoded(self, entry: KeyEntry, kind: type[V]) -> V | None:
        """None: it was written by another version, and what was known of the key stays."""
        try:
            return decoded(entry.value, kind, key=entry.key)
        except NotUnderstood as error:
            self.faults[entry.key] = str(error)
            return None
