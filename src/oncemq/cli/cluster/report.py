"""How a cluster is, as far as its servers and etcd tell: one report from all that they said. PURE.

Of what servers say about the cluster as a whole, the one of the highest epoch counts, and there the
leader; etcd, where it answers, before all of them. What a server says of itself counts always; of
one that does not answer there is what its leader knows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from oncemq.coordination.values import ClusterConfig, ServerState, ShardReplicas
from oncemq.protocol.names import ServerId

LEADS, BEGINS, FOLLOWS = "leads", "begins to lead", "follows"
SILENT = "does not answer"

Facts = dict[str, str | int | float | bool]


@dataclass(frozen=True, slots=True)
class ServerAnswer:
    """What came from one address; without facts, why."""

    address: str
    facts: Facts | None
    why: str = ""

    @property
    def name(self) -> str:
        """The server's id; empty: it did not answer, or is of no cluster."""
        return "" if self.facts is None else str(self.facts.get("cluster_server", ""))

    @property
    def cluster(self) -> str:
        """The name of its cluster; empty: none, or a version that does not tell."""
        return "" if self.facts is None else str(self.facts.get("cluster_name", ""))


@dataclass(frozen=True, slots=True)
class EtcdAnswer:
    """What etcd has of the cluster, or why it does not say."""

    away: str | None = None
    shard: ShardReplicas | None = None
    config: ClusterConfig | None = None
    servers: Mapping[ServerId, ServerState] = field(default_factory=dict[ServerId, ServerState])
    alive: frozenset[ServerId] = frozenset()


@dataclass(slots=True)
class ServerReport:
    """One server: what it says of itself, and what its leader says of it."""

    id: str
    address: str = ""
    advertised: str = ""  # where the others look for it; empty: they do not know
    role: str = SILENT
    why: str = ""  # it does not answer
    leader_epoch: int | None = None
    in_sync: bool = False
    joining: bool = False
    behind_records: int | None = None
    behind_ms: int | None = None  # since when it has not had everything
    heard_ms: int | None = None  # since the leader heard of it
    stage: str = ""  # of how the leader brings it up to date
    filled_bytes: int | None = None
    last: int | None = None
    disk_full: bool = False
    draining: bool = False
    alive: bool | None = None  # has its lease; None: not known
    declined: str = ""
    trouble: str = ""  # whatever is wrong with it, but for etcd that it does not reach
    etcd: str = ""  # as it reaches it: "there", or why not

    @property
    def answers(self) -> bool:
        """Whether anything came from it."""
        return self.role != SILENT

    @property
    def is_away(self) -> bool:
        """Whether it reaches no member of etcd."""
        return self.etcd not in ("", "there")


@dataclass(slots=True)
class ClusterReport:
    """The cluster as a whole, and each server of it."""

    cluster: str = ""
    shard: int = 1
    leader: str = ""  # its id, as agreed; whether it answers, its server's report says
    leader_epoch: int = 0
    serving: bool = False  # a leader takes puts
    refuses: str = ""  # why it takes none
    founded: bool = False
    founder: str = ""
    replicas_max: int = 0  # 0: nobody knows
    min_in_sync: int = 0
    in_sync: list[str] = field(default_factory=list[str])
    joining: list[str] = field(default_factory=list[str])
    proposed: str = ""
    older: str = ""  # who runs an older version, and is waited for before newer things are written
    commit: int | None = None
    last: int | None = None
    etcd: str = ""  # "there", or why not; empty: nobody knows
    etcd_asked: bool = False
    servers: list[ServerReport] = field(default_factory=list[ServerReport])
    twins: list[str] = field(default_factory=list[str])  # several processes with one id
    strangers: list[str] = field(default_factory=list[str])  # who answers, and is not of it
    wrong: list[str] = field(default_factory=list[str])

    def server(self, name: str) -> ServerReport | None:
        """The report of one of them."""
        return next((each for each in self.servers if each.id == name), None)

    @property
    def is_led(self) -> bool:
        """Whether a leader answers."""
        leader = self.server(self.leader)
        return leader is not None and leader.role in (LEADS, BEGINS)

    @property
    def is_etcd_away(self) -> bool:
        """Whether no server that answers reaches etcd; where none does, what a look shows."""
        told = [each for each in self.servers if each.etcd]
        return all(each.is_away for each in told) if told else self.etcd not in ("", "there")

    @property
    def may_fail(self) -> int:
        """How many more may fail, and puts go on: those in sync that are there, above the least."""
        there = [each for each in self.servers if each.in_sync and each.answers]
        return max(0, len(there) - self.min_in_sync) if self.serving else 0


