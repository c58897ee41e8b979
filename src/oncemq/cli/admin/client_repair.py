"""`once client repair`."""

import shlex
from typing import TYPE_CHECKING

import click

from oncemq.cli.terminal import output
from oncemq.cli.terminal.command import command
from oncemq.cli.terminal.session import CommandSession
from oncemq.errors import Corrupt, StorageRefused

if TYPE_CHECKING:
    from pathlib import Path

    from oncemq.client.state.salvage import Damaged
    from oncemq.client.state.unsent import Unsent


@command("repair")
@click.option(
    "--accept-loss",
    is_flag=True,
    help="Go on with the puts that are whole; the damaged outbox is kept in quarantine/.",
)
def repair(session: CommandSession, accept_loss: bool) -> None:
    """Look at the outbox of a client (--id) that refuses to start on it, and mend it.

    Without --accept-loss nothing is changed: it is shown which unsent puts are whole, and which
    are damaged. The client must not run. Exit code 7: there is damage, and it is still there.
    """
    import secrets

    from oncemq.client.state.paths import state_directory
    from oncemq.client.state.salvage import Outboxes
    from oncemq.storage.disk import LocalDisk

    config = session.config
    if config.id is None:
        raise click.UsageError("name the client whose outbox is damaged: --id ID")
    state = state_directory(config.id, config.state)
    if not state.is_dir():
        raise StorageRefused(f"there is no state of client {config.id!r} in {state}; name --state")
    outboxes = Outboxes(LocalDisk(), state, secrets.token_bytes)
    found = outboxes.mend() if accept_loss else outboxes.look()
    lines = [line for each in found for line in _lines(each)]
    if not found:
        lines = [f"the outbox of {config.id} in {state} is sound"]
    elif accept_loss:
        lines.append(f"mended: start {config.id} again; the damaged logs are in {state}/quarantine")
    session.answer(_object(config.id, found, mended=accept_loss), "\n".join(lines))
    if found and not accept_loss:
        raise Corrupt(f"to go on with what is whole: `{_command(config.id, state)}`")


def _command(client_id: str, state: "Path") -> str:
    words = ["once", "client", "repair", "--id", client_id, "--state", str(state), "--accept-loss"]
    return shlex.join(words)


def _lines(damaged: "Damaged") -> list[str]:
    lines = [f"{damaged.slot}: {damaged.why}"]
    if not damaged.is_known:
        lines.append("  nothing in it says whose puts these are: all that were not sent are lost")
        return lines
    kept = output.counted(sum(each.count for each in damaged.kept), "unsent message")
    lines.append(f"  whole: {kept}, sent by the next start unless the server has them")
    lines += [
        f"  damaged: {output.counted(each.count, 'message')} of {each.topic}; lost, unless the "
        "server has it"
        for each in damaged.lost
    ]
    if damaged.unreadable:
        records = output.counted(damaged.unreadable, "record")
        lines.append(
            f"  unreadable: {records}, of which nobody can say what it was: puts may be lost with "
            "it; and if it gave puts new numbers, some may be stored twice"
        )
    return lines


def _object(client_id: str, found: "list[Damaged]", *, mended: bool) -> dict[str, object]:
    return {
        "client": client_id,
        "healthy": not found,
        "mended": bool(found) and mended,
        "slots": [
            {
                "path": each.slot,
                "why": each.why,
                "whole": _puts(each.kept),
                "damaged": _puts(each.lost),
                "unreadable_records": each.unreadable,
                "lost_whole": not each.is_known,
            }
            for each in found
        ],
    }


def _puts(puts: "list[Unsent]") -> list[dict[str, object]]:
    return [{"topic": each.topic, "messages": each.count} for each in puts]
