"""`once repair`."""

from typing import TYPE_CHECKING

import click

from oncemq.cli import output
from oncemq.cli.command import command, setting, settings
from oncemq.cli.session import Session
from oncemq.errors import Corrupt, StorageRefused

if TYPE_CHECKING:
    from oncemq.storage.diagnosis import Damage, Diagnosis


@settings(setting("data", "DIR", "The data directory; ~/.local/share/oncemq by default."))
@command("repair")
@click.option(
    "--accept-loss", is_flag=True, help="Go on without what is damaged; it is kept in quarantine/."
)
def repair(session: Session, accept_loss: bool) -> None:
    """Look at a data directory whose server refuses to start, and mend it.

    Without --accept-loss nothing is changed: every byte is checked, and what is damaged, what it
    holds and what can be done are shown. The server must be stopped. Exit code 7: there is
    damage, and it is still there.
    """
    import secrets

    from oncemq.storage.disk import LocalDisk
    from oncemq.storage.repair import accept_loss as mend
    from oncemq.storage.repair import diagnose

    data = session.config.data
    if not data.is_dir():
        raise StorageRefused(f"there is no directory {data}; name it with --data")
    if accept_loss:
        found = mend(LocalDisk(), str(data), random_bytes=secrets.token_bytes)
    else:
        found = diagnose(LocalDisk(), str(data))
    mended = accept_loss and not found.healthy
    session.answer(_object(found, mended=mended), _text(found, mended=mended))
    if not found.healthy and not mended:
        count = len(found.damages) + len(found.checkpoints)
        places = f"{output.counted(count, 'damaged place')}"
        raise Corrupt(f"{places} in {data}; see `once repair --help`")


def _object(found: "Diagnosis", *, mended: bool) -> dict[str, object]:
    return {
        "data": found.directory,
        "healthy": found.healthy,
        "mended": mended,
        "last_serial": found.last_serial,
        "damages": [
            {
                "path": damage.path,
                "position": damage.position,
                "why": damage.why,
                "first_serial": damage.first_serial,
                "lost": [
                    {"topic_id": lost.topic_id, "from": lost.first_offset, "to": lost.end_offset}
                    for lost in damage.lost
                ],
            }
            for damage in found.damages
        ],
        "checkpoints": found.checkpoints,
        "beyond": found.beyond,
        "choices": found.choices,
    }


def _text(found: "Diagnosis", *, mended: bool) -> str:
    if found.healthy:
        return f"{found.directory} is sound, up to serial {found.last_serial:,}"
    lines = [
        *(line for damage in found.damages for line in _damage(damage)),
        *(f"{path}: does not fit the log" for path in found.checkpoints),
        *(f"{found.directory}/log/{name}: lies behind the damage" for name in found.beyond),
    ]
    if mended:
        kept = f"what was taken out is in {found.directory}/quarantine"
        return "\n".join([*lines, f"mended: the log ends at serial {found.last_serial:,}; {kept}"])
    return "\n".join([*lines, "choices:", *(f"  - {choice}" for choice in found.choices)])


def _damage(damage: "Damage") -> list[str]:
    place = f"{damage.path} at byte {damage.position:,}: {damage.why}"
    serial = f"  not to be trusted from serial {damage.first_serial:,} on"
    return [
        place,
        serial,
        *(
            f"  holds messages {lost.first_offset:,} to {lost.end_offset - 1:,} of topic number "
            f"{lost.topic_id}"
            for lost in damage.lost
        ),
    ]