def report_of(
    answers: Sequence[ServerAnswer], etcd: EtcdAnswer | None, *, cluster: str | None = None
) -> ClusterReport:
    """All of it; `wrong` is for `findings`."""
    report = ClusterReport(cluster=cluster or cluster_of(answers) or "")
    members = [each for each in answers if each.name and each.cluster == report.cluster != ""]
    report.strangers = [
        _stranger(each) for each in answers if each.facts is not None and each not in members
    ]
    facts = [each.facts for each in members if each.facts is not None]
    if known := max(facts, key=_authority, default=None):
        _take_agreed(report, known)
    report.etcd_asked = etcd is not None
    if etcd is not None:
        report.etcd = etcd.away or "there"
        _take_etcd(report, etcd)
    for each in sorted(members, key=_is_let_in):
        _take_own(report, each)
    report.twins = _twins(members)
    for each in answers:
        if each.facts is None:
            _take_silent(report, each)
    leads = [each for each in facts if each.get("cluster_role") in (LEADS, BEGINS)]
    if leads:
        _take_leader(report, max(leads, key=_authority))
    for each in report.servers:
        each.in_sync = each.id in report.in_sync and each.id not in report.joining
        each.joining = each.id in report.joining
    report.servers.sort(key=lambda each: each.id)
    return report


def cluster_of(answers: Sequence[ServerAnswer]) -> str | None:
    """Whose servers these are; of several clusters the first that answered."""
    return next((each.cluster for each in answers if each.cluster), None)


def _stranger(answer: ServerAnswer) -> str:
    if not answer.name:
        return f"{answer.address} is a server of no cluster"
    of = f"of the cluster {answer.cluster}" if answer.cluster else "of another version"
    return f"{answer.address} is {answer.name}, a server {of}"


def _is_let_in(answer: ServerAnswer) -> bool:
    return answer.facts is not None and not answer.facts.get("cluster_declined")


def _twins(answers: Sequence[ServerAnswer]) -> list[str]:
    addresses: dict[str, list[str]] = {}
    for each in answers:
        addresses.setdefault(each.name, []).append(each.address)
    return [
        f"{len(found)} processes run as {name}, at {', '.join(sorted(found))}"
        for name, found in sorted(addresses.items())
        if len(found) > 1
    ]


def _authority(facts: Facts) -> tuple[bool, int, bool]:
    is_leader = facts.get("cluster_role") == LEADS
    return "cluster_in_sync" in facts, int(facts.get("cluster_leader_epoch", 0)), is_leader


def _list(facts: Facts, name: str) -> list[str]:
    return [each for each in str(facts.get(name, "")).split(",") if each]


def _take_agreed(report: ClusterReport, facts: Facts) -> None:
    """What a server last heard that was agreed on."""
    report.shard = int(facts.get("cluster_shard", 1))
    report.leader_epoch = int(facts.get("cluster_leader_epoch", 0))
    report.leader = str(facts.get("cluster_leader_id", ""))
    report.founded = "cluster_in_sync" in facts
    report.founder = str(facts.get("cluster_founder", ""))
    report.replicas_max = int(facts.get("cluster_replicas_max", 0))
    report.min_in_sync = int(facts.get("cluster_min_in_sync", 0))
    report.in_sync = _list(facts, "cluster_in_sync")
    report.joining = _list(facts, "cluster_joining")
    report.proposed = str(facts.get("cluster_proposed", ""))
    report.older = str(facts.get("cluster_older", ""))
    report.etcd = str(facts.get("cluster_etcd", ""))
    for fact, value in facts.items():
        if fact.startswith("server.") and fact.endswith(".address"):
            name = fact.removeprefix("server.").removesuffix(".address")
            found = _report_for(report, name)
            found.address = found.advertised = str(value)
            found.alive = bool(facts.get(f"server.{name}.alive"))
            found.draining = bool(facts.get(f"server.{name}.draining"))
    for name in {*report.in_sync, *report.joining}:
        _report_for(report, name)


