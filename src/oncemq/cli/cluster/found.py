"""`once cluster found`.

A cluster whose etcd lost its data is begun again with the directory of one of its servers, and the
logs of the others are then made equal to that one. So it must be the one that has everything that
was acknowledged. Whoever was in sync has, and which those were only etcd knew. But:

- Of two logs the one that ends in the higher leader epoch has more, and of the same epoch the
  longer one: the leader of an epoch had everything that was acknowledged before it, and each log
  that ends in that epoch is a beginning of the leader's.
- What was acknowledged is on `min_in_sync` disks. So the longest log of all but `min_in_sync - 1`
  replicas has it.
- A server that waits for the cluster follows nobody. Where so many wait, no leader that was not
  asked has enough others to acknowledge anything.

Law: a longer log than the founder's that was seen, or one that may be there and was not, is given
up by a person's word alone (`--accept-loss`), and named. What is cut off a log is kept in `torn/`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import click
from msgspec import structs

from oncemq.cli.cluster.agreed import Agreed, ChangeDeclined, NotYetSo, agreed_of, new_nonce
from oncemq.cli.cluster.asking import ask_all
from oncemq.cli.cluster.changing import WaitNotes, of_a_cluster, wait_option
from oncemq.cli.cluster.report import ServerAnswer
from oncemq.cli.terminal import output
from oncemq.cli.terminal.command import command
from oncemq.cli.terminal.session import CommandSession
from oncemq.cluster.agreement.known_keys import KnownKeys
from oncemq.coordination.coordinator import Transact
from oncemq.coordination.transactions import Declined
from oncemq.coordination.values import ClusterConfig, encoded
from oncemq.protocol.names import ServerId

WAITS = "waits for the cluster"


@dataclass(frozen=True, slots=True)
class WaitingServer:
    """A server that waits, and how far its log goes."""

    name: str
    log: str
    end: tuple[int, int]  # the epoch of its last record, and its serial
    promised: int

    @property
    def shown(self) -> str:
        """`b (epoch 7, record 120)`."""
        return f"{self.name} (epoch {self.end[0]}, record {self.end[1]:,})"


@of_a_cluster
@command("found")
@click.argument("name", metavar="ID")
@click.option("--replace", is_flag=True, help="etcd has the shard, and what it has is to go.")
@click.option("--accept-loss", is_flag=True, help="Longer logs, or absent ones, are given up.")
@click.option("--replicas", type=click.IntRange(1, 9), help="If it had not three: how many.")
@wait_option
def found_command(
    session: CommandSession,
    name: str,
    replace: bool,
    accept_loss: bool,
    replicas: int | None,
    wait: float,
) -> None:
    """Begin again with one server's directory, where etcd lost its data.

    Start every server that there is first, as always: they wait. This asks all of them (--server
    names their addresses), and founds the cluster with the directory of ID if no other has more.
    Where etcd was put back to an older copy, --replace takes that away. Exit code 1: another
    server has more, too few were asked, or servers still serve; nothing was changed then.
    """
    server = ServerId(name)
    with agreed_of(session) as agreed:
        known = agreed.look()
        cluster, looked_at = known.keys.cluster, known.revision(known.shard_key)
        answers = ask_all(session.config.server)
        config = settings_of(known, replicas)
        mine = may_found(answers, server, cluster)
        if isinstance(mine, Declined):
            raise ChangeDeclined(mine.why)
        if (loss := loss_of(mine, waiting_servers(answers, cluster), config)) is not None:
            if not accept_loss:
                raise ChangeDeclined(loss.why)
            session.note(f"once: given up, as you said: {loss.why}")

        def wanted(known: KnownKeys) -> Transact | Declined | None:
            if known.revision(known.shard_key) != looked_at:
                return Declined("the cluster changed meanwhile: look again, and try again")
            return founded(known, server, config, replace=replace, nonce=new_nonce())

        agreed.change(wanted)
        _until_founded(session, agreed, server, wait)
    facts = {"server": server, "founded": True, "leader_epoch": mine.end[0], "serial": mine.end[1]}
    said = f"the cluster {cluster} begins with the directory of {mine.shown}"
    session.answer(facts, f"{said}; the others join by themselves: `once cluster status`")


def waiting_servers(answers: Sequence[ServerAnswer], cluster: str) -> list[WaitingServer]:
    """Those of the cluster that wait with a log."""
    found: list[WaitingServer] = []
    for each in answers:
        facts = each.facts or {}
        if facts.get("cluster_name") == cluster and facts.get("cluster_role") == WAITS:
            end = int(facts.get("cluster_last_epoch", 0)), int(facts.get("cluster_last", 0))
            promised = int(facts.get("cluster_promised", 0))
            found.append(WaitingServer(each.name, str(facts.get("cluster_log", "")), end, promised))
    return found


def may_found(
    answers: Sequence[ServerAnswer], name: ServerId, cluster: str
) -> WaitingServer | Declined:
    """The server to begin with, or why nobody is to found the cluster now."""
    waiting = waiting_servers(answers, cluster)
    mine = next((each for each in waiting if each.name == name), None)
    if serving := _serving(answers, cluster, mine):
        return serving
    if mine is None:
        heard = ", ".join(sorted(each.name for each in waiting)) or "none"
        return Declined(
            f"{name} does not answer, or is of another cluster (servers of {cluster} that wait: "
            f"{heard}): start it, and name its address with --server"
        )
    return mine


def loss_of(
    mine: WaitingServer, waiting: Sequence[WaitingServer], config: ClusterConfig
) -> Declined | None:
    """What may be lost by beginning with that one: a longer log that is there, or one that is not.

    What was never in a cluster has nobody beside it.
    """
    replicas = {each.name: each for each in waiting if each.log == mine.log}
    longest = max([mine, *replicas.values()], key=lambda each: each.end)
    if longest.end > mine.end:
        return Declined(
            f"{longest.shown} has more than {mine.shown}: begin with {longest.name}. With "
            "--accept-loss what only others have is given up (copies stay in their torn/)"
        )
    needed = config.replicas - config.min_in_sync + 1
    if mine.promised == 0 or len(replicas) >= needed:
        return None
    asked = output.counted(len(replicas), "server")
    return Declined(
        f"{asked} of this cluster answered ({', '.join(sorted(replicas))}), and {needed} must: one "
        "that was not asked may have what none of these has. Start the others with their "
        "directories; where those are gone for good, --accept-loss gives them up"
    )


def _serving(
    answers: Sequence[ServerAnswer], cluster: str, mine: WaitingServer | None
) -> Declined | None:
    """While a cluster goes on, nobody begins it again."""
    logs = {
        each.name: str(each.facts.get("cluster_log", ""))
        for each in answers
        if each.facts is not None
        and each.facts.get("cluster_name") == cluster
        and each.facts.get("cluster_role") != WAITS
    }
    if not logs:
        return None
    names = ", ".join(sorted(logs))
    if mine is not None and mine.log not in logs.values():
        return Declined(
            f"a cluster of this name has begun with another log, and has {names}: if it has "
            "nothing that is needed, stop it, and try again with --replace"
        )
    return Declined(
        f"the cluster goes on ({names}), and nothing is lost yet: stop every server, start them "
        "again, and found the cluster when all of them wait"
    )


def settings_of(known: KnownKeys, replicas: int | None) -> ClusterConfig:
    """Of the cluster, as etcd has them; where it lost them, of three, or of as many as is said."""
    config = known.config or ClusterConfig(nonce="")
    if replicas is None:
        return config
    return structs.replace(config, replicas=replicas, min_in_sync=replicas // 2 + 1)


def founded(
    known: KnownKeys, name: ServerId, config: ClusterConfig, *, replace: bool, nonce: str
) -> Transact | Declined | None:
    """The change in etcd: who is to found the cluster, and no shard."""
    shard, shard_key = known.shard, known.shard_key
    if shard is not None and not replace:
        return Declined(
            f"etcd has the cluster {known.keys.cluster}: in sync are "
            f"{', '.join(sorted(shard.in_sync))}, in epoch {shard.leader_epoch}. If that is an "
            "older copy that its servers do not join any more, --replace takes it away"
        )
    wanted = structs.replace(config, nonce=nonce, founder=name)
    if shard is None and known.config == structs.replace(wanted, nonce=config.nonce):
        return None
    key = known.keys.config
    expected = {key: known.revision(key), shard_key: known.revision(shard_key)}
    deletes = (shard_key,) if known.revision(shard_key) else ()
    return Transact(expected, {key: encoded(wanted)}, deletes)


def _until_founded(session: CommandSession, agreed: Agreed, name: ServerId, seconds: float) -> None:
    def is_founded(known: KnownKeys) -> bool | None:
        shard = known.shard
        return True if shard is not None and name in shard.in_sync else None

    tell = WaitNotes(session, f"waiting until {name} begins")
    if agreed.wait(is_founded, seconds, tell) is None:
        raise NotYetSo(
            f"the cluster is to begin with {name}, and {name} has not begun after {seconds:g} s: "
            "`once cluster status` says why; it does once it is started"
        )
