"""`once cluster drain`."""

from collections.abc import Callable

import click

from oncemq.cli.cluster.agreed import Agreed, NotYetSo, agreed_of, new_nonce
from oncemq.cli.cluster.changing import WaitNotes, of_a_cluster, wait_option
from oncemq.cli.terminal.command import command
from oncemq.cli.terminal.session import CommandSession
from oncemq.cluster.agreement.known_keys import KnownKeys
from oncemq.coordination import transactions
from oncemq.coordination.coordinator import Transact
from oncemq.coordination.transactions import Declined
from oncemq.coordination.values import encoded
from oncemq.protocol.names import ServerId


@of_a_cluster
@command("drain")
@click.argument("name", metavar="ID")
@click.option("--undo", is_flag=True, help="It may lead again.")
@wait_option
def drain_command(session: CommandSession, name: str, undo: bool, wait: float) -> None:
    """Let a server lead nothing, before you stop it; nothing acknowledged is lost.

    It goes on following, and stays so through restarts until --undo. Exit code 1: nobody else can
    lead, or the lead was not given away in time.
    """
    server = ServerId(name)
    leader_epoch = 0
    with agreed_of(session) as agreed:
        changed = agreed.change(
            lambda known: drained(known, server, draining=not undo, nonce=new_nonce())
        )
        if not undo:
            tell = WaitNotes(session, f"waiting until another leads instead of {server}")
            leader_epoch = _until_led_by_another(agreed, server, wait, tell)
    how = "may lead again" if undo else "leads nothing; it may be stopped"
    said = f"{server} {how}" + ("" if changed else ", as before")
    facts = {
        "server": server,
        "draining": not undo,
        "changed": changed,
        "leader_epoch": leader_epoch,
    }
    session.answer(facts, said)


def drained(
    known: KnownKeys, name: ServerId, *, draining: bool, nonce: str
) -> Transact | Declined | None:
    """The change, or why it is not to be."""
    state, key = known.servers.get(name), known.keys.server(name)
    if state is None:
        return unknown(known, name)
    if state.draining == draining:
        return None
    shard = known.shard
    if draining and shard is not None and shard.leader == name:
        heirs = [
            each
            for each in sorted(shard.in_sync)
            if each != name and each in known.alive and each not in shard.joining
        ]
        if all(_is_draining(known, each) for each in heirs):
            return Declined(
                f"{name} leads, and nobody else can: in sync and there are "
                f"{', '.join(heirs) or 'no others'}"
                f"{', which are to lead nothing either' if heirs else ''}; bring another into "
                "sync first (`once cluster status`)"
            )
    value = encoded(transactions.drain(state, draining=draining, nonce=nonce))
    return Transact({key: known.revision(key)}, {key: value})


def unknown(known: KnownKeys, name: ServerId) -> Declined:
    """There is no such server; these are there."""
    return Declined(
        f"the cluster {known.keys.cluster} has no server {name}; it has: "
        f"{', '.join(sorted(known.servers)) or 'none'}"
    )


def _is_draining(known: KnownKeys, name: ServerId) -> bool:
    state = known.servers.get(name)
    return state is None or state.draining


def _until_led_by_another(
    agreed: Agreed, name: ServerId, seconds: float, tell: Callable[[], object]
) -> int:
    """The epoch in which somebody else leads, or nobody does yet."""

    def led_in(known: KnownKeys) -> int | None:
        shard = known.shard
        if shard is None or shard.leader != name:
            return 0 if shard is None else shard.leader_epoch
        return None

    found = agreed.wait(led_in, seconds, tell)
    if found is None:
        raise NotYetSo(
            f"{name} is to lead nothing, and leads on after {seconds:g} s: `once cluster status` "
            f"says who could lead instead; `once cluster drain {name} --undo` takes it back"
        )
    return found
