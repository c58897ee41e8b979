"""The changes of a shard's state: pure functions from the old value to the new one.

How it works. A shard has a leader and followers. A record is *committed* when every directory in
`in_sync`, and the one that is proposed, has synced it, and at least `min_in_sync` of `in_sync`
are counted. So whoever is in `in_sync` has all that was committed, and may lead; nobody else may.

    elect     in_sync member → leader, epoch + 1          fences the leader before
    resign    leader → another member, epoch + 1          when it cannot reach enough followers
    propose   joining → proposed                          from here on commits wait for it too
    expand    proposed → in_sync                          it has all that is committed
    withdraw  proposed → joining                          it fell behind before it was in sync
    shrink    in_sync → joining                           only then may commits do without it
    join      a directory was opened: in sync as before, or joining
    remove    joining → gone
    raise     version + n                                 every replica, as it runs now, reads it

Why `proposed`: an expansion that was written and whose answer is late may already be believed by
others, who elect the new member. Had the leader gone on committing without it meanwhile, what was
acknowledged would be missing there.

Why an opened directory is looked at: a server may come back under its old name with an empty disk,
or with one that was restored from a copy. Its word must not count for what it had before. It goes
to `joining` and is caught up like any other; its place in `in_sync` stays empty until then, so that
nobody is elected in its stead who lacks what it had.

Laws:
1. Of two leaders, each has an epoch of its own; epochs only grow.
2. The leader is in `in_sync`, or there is none.
3. `in_sync` changes by the leader in its epoch or by an election; what is committed is in all of
   it. A directory that is in sync and is opened again stays so, under its new count of openings.
4. A shrink or an election leaves at least `min_in_sync`, or changes nothing: a leader that reaches
   fewer stops committing instead. So whatever was committed may be elected on that many servers.
5. Only a directory that is recorded as in sync, as it is open now, is elected.
6. Who is proposed is joining; whoever joins anew is not proposed any more.
7. The version only grows, and every replica in the value reads it: whoever reads less cannot join.

One hole is known and not closed here: a disk that is put back to a copy made during its latest
opening looks like one that crashed then (`docs/adr/0042`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from oncemq.coordination.values import (
    ClusterConfig,
    OpenedDirectory,
    ServerState,
    ShardReplicas,
)
from oncemq.protocol.generations import depth
from oncemq.protocol.names import ServerId
from oncemq.protocol.replicas.versions import FIRST, NEWEST


@dataclass(frozen=True, slots=True)
class Declined:
    """The change is against the rules, or out of date; what to do instead."""

    why: str


Changed = ShardReplicas | Declined


def found(
    server: ServerId,
    directory: OpenedDirectory,
    *,
    identity: str,
    tag: int,
    generation: int,
    leader_epoch: int,
    config: ClusterConfig,
    nonce: str,
    reads: int = NEWEST,
) -> ShardReplicas:
    """The first value: one directory, of a single server or empty, is all that there is.

    It goes on from the highest epoch that the directory promised. Nothing is committed before
    others joined and were in sync: `min_in_sync` counts from the beginning. The version is the
    newest that the server reads: a server alone writes whatever it can.
    """
    return ShardReplicas(
        nonce=nonce,
        identity=identity,
        tag=tag,
        generation=generation,
        leader=None,
        leader_epoch=leader_epoch,
        in_sync={server: directory},
        joining={},
        proposed=None,
        min_in_sync=config.min_in_sync,
        version=reads,
    )


def join(
    shard: ShardReplicas,
    server: ServerId,
    directory: OpenedDirectory,
    *,
    identity: str | None,
    promised_epoch: int,
    config: ClusterConfig,
    nonce: str,
    generation: int | None = None,  # of the log there; None: as the shard's
    reads: int = NEWEST,
) -> Changed:
    """A replica opened its directory; `identity` is None when there is no log in it.

    Already so: the same value comes back, and nothing is to be written.
    """
    if identity is not None and identity != shard.identity:
        return Declined(
            f"the data directory of {server} has another log ({identity}) than the cluster "
            f"({shard.identity}): start {server} with an empty one, or, if the cluster was to "
            "begin with this one, see `once cluster found --help`"
        )
    if brings_loss(shard, server, directory, generation):
        return Declined(
            f"the log of {server} was restored from a backup, or loss was accepted in it, and the "
            "cluster's was not: once a server that is in sync is there, this log is put aside, and "
            f"{server} is filled. If none is left: `once cluster found {server} --replace`"
        )
    if shard.version > reads:
        return Declined(
            f"the servers of the cluster write version {shard.version}, and {server} runs a OnceMQ "
            f"that reads versions up to {reads}: run the version that the other servers run; its "
            "data directory can stay as it is"
        )
    if too_new := _promised_more(shard, server, promised_epoch):
        return too_new
    if server not in shard.replicas and len(shard.replicas) >= config.replicas:
        return Declined(
            f"the shard has its {config.replicas} replicas ({', '.join(shard.replicas)}); "
            f"remove one of them before {server} joins"
        )
    if directory in (shard.in_sync.get(server), shard.joining.get(server)):
        return shard
    proposed = None if shard.proposed == server else shard.proposed
    if _goes_on(shard, server, directory):
        in_sync = {**shard.in_sync, server: directory}
        # What a leader knew of its followers ended with its start: it must be elected again.
        leader = None if shard.leader == server else shard.leader
        joining = _without(shard.joining, server)
        return _next(
            shard, nonce, in_sync=in_sync, joining=joining, leader=leader, proposed=proposed
        )
    joining = {**shard.joining, server: directory}
    leader = None if shard.leader == server else shard.leader
    return _next(shard, nonce, joining=joining, leader=leader, proposed=proposed)


def brings_loss(
    shard: ShardReplicas, server: ServerId, directory: OpenedDirectory, generation: int | None
) -> bool:
    """Whether a new directory says of its log that it went back in time, and the shard's did not.

    Were it to lead, it would tell clients of a loss that did not happen. Each accepted loss and
    each restore makes a new directory; so one that is known here was let in with what it says. A
    shorter branch than the shard's tells of no loss: what it lacks it is sent.
    """
    if generation is None or generation == shard.generation:
        return False
    places = (shard.in_sync.get(server), shard.joining.get(server))
    if directory.incarnation in [each.incarnation for each in places if each is not None]:
        return False
    return not lacks_loss(shard, generation)


def lacks_loss(shard: ShardReplicas, generation: int) -> bool:
    """Whether the shard went back in time since a log of this generation was of it."""
    return depth(generation) < depth(shard.generation)


def _goes_on(shard: ShardReplicas, server: ServerId, directory: OpenedDirectory) -> bool:
    """Whether it is the directory that was in sync, opened again, and no copy of it.

    Once a copy of it came, which of them is which cannot be told: both have to join.
    """
    before, other = shard.in_sync.get(server), shard.joining.get(server)
    return (
        before is not None
        and before.incarnation == directory.incarnation
        and before.openings < directory.openings
        and (other is None or other.incarnation != directory.incarnation)
    )


def elect(
    shard: ShardReplicas,
    server: ServerId,
    directory: OpenedDirectory,
    *,
    promised_epoch: int,
    nonce: str,
) -> Changed:
    """A member takes the lead; the leader before leaves `in_sync` where enough remain."""
    if declined := _not_in_sync(shard, server, directory):
        return declined
    if too_new := _promised_more(shard, server, promised_epoch):
        return too_new
    in_sync, joining = shard.in_sync, shard.joining
    before = shard.leader
    if before is not None and before != server and len(in_sync) > shard.min_in_sync:
        in_sync, joining = _moved_out(shard, before)
    return _next(
        shard, nonce, leader=server, leader_epoch=shard.leader_epoch + 1, in_sync=in_sync,
        joining=joining, proposed=None,
    )  # fmt: skip


def resign(
    shard: ShardReplicas,
    by: ServerId,
    *,
    leader_epoch: int,
    to: ServerId,
    directory: OpenedDirectory,
    nonce: str,
) -> Changed:
    """The leader hands the lead to a member, as that one's directory was last seen."""
    if declined := _not_leader(shard, by, leader_epoch) or _not_in_sync(shard, to, directory):
        return declined
    if to == by:
        return Declined(f"{by} leads already; name another member")
    return _next(shard, nonce, leader=to, leader_epoch=shard.leader_epoch + 1, proposed=None)


