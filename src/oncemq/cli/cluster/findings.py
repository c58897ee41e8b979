"""What is wrong with a cluster, each with the way out, in words. PURE.

The most urgent comes first: that puts are not taken, then what may become of that, then the rest.
"""

from collections.abc import Iterator

from oncemq.cli.cluster.report import BEGINS, LEADS, ClusterReport, ServerReport
from oncemq.cluster.standing import NOT_HEARD

BEHIND_MS = 2_000  # what is behind for less catches up by itself before anybody looks
UNHEARD_MS = 5_000  # a leader that asks several times in each second had no answer for so long


def findings_of(report: ClusterReport) -> list[str]:
    """All of it; an empty list: the cluster is in order."""
    found = [*_of_the_leader(report), *_of_etcd(report)]
    found += [
        f"{each}: stop one of them, and give each server an id of its own" for each in report.twins
    ]
    found += _of_shared_addresses(report)
    for each in report.servers:
        found += _of_server(report, each)
    found += _of_the_set(report)
    for each in report.strangers:
        found.append(f"{each}: name servers of one cluster with --server, all of one version")
    return list(dict.fromkeys(found))


def _of_the_leader(report: ClusterReport) -> Iterator[str]:
    """Why puts are not taken."""
    if report.serving:
        return
    leader = report.server(report.leader)
    if not any(each.answers for each in report.servers):
        yield "no server answers: start them, or name their addresses with --server"
    elif not report.founded:
        yield _not_founded(report)
    elif report.refuses and (leader is None or leader.role != BEGINS):
        yield f"puts are refused: {report.refuses}"
    elif leader is None:
        yield f"the cluster has no leader: {_why_no_leader(report)}"
    elif not leader.answers:
        yield (
            f"{leader.id} leads as far as the others know, and does not answer ({leader.why}): "
            f"another takes over within seconds, {_if_it_can(report, leader.id)}"
        )
    elif leader.role == BEGINS:
        yield f"{leader.id} was elected, and takes puts once others follow: {_missing(report)}"
    elif leader.role != LEADS and report.is_etcd_away:
        yield f"{leader.id} led, and was started again: nobody can take the lead without etcd"
    elif leader.role != LEADS:
        yield f"{leader.id} was given the lead and has not begun: look again in a few seconds"


def _not_founded(report: ClusterReport) -> str:
    declined = next((each.declined for each in report.servers if each.declined), "")
    if declined:
        return f"the cluster serves nothing: {declined}"
    if report.founder:
        founder = report.founder
        return f"the cluster is to begin with the directory of {founder}: start {founder}"
    if report.is_etcd_away:
        return "the servers wait for etcd: without it nobody knows who may lead"
    return "the cluster is not there yet: the first server that reaches etcd founds it; look again"


def _why_no_leader(report: ClusterReport) -> str:
    if report.is_etcd_away:
        return "nobody can take the lead while etcd is away"
    candidates = [each for each in report.servers if each.in_sync]
    if not any(each.answers for each in candidates):
        return (
            f"only {_names(report.in_sync)} {_has(report.in_sync)} everything that was "
            "acknowledged, and may lead: start one of them with its directory"
        )
    return f"an election is under way; {_missing(report)}"


def _if_it_can(report: ClusterReport, without: str) -> str:
    if report.is_etcd_away:
        return "once etcd is back"
    others = [each for each in report.servers if each.in_sync and each.id != without]
    if not any(each.answers for each in others):
        return f"once one that is in sync is there: start {_names([each.id for each in others])}"
    return "as soon as its lease is over"


def _missing(report: ClusterReport) -> str:
    silent = [each.id for each in report.servers if each.in_sync and not each.answers]
    if silent:
        return f"start {_names(silent)}, or look again in a few seconds"
    if (lacking := report.min_in_sync - len(report.in_sync)) > 0:
        return f"start {lacking} more, for {report.min_in_sync} must be in sync"
    return "look again in a few seconds"


def _of_etcd(report: ClusterReport) -> Iterator[str]:
    away = [each for each in report.servers if each.is_away]
    is_here = report.etcd_asked and report.etcd == "there"
    if report.is_etcd_away and not is_here:
        heard = [each.etcd for each in away if each.etcd != NOT_HEARD]
        why = next(iter([*heard, *(each.etcd for each in away)]), report.etcd)
        goes_on = "puts and gets go on while the leader and enough others are there, but "
        yield (
            f"etcd is away ({why}): {goes_on if report.serving else ''}nobody takes the lead, "
            "joins or leaves: start etcd's members, or mend the network to them"
        )
        return
    if report.etcd_asked and not is_here:
        yield (
            f"etcd does not answer here ({report.etcd}), and the servers reach it: name other "
            "members with --etcd, or mend the network from here"
        )
    for each in away:
        others = "this command does" if report.is_etcd_away else "others do"
        yield (
            f"{each.id} does not reach etcd ({each.etcd}), and {others}: mend its network, or the "
            "addresses in its --etcd"
        )


