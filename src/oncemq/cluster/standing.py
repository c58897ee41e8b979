"""What a server says of itself and its shard, in `once status` and `once cluster status`."""

from oncemq.cluster.agreement.shard_agreement import ShardAgreement
from oncemq.cluster.leading import Leading
from oncemq.cluster.parts import Parts
from oncemq.protocol.names import Micros

NOT_HEARD = "nothing heard of it yet"

Fact = str | int | float | bool


def standing(parts: Parts, agreement: ShardAgreement, now: Micros) -> dict[str, Fact]:
    """As plain facts."""
    leader, leader_epoch = agreement.leader_address()
    facts: dict[str, Fact] = {
        "cluster_name": agreement.cluster,
        "cluster_server": parts.place.me,
        "cluster_shard": int(parts.place.shard_id),
        "cluster_role": _role(parts),
        "cluster_leader": leader,
        "cluster_leader_epoch": int(leader_epoch),
        "cluster_version": 0 if agreement.shard is None else agreement.shard.version,
        "cluster_older": ", ".join(agreement.older),
        "cluster_etcd": agreement.away or ("there" if agreement.has_snapshot else NOT_HEARD),
        "cluster_trouble": "; ".join([*agreement.trouble, *_trouble_of(parts)]),
        "cluster_faults": "; ".join([*agreement.faults, *_trouble_of(parts)]),  # but for etcd
        "cluster_declined": agreement.declined or "",
        **_agreed(agreement),
    }
    if parts.filling is not None:
        facts["cluster_filled_bytes"] = parts.filling.filled_bytes
        facts["cluster_filled_of_bytes"] = parts.filling.bytes_in_all
    elif parts.opened is not None:
        opened = parts.opened
        facts["cluster_disk_full"] = opened.log.room.was_refused(now // 1000)
        facts["cluster_log"] = opened.log.identity.hex()
        facts["cluster_promised"] = int(opened.promised.leader_epoch)
        facts["cluster_last_epoch"] = int(opened.tail.leader_epoch)
        facts["cluster_last"] = int(opened.log.last_serial)
        facts["cluster_synced"] = int(opened.log.durable_serial)
        facts["cluster_applied"] = int(opened.applied)
    if (following := parts.following) is not None:
        heard_at = following.heard_at
        facts["cluster_commit"] = int(following.rules.commit)
        facts["cluster_leader_heard_ms"] = (now - heard_at) // 1000 if heard_at else -1
    if (leading := parts.leading) is not None:
        facts |= _of_members(leading, agreement, now)
    return facts


def _agreed(agreement: ShardAgreement) -> dict[str, Fact]:
    """What the cluster agreed on, as this server last heard of it; nothing where it heard nothing.

    With etcd away this is all that there is: so each server tells it.
    """
    facts: dict[str, Fact] = {}
    if agreement.has_snapshot:
        config = agreement.config
        facts["cluster_replicas_max"] = config.replicas
        facts["cluster_min_in_sync"] = config.min_in_sync
        facts["cluster_founder"] = config.founder or ""
    if (shard := agreement.shard) is not None:
        facts["cluster_min_in_sync"] = shard.min_in_sync
        facts["cluster_in_sync"] = ",".join(sorted(shard.in_sync))
        facts["cluster_joining"] = ",".join(sorted(shard.joining))
        facts["cluster_proposed"] = shard.proposed or ""
        facts["cluster_leader_id"] = shard.leader or ""
    for name, state in sorted(agreement.servers.items()):
        facts[f"server.{name}.address"] = state.address
        facts[f"server.{name}.alive"] = name in agreement.alive
        facts[f"server.{name}.draining"] = state.draining
    return facts


def _trouble_of(parts: Parts) -> list[str]:
    """What is wrong with this server's own copy."""
    following = "" if parts.following is None else parts.following.trouble
    return [*parts.mending.trouble, *(each for each in (parts.trouble, following) if each)]


def _of_members(leading: Leading, agreement: ShardAgreement, now: Micros) -> dict[str, Fact]:
    rules = leading.rules
    goes_on = rules.is_serving and agreement.away is not None  # nobody can take it over
    refuses = rules.lacks(now) if goes_on else rules.refusal(now)
    facts: dict[str, Fact] = {
        "cluster_commit": int(rules.commit),
        "cluster_applied": int(rules.commit),
        "cluster_refuses": refuses or "",
    }
    for each in rules.standings(now):
        for fact, value in each.facts.items():
            facts[f"member.{each.name}.{fact}"] = value
    return facts


def _role(parts: Parts) -> str:
    if parts.leading is not None:
        if parts.leading.stepped_down is not None:
            return "steps down"  # once nothing is under way to its disk, which may take long
        return "begins to lead" if parts.driver is None else "leads"
    if parts.filling is not None:
        return "is filled"
    return "follows" if parts.is_let_in else "waits for the cluster"