def propose(
    shard: ShardReplicas,
    by: ServerId,
    *,
    leader_epoch: int,
    server: ServerId,
    directory: OpenedDirectory,
    nonce: str,
) -> Changed:
    """The leader means to take a replica into `in_sync`.

    From before this is asked until it is known not to be so, commits wait for that replica.
    """
    if declined := _not_leader(shard, by, leader_epoch):
        return declined
    if shard.joining.get(server) != directory:
        return Declined(f"{server} is not joining with the directory that was caught up")
    if shard.proposed not in (None, server):
        return Declined(f"{shard.proposed} is proposed; one at a time")
    return shard if shard.proposed == server else _next(shard, nonce, proposed=server)


def expand(
    shard: ShardReplicas,
    by: ServerId,
    *,
    leader_epoch: int,
    server: ServerId,
    directory: OpenedDirectory,
    nonce: str,
) -> Changed:
    """What is proposed has all that is committed, and is in sync from here on."""
    if declined := _not_leader(shard, by, leader_epoch):
        return declined
    if shard.proposed != server or shard.joining.get(server) != directory:
        return Declined(f"{server} is not proposed with the directory that was caught up")
    in_sync = {**shard.in_sync, server: directory}
    joining = _without(shard.joining, server)
    return _next(shard, nonce, in_sync=in_sync, joining=joining, proposed=None)


