"""What a leader can say of each other replica, for people: how far it is, and since when."""

from typing import NamedTuple

from oncemq.protocol.names import Micros, Serial, ServerId
from oncemq.replication.in_sync_set import InSyncSet
from oncemq.replication.remote_member import RemoteMember


class MemberStanding(NamedTuple):
    """One other replica, as its leader sees it."""

    name: ServerId
    facts: dict[str, str | int | bool]


def standing_of(
    remote: RemoteMember, in_sync: InSyncSet, last: Serial, now: Micros
) -> MemberStanding:
    """Times are in milliseconds; -1: never."""
    caught_up = remote.caught_up_at
    return MemberStanding(
        remote.name,
        {
            "in_sync": in_sync.holds(remote.name, remote.incarnation),
            "proposed": in_sync.view.proposed == remote.name,
            "stage": remote.stage.name.lower(),
            "acked": int(remote.acked),
            "behind_records": max(0, last - remote.acked),
            "caught_up_ms": -1 if caught_up is None else max(0, (now - caught_up) // 1000),
            "heard_ms": max(0, (now - remote.heard_at) // 1000),
            "disk_full": remote.is_full,
        },
    )
