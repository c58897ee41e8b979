"""`once cluster remove`."""

import click

from oncemq.cli.cluster.agreed import Agreed, ChangeDeclined, agreed_of, new_nonce
from oncemq.cli.cluster.changing import WaitNotes, of_a_cluster, wait_option
from oncemq.cli.cluster.drain import unknown
from oncemq.cli.terminal.command import command
from oncemq.cli.terminal.session import CommandSession
from oncemq.cluster.agreement.known_keys import KnownKeys
from oncemq.coordination import transactions
from oncemq.coordination.coordinator import Transact
from oncemq.coordination.transactions import Declined
from oncemq.coordination.values import encoded
from oncemq.protocol.names import ServerId


@of_a_cluster
@command("remove")
@click.argument("name", metavar="ID")
@wait_option
def remove_command(session: CommandSession, name: str, wait: float) -> None:
    """Give a server up for good, and make room for another.

    Stop it first. Its directory counts for nothing any more; what was acknowledged is on the
    others, and who is still needed for that is not removed (exit code 1, with the way out). A new
    server joins by being started, with an id of its own or with this one and an empty directory.
    """
    server = ServerId(name)
    with agreed_of(session) as agreed:
        agreed.look()
        _until_it_may_go(session, agreed, server, wait)
        agreed.change(lambda known: removed(known, server, nonce=new_nonce()))
        left = [] if agreed.known.shard is None else agreed.known.shard.replicas
    room = "start another to have it replaced: once serve --cluster … --server-id ID --data DIR"
    facts = {"server": server, "removed": True, "replicas": left}
    session.answer(facts, f"{server} is removed; left are {', '.join(left) or 'none'}\n{room}")


def removed(known: KnownKeys, name: ServerId, *, nonce: str) -> Transact | Declined | None:
    """The change, or why it is not to be."""
    shard, key = known.shard, known.keys.server(name)
    is_replica = shard is not None and name in shard.replicas
    if not is_replica and name not in known.servers:
        return unknown(known, name)
    expected = {key: known.revision(key)} if name in known.servers else {}
    puts: dict[str, bytes] = {}
    if is_replica and shard is not None:
        if declined := _still_needed(known, name):
            return declined
        changed = transactions.remove(shard, name, nonce=nonce)
        if isinstance(changed, Declined):
            return changed
        expected[known.shard_key] = known.shard_revision
        puts[known.shard_key] = encoded(changed)
    elif name in known.alive:
        return _runs(name)
    return Transact(expected, puts, (key,) if name in known.servers else ())


def _still_needed(known: KnownKeys, name: ServerId) -> Declined | None:
    """Who leads, or runs, is not given up; nor who has what too few others have."""
    shard = known.shard
    assert shard is not None
    if shard.leader == name:
        if name in known.alive:
            return Declined(
                f"{name} leads: `once cluster drain {name}`, stop it, and remove it then"
            )
        return Declined(f"{name} leads as far as etcd knows: another takes over in a few seconds")
    if name in known.alive:
        return _runs(name)
    if name in shard.in_sync and len(shard.in_sync) <= shard.min_in_sync:
        others = sorted(each for each in shard.in_sync if each != name)
        return Declined(
            f"{name} has what was acknowledged, as only {', '.join(others) or 'nobody'} else has, "
            f"and {shard.min_in_sync} must have it: start {name} again, or bring another server "
            "into sync first. If its disk is gone, start it with an empty directory: it is filled, "
            "and may be removed afterwards"
        )
    return None


def _runs(name: ServerId) -> Declined:
    return Declined(f"{name} runs: stop it first (SIGTERM), then remove it")


def _until_it_may_go(
    session: CommandSession, agreed: Agreed, name: ServerId, seconds: float
) -> None:
    """A server that was stopped a moment ago has a lease for seconds, and is in sync until the
    leader does without it. Who is refused for another reason is told at once.
    """
    last: list[Declined] = []

    def may_go(known: KnownKeys) -> bool | None:
        found = removed(known, name, nonce="looked at")
        last[:] = [found] if isinstance(found, Declined) else []
        return None if last and _may_pass(known, name) else True

    tell = WaitNotes(session, f"waiting until the others go on without {name}")
    if agreed.wait(may_go, seconds, tell) is None:
        raise ChangeDeclined(last[0].why)


def _may_pass(known: KnownKeys, name: ServerId) -> bool:
    """Whether time alone may let it go: it is not there, and the others can do without it."""
    shard = known.shard
    if shard is None or name in known.alive:
        return False
    return name not in shard.in_sync or len(shard.in_sync) > shard.min_in_sync
