"""Why a leader takes nothing new just now, in words: which servers it waits for, and what to do."""

from collections.abc import Mapping

from oncemq.protocol.names import Micros, ServerId, ShardId
from oncemq.replication.in_sync_set import InSyncSet
from oncemq.replication.remote_member import RemoteMember
from oncemq.replication.view import ReplicationLimits


def what_lacks(
    shard: ShardId,
    in_sync: InSyncSet,
    remotes: Mapping[ServerId, RemoteMember],
    waits_since: Micros,
    now: Micros,
    limits: ReplicationLimits,
) -> str | None:
    """None: what is new can be committed. `waits_since`: when the commit last moved on."""
    waited_for = sorted(in_sync.counted & remotes.keys())
    full = [name for name in waited_for if remotes[name].is_full]
    if full:
        return (
            f"the disk of {', '.join(full)} is full, and shard {shard} needs "
            f"{limits.min_in_sync} servers that store: free room there"
        )
    if in_sync.is_enough and now - waits_since < limits.refuse_after:
        return None
    silent = [name for name in waited_for if remotes[name].is_behind(now, limits.lag_max)]
    lacking = ", ".join(silent) or "servers to come into sync"
    return (
        f"shard {shard} needs {limits.min_in_sync} servers that store and waits for {lacking}: "
        "start what is down, or mend the network"
    )
