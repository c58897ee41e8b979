"""`once cluster status`."""

from dataclasses import asdict

import click

from oncemq.cli.cluster.report import ClusterReport, EtcdAnswer, ServerReport
from oncemq.cli.terminal import output
from oncemq.cli.terminal.command import command, setting, settings
from oncemq.cli.terminal.guard import REFUSED, UNREACHABLE
from oncemq.cli.terminal.session import CommandSession

HEADS = ("server", "role", "in sync", "behind", "since", "heard", "disk", "address", "")


@settings(
    setting("cluster", "NAME", "Of these servers' clusters, this one; for --etcd."),
    setting("etcd", "ADDRESS[,…]", "Ask the cluster's etcd, too; without it, only the servers."),
)
@command("status")
def status_command(session: CommandSession) -> None:
    """Show who leads, who is in sync, how far each is behind, and what is wrong.

    Asks every address in --server, those that the servers tell of, and etcd where --etcd says.
    Behind: in records; since: how long a server has not had everything; heard: when the leader
    last heard of it. Exit code 0: all in order; 1: something is wrong, with the way out; 3: nobody
    answered.
    """
    report = look(session)
    session.answer(asdict(report) | {"may_fail": report.may_fail}, shown(report))
    answered = any(each.answers for each in report.servers)
    if report.wrong:
        code = REFUSED if answered or report.etcd == "there" else UNREACHABLE
        click.get_current_context().exit(code)


def look(session: CommandSession) -> ClusterReport:
    """What the servers and etcd say."""
    from oncemq.cli.cluster.asking import ANSWER_SECONDS, ask_all
    from oncemq.cli.cluster.findings import findings_of
    from oncemq.cli.cluster.report import cluster_of, report_of

    config = session.config
    answers = ask_all(config.server, seconds=min(ANSWER_SECONDS, config.timeout))
    cluster = config.cluster or cluster_of(answers)
    etcd = None
    if config.etcd and cluster is not None:
        etcd = ask_etcd(session, cluster)
        asked, named = {each.address for each in answers}, {each.name for each in answers}
        servers = etcd.servers.items()
        more = [state.address for name, state in servers if name not in named]
        answers += ask_all(
            [each for each in more if each not in asked],
            seconds=min(ANSWER_SECONDS, config.timeout),
        )
    report = report_of(answers, etcd, cluster=config.cluster)
    report.wrong = findings_of(report)
    return report


def ask_etcd(session: CommandSession, cluster: str) -> EtcdAnswer:
    """What etcd has of a cluster, or why it does not say."""
    from oncemq.cli.cluster.agreed import EtcdUnreachable, agreed_of
    from oncemq.cli.cluster.asking import ANSWER_SECONDS

    with agreed_of(session, cluster, patience=ANSWER_SECONDS) as agreed:
        try:
            known = agreed.look()
        except EtcdUnreachable:
            return EtcdAnswer(away=agreed.away or "no answer")
        return EtcdAnswer(None, known.shard, known.config, known.servers, known.alive)


# ------------------------------------------------------------------ for people


def shown(report: ClusterReport) -> str:
    """A few lines about all of it, a table of the servers, and what is wrong."""
    parts = [output.pairs(_facts(report))]
    if report.servers:
        parts.append(output.table(HEADS, [_row(report, each) for each in report.servers]))
    if report.wrong:
        parts.append("\n".join(f"! {each}" for each in report.wrong))
    else:
        parts.append(f"in order: {_more(report.may_fail)} may fail, and puts go on")
    return "\n\n".join(parts)


def _facts(report: ClusterReport) -> list[tuple[str, object]]:
    takes = "" if report.serving or not report.leader else ", and takes no puts"
    facts: list[tuple[str, object]] = [
        ("cluster", f"{report.cluster or 'not known'}, shard {report.shard}"),
        ("leader", f"{report.leader or 'nobody'}, in epoch {report.leader_epoch}{takes}"),
        ("in sync", f"{', '.join(report.in_sync) or 'nobody'}{_needed(report)}"),
    ]
    if report.joining:
        facts.append(("joining", ", ".join(report.joining)))
    if report.older:
        facts.append(
            ("older", f"{report.older}; nothing newer is written before they are upgraded")
        )
    if report.commit is not None and report.last is not None:
        waits = output.counted(report.last - report.commit, "record")
        on_its_way = f", {waits} on the way" if report.last > report.commit else ""
        facts.append(("stored", f"{report.commit:,} records{on_its_way}"))
    asked = "" if report.etcd_asked else ", as the servers say"
    etcd = {"there": f"there{asked}", "": "not known"}.get(report.etcd, f"away: {report.etcd}")
    return [*facts, ("etcd", etcd)]


def _needed(report: ClusterReport) -> str:
    if not report.replicas_max:
        return ""
    return f" ({report.min_in_sync} of {report.replicas_max} must be)"


def _row(report: ClusterReport, server: ServerReport) -> list[object]:
    is_leader = server.id == report.leader
    known = server.joining or server.in_sync
    notes = [
        "draining" if server.draining else "",
        "declined" if server.declined else "",
        f"{output.about(server.filled_bytes)} so far" if server.filled_bytes is not None else "",
        "" if server.answers or not server.alive else "its lease is not over",
    ]
    return [
        server.id.removeprefix("?") if not server.id.startswith("?") else "?",
        server.role,
        ("proposed" if report.proposed == server.id else server.in_sync) if known else None,
        None if is_leader or server.behind_records is None else server.behind_records,
        None if is_leader or not server.behind_records else _seconds(server.behind_ms),
        None if is_leader else _seconds(server.heard_ms),
        "full" if server.disk_full else None if not server.answers else "ok",
        server.address or None,
        ", ".join(filter(None, notes)),
    ]


def _seconds(ms: int | None) -> str | None:
    return None if ms is None else f"{ms / 1000:.1f} s ago"


def _more(count: int) -> str:
    return output.counted(count, "more server")