def _of_shared_addresses(report: ClusterReport) -> Iterator[str]:
    """Where the others look for two servers, there is one at most."""
    by_address: dict[str, list[str]] = {}
    for each in report.servers:
        by_address.setdefault(each.advertised, []).append(each.id)
    for address, names in by_address.items():
        if address and len(names) > 1:
            yield (
                f"{' and '.join(names)} are to be found at {address}, all of them: start each "
                "with an --advertise that is its own; who is gone for good: `once cluster remove`"
            )


def _of_server(report: ClusterReport, server: ServerReport) -> Iterator[str]:
    if server.id.startswith("?"):
        if any(each.answers for each in report.servers):
            yield f"{server.address} does not answer ({server.why}): start what belongs there"
        return
    if not server.answers:
        is_replica = server.in_sync or server.joining
        where = "" if server.address in server.why else f" at {server.address}"
        why = f" ({server.why})" if server.why else ""
        gone = f"; gone for good: `once cluster remove {server.id}`, then start another"
        runs = "; if it runs, its --advertise is wrong, or the network to it is cut"
        yield f"{server.id} does not answer{where}{why}: start it{runs if server.alive else ''}" + (
            gone if is_replica else f"; not needed any more: `once cluster remove {server.id}`"
        )
        return
    if server.declined and report.founded:
        yield f"{server.id} serves nothing: {server.declined}"
    elif server.trouble and not server.declined:
        yield f"{server.id}: {server.trouble}"
    if server.disk_full:
        what = "so puts are refused" if report.leader == server.id else "so it stores nothing"
        yield f"the disk of {server.id} is full, {what}: free room there"
    if (out_of_reach := _out_of_reach(report, server)) is not None:
        yield out_of_reach
    else:
        yield from _catching_up(server)
    if server.draining and report.leader == server.id:
        yield (
            f"{server.id} is to lead nothing and still leads, for nobody else can: bring another "
            "server into sync"
        )


def _out_of_reach(report: ClusterReport, server: ServerReport) -> str | None:
    """Why its leader does not hear of a server that answers here."""
    if server.id == report.leader or server.declined or not report.is_led:
        return None
    is_replica = server.in_sync or server.joining
    if is_replica and not server.advertised:
        return (
            f"the others do not know where {server.id} is (etcd has no server/{server.id}): it "
            "says so again within a second while it reaches etcd; else start it again"
        )
    if server.heard_ms is None or server.heard_ms < UNHEARD_MS:
        return None
    return (
        f"{report.leader} has not heard of {server.id} for {server.heard_ms / 1000:.1f} s, at "
        f"{server.advertised}, where {server.id} says that it is: start {server.id} with an "
        "--advertise that the others reach, or mend the network between them"
    )


def _catching_up(server: ServerReport) -> Iterator[str]:
    if server.filled_bytes is not None:
        yield (
            f"{server.id} is filled with the leader's files ({server.filled_bytes:,} bytes so "
            "far): wait until it is in sync"
        )
    elif server.joining and not server.declined:
        records = server.behind_records
        behind = "" if records is None else f", {records:,} records behind"
        yield f"{server.id} is not in sync yet{behind}: wait; it counts once it has everything"
    elif server.behind_records and (server.behind_ms is None or server.behind_ms >= BEHIND_MS):
        yield (
            f"{server.id} is {server.behind_records:,} records behind"
            f"{_since(server.behind_ms)}: its disk or its network is slow"
        )


def _since(ms: int | None) -> str:
    return "" if ms is None else f" for {ms / 1000:.1f} s"


def _of_the_set(report: ClusterReport) -> Iterator[str]:
    """How many there are, beside how many there should be."""
    if not report.founded or not report.replicas_max:
        return
    replicas = {*report.in_sync, *report.joining}
    if len(replicas) < report.replicas_max:
        lacking = report.replicas_max - len(replicas)
        yield (
            f"the cluster has {len(replicas)} of its {report.replicas_max} replicas: start "
            f"{lacking} more, with --server-id of {'its' if lacking == 1 else 'their'} own"
        )
    if report.serving and report.may_fail == 0 and report.replicas_max > report.min_in_sync:
        yield (
            f"no further server may fail: puts are refused with fewer than {report.min_in_sync} "
            "in sync"
        )


def _names(names: list[str]) -> str:
    return " or ".join(names) or "nobody"


def _has(names: list[str]) -> str:
    return "has" if len(names) == 1 else "have"