def _take_etcd(report: ClusterReport, etcd: EtcdAnswer) -> None:
    """What etcd has: newer than what any server heard of it."""
    if etcd.away is not None:
        return
    shard, config = etcd.shard, etcd.config
    report.founded = shard is not None
    if config is not None:
        report.replicas_max, report.min_in_sync = config.replicas, config.min_in_sync
        report.founder = config.founder or ""
    if shard is not None:
        report.leader, report.leader_epoch = shard.leader or "", shard.leader_epoch
        report.in_sync, report.joining = sorted(shard.in_sync), sorted(shard.joining)
        report.proposed, report.min_in_sync = shard.proposed or "", shard.min_in_sync
    else:
        report.leader, report.in_sync, report.joining = "", [], []
    for name in {*report.in_sync, *report.joining, *etcd.servers}:
        found = _report_for(report, name)
        found.alive = name in etcd.alive
        if (state := etcd.servers.get(ServerId(name))) is not None:
            found.address = found.advertised = state.address
            found.draining = state.draining
        else:
            found.advertised = ""


def _take_own(report: ClusterReport, answer: ServerAnswer) -> None:
    """What a server says of itself."""
    facts = answer.facts
    assert facts is not None
    found = _report_for(report, answer.name)
    found.address = answer.address
    found.role = str(facts.get("cluster_role", ""))
    found.leader_epoch = int(facts.get("cluster_leader_epoch", 0))
    found.declined = str(facts.get("cluster_declined", ""))
    found.trouble = str(facts.get("cluster_faults", ""))
    found.etcd = str(facts.get("cluster_etcd", ""))
    found.disk_full = bool(facts.get("cluster_disk_full", False))
    if "cluster_last" in facts:
        found.last = int(facts["cluster_last"])
    if "cluster_filled_bytes" in facts:
        found.filled_bytes = int(facts["cluster_filled_bytes"])
    if found.role == FOLLOWS and int(facts.get("cluster_leader_heard_ms", -1)) >= 0:
        found.heard_ms = int(facts["cluster_leader_heard_ms"])


def _take_silent(report: ClusterReport, answer: ServerAnswer) -> None:
    """An address without an answer; whose it is, the others may have told."""
    owner = next((each for each in report.servers if each.address == answer.address), None)
    if owner is None:
        owner = _report_for(report, "?" + answer.address)
        owner.address = answer.address
    owner.why = answer.why


def _take_leader(report: ClusterReport, facts: Facts) -> None:
    """What who leads knows of the others."""
    me = str(facts["cluster_server"])
    if report.leader == me:
        report.refuses = str(facts.get("cluster_refuses", ""))
        report.serving = facts.get("cluster_role") == LEADS and not report.refuses
        report.commit, report.last = int(facts["cluster_commit"]), int(facts["cluster_last"])
    for each in report.servers:
        prefix = f"member.{each.id}."
        if prefix + "stage" not in facts:
            continue
        behind = int(facts[prefix + "behind_records"])
        caught_up = int(facts[prefix + "caught_up_ms"])
        each.behind_records = behind
        each.behind_ms = (caught_up if caught_up >= 0 else None) if behind else 0
        each.heard_ms = int(facts[prefix + "heard_ms"])
        each.stage = str(facts[prefix + "stage"])
        each.disk_full |= bool(facts[prefix + "disk_full"])


def _report_for(report: ClusterReport, name: str) -> ServerReport:
    found = report.server(name)
    if found is None:
        report.servers.append(found := ServerReport(name))
    return found