def withdraw(shard: ShardReplicas, by: ServerId, *, leader_epoch: int, nonce: str) -> Changed:
    """Who is proposed fell behind; commits may do without it once this is stored."""
    if declined := _not_leader(shard, by, leader_epoch):
        return declined
    return shard if shard.proposed is None else _next(shard, nonce, proposed=None)


def shrink(
    shard: ShardReplicas, by: ServerId, *, leader_epoch: int, server: ServerId, nonce: str
) -> Changed:
    """A member is too slow or gone; commits may do without it once this is stored."""
    if declined := _not_leader(shard, by, leader_epoch):
        return declined
    if server not in shard.in_sync:
        return Declined(f"{server} is not in sync")
    if server == by:
        return Declined(f"{by} leads and has all that is committed; it resigns instead")
    if len(shard.in_sync) <= shard.min_in_sync:
        return Declined(
            f"in sync are {', '.join(sorted(shard.in_sync))}, and {shard.min_in_sync} must be: "
            f"nothing is committed until {server} is back or another replica was caught up"
        )
    in_sync, joining = _moved_out(shard, server)
    return _next(shard, nonce, in_sync=in_sync, joining=joining)


def remove(shard: ShardReplicas, server: ServerId, *, nonce: str) -> Changed:
    """A replica is given up for good; its directory counts for nothing any more."""
    if server == shard.leader:
        return Declined(f"{server} leads the shard; drain it first")
    if server in shard.in_sync:
        return Declined(
            f"{server} is in sync, and the leader has not done without it: stop {server}, let "
            f"{shard.min_in_sync} others be in sync, and try again"
        )
    if server not in shard.joining:
        return Declined(f"{server} has no replica; these have: {', '.join(shard.replicas)}")
    proposed = None if shard.proposed == server else shard.proposed
    return _next(shard, nonce, joining=_without(shard.joining, server), proposed=proposed)


def raise_version(
    shard: ShardReplicas, by: ServerId, *, leader_epoch: int, reads: Mapping[str, int], nonce: str
) -> Changed:
    """The leader may write what every replica reads; `reads` says it of starts, by their claims.

    A start that nothing is known of may be of the first version. A replica whose directory was
    replaced has two places here, and of one of them nothing is known: it is waited for.
    """
    if declined := _not_leader(shard, by, leader_epoch):
        return declined
    directories = [*shard.in_sync.values(), *shard.joining.values()]
    version = min(reads.get(each.claim, FIRST) for each in directories)
    return shard if version <= shard.version else _next(shard, nonce, version=version)


def register(before: ServerState | None, *, address: str, nonce: str) -> ServerState:
    """A server says where it is; what an operator asked of it stays."""
    draining = before is not None and before.draining
    return ServerState(nonce=nonce, address=address, draining=draining)


def drain(before: ServerState, *, draining: bool, nonce: str) -> ServerState:
    """An operator wants a server to lead nothing, or wants it back."""
    return ServerState(nonce=nonce, address=before.address, draining=draining)


# ------------------------------------------------------------------ what several of them ask


def _not_leader(shard: ShardReplicas, server: ServerId, leader_epoch: int) -> Declined | None:
    if shard.leader == server and shard.leader_epoch == leader_epoch:
        return None
    return Declined(
        f"{server} does not lead in epoch {leader_epoch}: {shard.leader or 'nobody'} does, "
        f"in epoch {shard.leader_epoch}"
    )


def _not_in_sync(
    shard: ShardReplicas, server: ServerId, directory: OpenedDirectory
) -> Declined | None:
    if shard.has_in_sync(server, directory):
        return None
    if server in shard.in_sync:
        return Declined(f"what {server} has open is not the directory that was in sync")
    return Declined(f"{server} is not in sync; in sync are {', '.join(sorted(shard.in_sync))}")


def _promised_more(shard: ShardReplicas, server: ServerId, promised_epoch: int) -> Declined | None:
    """An epoch is stored before anybody promises it, so the store has lost what it had."""
    if promised_epoch <= shard.leader_epoch:
        return None
    return Declined(
        f"{server} promised to follow epoch {promised_epoch}, and the cluster knows of "
        f"{shard.leader_epoch} only: etcd was put back to an older copy. See OPERATING.md, etcd"
    )


def _moved_out(
    shard: ShardReplicas, server: ServerId
) -> tuple[dict[ServerId, OpenedDirectory], dict[ServerId, OpenedDirectory]]:
    """`in_sync` and `joining` without and with a member; a newer directory of it stays."""
    joining = {server: shard.in_sync[server], **shard.joining}
    return _without(shard.in_sync, server), joining


def _without(
    directories: dict[ServerId, OpenedDirectory], server: ServerId
) -> dict[ServerId, OpenedDirectory]:
    return {each: directory for each, directory in directories.items() if each != server}


def _next(shard: ShardReplicas, nonce: str, **changes: Any) -> ShardReplicas:
    return replace(shard, nonce=nonce, **changes)
