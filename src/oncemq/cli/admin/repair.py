"""`once repair`."""

import shlex
from typing import TYPE_CHECKING

import click

from oncemq.cli.terminal import output
from oncemq.cli.terminal.command import command, setting, settings
from oncemq.cli.terminal.session import CommandSession
from oncemq.errors import Corrupt, StorageRefused

if TYPE_CHECKING:
    from oncemq.server.completeness import Missing
    from oncemq.server.examination import Examination
    from oncemq.storage.repair.findings import Damage


FILLED_BY_OTHERS = (
    "it is a replica of a cluster: start its server, which puts the damaged log aside and is "
    "filled by the others"
)


@settings(setting("data", "DIR", "The data directory; ~/.local/share/oncemq by default."))
@command("repair")
@click.option(
    "--accept-loss", is_flag=True, help="Go on without what is damaged; it is kept in quarantine/."
)
@click.option(
    "--last-copy", is_flag=True, help="Of a cluster: no other server's directory is left."
)
def repair(session: CommandSession, accept_loss: bool, last_copy: bool) -> None:
    """Look at a data directory whose server refuses to start, and mend it.

    Without --accept-loss nothing is changed: every byte is checked, and what is damaged, what it
    holds and what can be done are shown. The server must be stopped. Exit code 7: there is
    damage, and it is still there.
    """
    import secrets

    from oncemq.server.examination import accept_loss as mend
    from oncemq.server.examination import examine
    from oncemq.storage.disk import LocalDisk

    data = session.config.data
    if not data.is_dir():
        raise StorageRefused(f"there is no directory {data}; name it with --data")
    if accept_loss:
        found = mend(
            LocalDisk(), str(data), random_bytes=secrets.token_bytes, is_last_copy=last_copy
        )
    else:
        found = examine(LocalDisk(), str(data))
    mended = accept_loss and not found.sound
    session.answer(_object(found, mended=mended), _text(found, mended=mended))
    if not found.sound and not mended:
        diagnosis = found.diagnosis
        count = len(diagnosis.damages) + len(diagnosis.checkpoints) + len(found.missing)
        count += bool(diagnosis.format_fault)
        places = output.counted(count, "damaged place")
        way = f"to go on without them: `{_command(found)}`"
        if found.is_replica:
            way = f"{FILLED_BY_OTHERS}; only if no other directory is left: `{_command(found)}`"
        if not diagnosis.mendable:
            way = "the log cannot go on without them: restore a backup with `once restore`"
        raise Corrupt(f"{places} in {data}; {way}")


def _command(found: "Examination") -> str:
    last = " --last-copy" if found.is_replica else ""
    return f"once repair --data {shlex.quote(found.diagnosis.directory)} --accept-loss{last}"


def _choices(found: "Examination") -> list[str]:
    """What a person may do, best first."""
    diagnosis = found.diagnosis
    if found.sound:
        return ["nothing to do: the log can be opened"]
    directory = shlex.quote(diagnosis.directory)
    restore = (
        f"restore a backup: `once restore BACKUP --data DIR`, in place of {directory}; what was "
        "stored after the backup was made is lost, and clients that saw it are told"
    )
    choices = [FILLED_BY_OTHERS] if found.is_replica else [restore]
    if diagnosis.mendable:
        cut = any(
            not damage.covered and damage.path.endswith((".log", "END"))
            for damage in diagnosis.damages
        )
        what = (
            f"the log goes on from serial {diagnosis.last_serial:,}, and what comes after it is "
            "lost"
            if cut or diagnosis.checkpoints
            else "the messages named above are lost, and readers are told so"
            if diagnosis.damages or found.missing
            else "FORMAT is written again, and nothing else is changed"
        )
        choices.append(
            f"`{_command(found)}`: {what}; what is taken out is copied to quarantine/, and "
            "clients that saw more than is left are told"
        )
    return choices


def _object(found: "Examination", *, mended: bool) -> dict[str, object]:
    diagnosis = found.diagnosis
    return {
        "data": diagnosis.directory,
        "healthy": found.sound,
        "mended": mended,
        "last_serial": diagnosis.last_serial,
        "format": diagnosis.format_fault or None,
        "damages": [
            {
                "path": damage.path,
                "position": damage.position,
                "why": damage.why,
                "first_serial": damage.first_serial,
                "lost": [
                    {
                        "topic": diagnosis.names.get(lost.topic_id),
                        "topic_id": lost.topic_id,
                        "from": lost.first_offset,
                        "to": lost.end_offset,
                    }
                    for lost in damage.lost
                ],
            }
            for damage in diagnosis.damages
        ],
        "missing": _holes(found.missing),
        "agreed": _holes(found.agreed),
        "checkpoints": diagnosis.checkpoints,
        "passed_over": diagnosis.passed_over,
        "beyond": diagnosis.beyond,
        "choices": _choices(found),
    }


def _holes(missing: "list[Missing]") -> list[dict[str, object]]:
    return [
        {"topic": each.topic, "from": each.record.first_offset, "to": each.record.end_offset}
        for each in missing
    ]


def _text(found: "Examination", *, mended: bool) -> str:
    diagnosis = found.diagnosis
    passed_over = [f"{path}: does not hold, and is passed over" for path in diagnosis.passed_over]
    agreed = [f"{each}: lost as agreed to, and noted at the next start" for each in found.agreed]
    if found.sound:
        sound = f"{diagnosis.directory} is sound, up to serial {diagnosis.last_serial:,}"
        return "\n".join([*passed_over, *agreed, sound])
    fault = diagnosis.format_fault
    lines = [
        *passed_over,
        *agreed,
        *([f"{diagnosis.directory}/FORMAT: {fault}"] if fault else []),
        *(line for damage in diagnosis.damages for line in _damage(damage, diagnosis.names)),
        *(f"{path}: does not fit the log" for path in diagnosis.checkpoints),
        *(f"{diagnosis.directory}/log/{name}: lies behind the damage" for name in diagnosis.beyond),
        *(f"{each}: kept, but in no segment that can be read" for each in found.missing),
    ]
    if mended:
        kept = f"what was taken out is in {diagnosis.directory}/quarantine"
        end = f"mended: the log ends at serial {diagnosis.last_serial:,}; {kept}"
        return "\n".join([*lines, end])
    return "\n".join([*lines, "choices:", *(f"  - {choice}" for choice in _choices(found))])


def _damage(damage: "Damage", names: dict[int, str]) -> list[str]:
    place = f"{damage.path} at byte {damage.position:,}: {damage.why}"
    serial = f"  not to be trusted from serial {damage.first_serial:,} on"
    return [
        place,
        serial,
        *(
            f"  holds messages {lost.first_offset:,} to {lost.end_offset - 1:,} of "
            f"{names.get(lost.topic_id, f'a stage or topic without a name ({lost.topic_id})')}"
            for lost in damage.lost
        ),
    ]
