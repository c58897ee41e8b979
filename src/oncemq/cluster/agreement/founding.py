"""Whether a server may begin a cluster with its directory, and in which epoch.

An empty etcd does not prove an empty cluster: etcd may have lost its data, or be another one. So a
directory that was a replica before does not begin a cluster by itself: it may lack what others
have, and a person decides (`once cluster found`).
"""

from oncemq.coordination.transactions import Declined
from oncemq.coordination.values import ClusterConfig
from oncemq.protocol.names import LeaderEpoch, ServerId

FOUNDED_ABOVE = 1_000  # epochs that other directories may have promised beyond the founder's


def may_not_found(me: ServerId, promised: LeaderEpoch, config: ClusterConfig) -> Declined | None:
    """Why not, or None."""
    founder = config.founder
    if founder is not None and founder != me:
        return Declined(f"the cluster is to begin with the directory of {founder}: start it")
    if founder is None and promised > 0:
        return Declined(
            f"etcd has nothing of this cluster, and the data directory of {me} was a "
            f"replica up to epoch {promised}: etcd lost its data, or is another one. Put "
            "etcd's copy back, or begin with the directory that has the most: "
            "`once cluster found ID`. See docs/OPERATING.md, etcd"
        )
    return None


def first_epoch(promised: LeaderEpoch) -> int:
    """The epoch before the first one. Where a cluster is founded again, others promised more, and
    an epoch that one of them led is not led twice: so it goes on far above.
    """
    return promised + FOUNDED_ABOVE if promised else 0
