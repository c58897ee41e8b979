"""One server's part in what the cluster agrees on: between the coordinator and the rules.

    coordinator ── events ──▶ heard ──▶ ViewTold, AskRefused ──▶ rules of `replication`
         ▲                                                             │
         └── requests ◀── transactions ◀───────────── ask, open ───────┘

How it works. The keys of the cluster are kept as they were last heard of (`known_keys`). What this
server wants of them is asked as a transaction on exactly the revisions that it was decided by, and
there is one under way for each wish: to be there with the directory that is open (`open`), to say
where this server is, what the rules ask for, and, of the leader, to write a newer version.
Whatever becomes of a transaction, its keys are known again sooner or later: then the wish is
fulfilled, or it is decided anew. A transaction without an answer is repeated as it is, so that it
cannot happen twice.

Laws:
1. A request names the revisions that it rests on, and each was seen.
2. The views that are told never go back, and none is told before this opening is known.
3. An opening is claimed until it is known, and never again: who is no longer there was removed, or
   another start has its place, and has to be started anew by somebody who knows why.
4. This server counts as alive only once its opening is known: who led before does not lead on.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import assert_never

import msgspec
from msgspec.structs import replace

from oncemq.cluster.agreement.asked_changes import changed_by, view_of
from oncemq.cluster.agreement.founding import first_epoch, may_not_found
from oncemq.cluster.agreement.known_keys import KnownKeys
from oncemq.cluster.agreement.registration import Registration
from oncemq.cluster.agreement.wishes import Wish, Wishes
from oncemq.coordination import transactions
from oncemq.coordination.coordinator import (
    Answered,
    Changes,
    CoordinatorEvent,
    Request,
    Snapshot,
    StoreAway,
    StoreBack,
)
from oncemq.coordination.transactions import Changed, Declined
from oncemq.coordination.values import (
    Announcement,
    ClusterConfig,
    ClusterKeys,
    OpenedDirectory,
    ServerState,
    ShardReplicas,
    encoded,
)
from oncemq.protocol.names import LeaderEpoch, Micros, ServerId, ShardId
from oncemq.protocol.replicas.messages import Life
from oncemq.protocol.replicas.versions import NEWEST
from oncemq.replication.view import Ask, Resign, ShardView


@dataclass(frozen=True, slots=True)
class ViewTold:
    """How the shard is, and which servers have a lease; `servers` may be new, too."""

    view: ShardView
    alive: frozenset[ServerId]


@dataclass(frozen=True, slots=True)
class AskRefused:
    """What was asked at this revision is against the rules."""

    revision: int


Told = ViewTold | AskRefused


@dataclass(frozen=True, slots=True)
class OpenReplica:
    """The directory that this server has open, and the log in it."""

    directory: OpenedDirectory
    identity: str
    tag: int
    generation: int
    promised: LeaderEpoch


class ShardAgreement:
    """Of one server, about one shard, from the server's start to its end."""

    def __init__(
        self,
        me: ServerId,
        keys: ClusterKeys,
        shard: ShardId,
        *,
        founding: ClusterConfig,
        address: str,
        claim: str,
        new_nonce: Callable[[], str],
        reads: int = NEWEST,
    ) -> None:
        self.announcements: list[tuple[str, bytes]] = []  # for the coordinator; the shell clears it
        self.away: str | None = None
        self.declined: str | None = None  # why this opening is not let in, or is not there any more
        self._me = me
        self._announcement = Announcement(claim, reads)
        self._founding = founding
        self._known = KnownKeys(keys, shard)
        self._wishes = Wishes(self._known, new_nonce)
        self._registration = Registration(me, address, self._known, self._wishes)
        self._open: OpenReplica | None = None
        self._was_known = False  # this opening
        self._claiming: Wish | None = None
        self._raising: Wish | None = None
        self._asking: tuple[Ask, Wish] | None = None
        self._told_last: tuple[ShardView, frozenset[ServerId], dict[ServerId, ServerState]] | None
        self._told_last = None
        self._looked_at = -1  # of `KnownKeys.changes`
        self._refused: list[Told] = []

    # ------------------------------------------------------------------ how it is

    @property
    def requests(self) -> list[tuple[Request, int]]:
        """What is to be asked of the coordinator, under which token; the shell clears the list."""
        return self._wishes.requests

    @property
    def cluster(self) -> str:
        """Its name."""
        return self._known.keys.cluster

    @property
    def has_snapshot(self) -> bool:
        """Whether anything was heard of the cluster: before that nobody knows if it is there."""
        return self._known.has_snapshot

    @property
    def shard(self) -> ShardReplicas | None:
        """As last seen; None: there is no such key."""
        return self._known.shard

    @property
    def config(self) -> ClusterConfig:
        """What the cluster was founded with, or would be."""
        return self._known.config or self._founding

    @property
    def secret(self) -> bytes | None:
        """What servers of this cluster seal their messages with; None: it is not known yet."""
        return self._known.secret

    @property
    def servers(self) -> dict[ServerId, ServerState]:
        """Where the servers are, and which are to lead nothing."""
        return self._known.servers

    @property
    def alive(self) -> frozenset[ServerId]:
        """Which servers have a lease."""
        return self._known.alive

    @property
    def is_known(self) -> bool:
        """Whether the shard's value has this very opening."""
        shard, mine = self._known.shard, self._open
        places = () if shard is None else (shard.in_sync, shard.joining)
        return mine is not None and any(each.get(self._me) == mine.directory for each in places)

    @property
    def brings_loss(self) -> bool:
        """Whether the log here says that it went back in time, and the cluster's did not."""
        shard, mine = self._known.shard, self._open
        if shard is None or mine is None or shard.identity != mine.identity:
            return False
        return transactions.brings_loss(shard, self._me, mine.directory, mine.generation)

    @property
    def lacks_loss(self) -> bool:
        """Whether the cluster went back in time, the log here does not say so, and may learn it."""
        shard, mine = self._known.shard, self._open
        if shard is None or mine is None or self._was_known or shard.identity != mine.identity:
            return False
        return transactions.lacks_loss(shard, mine.generation)

    @property
    def view(self) -> ShardView | None:
        """The shard as the rules see it; None before this opening is known."""
        shard, mine = self._known.shard, self._open
        if shard is None or mine is None or not self._was_known or shard.identity != mine.identity:
            return None
        draining = frozenset(each for each, state in self.servers.items() if state.draining)
        return view_of(shard, self._known.shard_revision, self._me, mine.directory, draining)

    @property
    def older(self) -> list[ServerId]:
        """The replicas that are not known to read all that this server reads."""
        return self._known.older(self._announcement.reads)

    @property
    def is_draining(self) -> bool:
        """Whether an operator wants this server to lead nothing."""
        return self._me in self.servers and self.servers[self._me].draining

    def leader_address(self) -> tuple[str, LeaderEpoch]:
        """Where the leader is, or an empty text; and its epoch."""
        shard = self._known.shard
        if shard is None:
            return "", LeaderEpoch(0)
        state = self.servers.get(shard.leader) if shard.leader is not None else None
        return "" if state is None else state.address, LeaderEpoch(shard.leader_epoch)

    @property
    def trouble(self) -> list[str]:
        """What is wrong between this server and the cluster, in words, with the way out."""
        if self.away is None:
            return self.faults
        away = (
            f"etcd is away ({self.away}): what is stored goes on, and nobody takes the lead, "
            "joins or leaves; start etcd's members, or mend the network to them"
        )
        return [away, *self.faults]

    @property
    def faults(self) -> list[str]:
        """The same, but for etcd being away."""
        known = self._known
        found = [each for each in (known.set_back, known.unsealed, self.declined) if each]
        found += [each for each in known.faults.values() if each not in found]
        twin = self._registration.fault
        return found if twin is None else [*found, twin]

    # ------------------------------------------------------------------ what happens

    def open(
        self, life: Life, identity: bytes, tag: int, generation: int, promised: LeaderEpoch
    ) -> None:
        """This directory is open: it is to be known, whatever it takes (`tick`).

        `promised`: the highest epoch that it promised, or that its log has.
        """
        directory = OpenedDirectory(life.incarnation.hex(), life.openings, self._announcement.claim)
        self._open = OpenReplica(directory, identity.hex(), tag, generation, promised)
        self._was_known, self.declined, self._told_last = False, None, None
        self._claiming = self._asking = None
        self._refused.clear()
        self._looked_at = -1

    def heard(self, event: CoordinatorEvent, now: Micros) -> list[Told]:
        """The coordinator says something."""
        match event:
            case Snapshot(entries, revision):
                self._known.snapshot(entries, revision)
            case Changes(entries, revision):
                self._known.watched(entries, revision)
            case Answered(token, outcome):
                self._wishes.answered(token, outcome, now)
            case StoreAway(why):
                self.away = why
            case StoreBack():
                self.away = None
            case _:
                assert_never(event)
        return self.tick(now)

    def tick(self, now: Micros) -> list[Told]:
        """What is due is asked; what became otherwise, or was refused, is told."""
        if self._known.has_snapshot and self._known.set_back is None:
            self._be_known(now)
            is_let_in = self._was_known and self.is_known
            self._registration.tick(now, is_let_in=is_let_in, is_declined=self.declined is not None)
            self._raise_version(now)
        told, self._refused = [*self._news(), *self._refused], []
        return told

    def ask(self, ask: Ask, revision: int) -> None:
        """The rules want this change of the shard as it was at this revision.

        Asked again, it is the same transaction. That it is refused is told by `tick`.
        """
        known, mine = self._known, self._open
        shard, newest = known.shard, known.revision(known.shard_key)
        if shard is None or mine is None or known.set_back is not None:
            return
        if not revision == known.shard_revision == newest:
            return  # it was overtaken: a later view was told, will be, or is not understood
        if self._asking is not None and self._wishes.is_open(self._asking[1]):
            before, wish = self._asking
            if wish.is_under_way:
                return  # it may happen: nothing else is asked meanwhile
            if before == ask:
                self._wishes.send(wish)
                return
        if isinstance(ask, Resign) and ask.to not in self.alive:
            self._refused.append(AskRefused(revision))  # who is gone cannot lead
            return
        changed = changed_by(
            ask, shard, self._me, mine.directory, promised_epoch=mine.promised,
            nonce=self._wishes.nonce,
        )  # fmt: skip
        if isinstance(changed, Declined) or changed is shard:
            self._refused.append(AskRefused(revision))
            return
        self._asking = ask, self._wishes.made({known.shard_key: encoded(changed)})

    # ------------------------------------------------------------------ to be known

    def _be_known(self, now: Micros) -> None:
        """Claim this opening until it is known; see then whether it stays so."""
        if self._open is None or self.lacks_loss:  # which the directory learns first
            return
        if self.is_known:
            if not self._was_known:
                self._was_known, self.declined = True, None
                alive = self._known.keys.alive(self._me)
                self.announcements.append((alive, msgspec.json.encode(self._announcement)))
            return
        if self._was_known:
            self.declined = self._is_gone()
            return
        if self._wishes.repeated(self._claiming, now):
            return
        changed = self._claimed(self._open)
        if isinstance(changed, Declined):
            self.declined, self._claiming = changed.why, None
            return
        self.declined = None
        puts = {self._known.shard_key: encoded(changed)}
        if self._known.shard is None and not self.config.secret:
            founded = replace(self.config, nonce=self._wishes.nonce, secret=self._wishes.secret())
            puts[self._known.keys.config] = encoded(founded)
        self._claiming = self._wishes.made(puts)

    def _claimed(self, mine: OpenReplica) -> Changed:
        """The shard's value with this opening in it."""
        known = self._known
        for key in (known.shard_key, known.keys.config):
            if key in known.faults:
                return Declined(known.faults[key])
        if known.shard is not None:
            return transactions.join(
                known.shard, self._me, mine.directory, identity=mine.identity,
                promised_epoch=mine.promised, config=self.config, nonce=self._wishes.nonce,
                generation=mine.generation, reads=self._announcement.reads,
            )  # fmt: skip
        return may_not_found(self._me, mine.promised, self.config) or transactions.found(
            self._me, mine.directory, identity=mine.identity, tag=mine.tag,
            generation=mine.generation, leader_epoch=first_epoch(mine.promised),
            config=self.config, nonce=self._wishes.nonce, reads=self._announcement.reads,
        )  # fmt: skip

    def _is_gone(self) -> str:
        """This opening was known, and is not there any more."""
        shard = self._known.shard
        if shard is None:
            return f"etcd has lost the shard that {self._me} is a replica of: put its copy back"
        there = shard.joining.get(self._me) or shard.in_sync.get(self._me)
        if there is None:
            return (
                f"{self._me} was removed from the cluster: stop it. Started again, it joins anew, "
                "if there is room for it"
            )
        return (
            f"another process, or another directory, runs as {self._me} (incarnation "
            f"{there.incarnation}, opening {there.openings}): stop this one, and give each server "
            "an id of its own"
        )

    # ------------------------------------------------------------------ to write more

    def _raise_version(self, now: Micros) -> None:
        """The leader may write what every replica reads, once the shard's value says so."""
        changed = self._known.raised(self._me, self._wishes.nonce) if self.is_known else None
        if changed is not None and not self._wishes.repeated(self._raising, now):
            self._raising = self._wishes.made({self._known.shard_key: encoded(changed)})

    # ------------------------------------------------------------------ news

    def _news(self) -> list[Told]:
        """The view, if anything that the rules go by is otherwise than it was told."""
        if self._looked_at == self._known.changes:
            return []
        self._looked_at = self._known.changes
        view = self.view
        if view is None:
            return []
        news = view, self.alive, self.servers
        if news == self._told_last:
            return []
        self._told_last = news
        return [ViewTold(view, self.alive)]
