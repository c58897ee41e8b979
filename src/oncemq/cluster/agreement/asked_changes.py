"""What the rules of replication ask for, as a change of the shard's value.

Law: the directories that a change names are those of the value that it replaces. Who is not there
any more with the directory that the rules mean is declined.
"""

from typing import assert_never

from oncemq.coordination import transactions
from oncemq.coordination.transactions import Changed, Declined
from oncemq.coordination.values import OpenedDirectory, ShardReplicas
from oncemq.protocol.names import LeaderEpoch, ServerId
from oncemq.protocol.replicas.messages import Life
from oncemq.replication.view import (
    Ask,
    Elect,
    Expand,
    Propose,
    Resign,
    ShardView,
    Shrink,
    Withdraw,
)


def changed_by(
    ask: Ask,
    shard: ShardReplicas,
    me: ServerId,
    directory: OpenedDirectory,
    *,
    promised_epoch: int,
    nonce: str,
) -> Changed:
    """The value after it, or why it is not to be; `directory` is what this server has open."""
    leader_epoch = shard.leader_epoch
    match ask:
        case Elect():
            return transactions.elect(
                shard, me, directory, promised_epoch=promised_epoch, nonce=nonce
            )
        case Resign(to):
            there = shard.in_sync.get(to)
            if there is None or to in shard.joining:
                return Declined(f"{to} is not in sync with the directory that it has now")
            return transactions.resign(
                shard, me, leader_epoch=leader_epoch, to=to, directory=there, nonce=nonce
            )
        case Propose(member, incarnation):
            there = _joining(shard, member, incarnation)
            if there is None:
                return Declined(f"{member} is not joining with the directory that was caught up")
            return transactions.propose(
                shard, me, leader_epoch=leader_epoch, server=member, directory=there, nonce=nonce
            )
        case Expand(member, incarnation):
            there = _joining(shard, member, incarnation)
            if there is None:
                return Declined(f"{member} is not joining with the directory that was caught up")
            return transactions.expand(
                shard, me, leader_epoch=leader_epoch, server=member, directory=there, nonce=nonce
            )
        case Withdraw():
            return transactions.withdraw(shard, me, leader_epoch=leader_epoch, nonce=nonce)
        case Shrink(members):
            return _shrunk(shard, me, members, nonce)
        case _:
            assert_never(ask)


def view_of(
    shard: ShardReplicas,
    revision: int,
    me: ServerId,
    directory: OpenedDirectory,
    draining: frozenset[ServerId],
) -> ShardView:
    """The shard as the rules see it; this server is in sync only as it is open now."""
    lives = {
        server: Life(bytes.fromhex(there.incarnation), there.openings)
        for server, there in shard.in_sync.items()
        if server not in shard.joining and (server != me or there == directory)
    }
    return ShardView(
        revision,
        shard.leader,
        LeaderEpoch(shard.leader_epoch),
        tuple(shard.replicas),
        frozenset(shard.in_sync),
        shard.proposed,
        lives,
        draining,
    )


def _joining(shard: ShardReplicas, member: ServerId, incarnation: bytes) -> OpenedDirectory | None:
    """The directory that a member joins with, if it is the one that is meant."""
    there = shard.joining.get(member)
    return there if there is not None and there.incarnation == incarnation.hex() else None


def _shrunk(
    shard: ShardReplicas, me: ServerId, members: frozenset[ServerId], nonce: str
) -> Changed:
    """All of them leave, or nobody does."""
    changed: Changed = shard
    for member in sorted(members):
        if isinstance(changed, ShardReplicas):
            changed = transactions.shrink(
                changed, me, leader_epoch=shard.leader_epoch, server=member, nonce=nonce
            )
    return changed
