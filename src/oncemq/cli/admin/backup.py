"""`once backup`."""

import sys
from pathlib import Path

import click

from oncemq.cli.terminal import output
from oncemq.cli.terminal.command import command, setting, settings
from oncemq.cli.terminal.progress import Progress
from oncemq.cli.terminal.session import CommandSession
from oncemq.errors import Corrupt, StorageRefused


@settings(setting("data", "DIR", "The data directory; ~/.local/share/oncemq by default."))
@command("backup")
@click.argument("backup", type=click.Path(path_type=Path))
def backup(session: CommandSession, backup: Path) -> None:
    """Copy the data of a server into the directory BACKUP, also while the server runs.

    Everything that was acknowledged before the backup began is in it, and every byte of it was
    verified. A second backup into the same directory copies only what is new, and what of the
    backup itself does not hold any more. `once restore` makes a data directory of it.
    """
    from oncemq.cli.terminal.failures import naming_repair
    from oncemq.server.examination import faults
    from oncemq.storage.backup.backup import back_up
    from oncemq.storage.disk import LocalDisk

    data = session.config.data
    if not data.is_dir():
        raise StorageRefused(f"there is no directory {data}; name it with --data")
    copied = 0
    with Progress("copied", sys.stderr, unit="byte") as progress:

        def note(_: str, size: int) -> None:
            nonlocal copied
            copied += size
            progress.update(copied, None)

        try:
            report = back_up(LocalDisk(), str(data), str(backup), progress=note, judge=faults)
        except Corrupt as error:
            raise naming_repair(error, str(data)) from error
    again = f"; of these, {', '.join(report.replaced)} did not hold any more in the backup"
    session.answer(
        {
            "data": str(data),
            "backup": str(backup),
            "last_serial": report.last_serial,
            "files": report.files,
            "bytes": report.size,
            "copied_files": report.copied_files,
            "copied_bytes": report.copied_bytes,
            "replaced": report.replaced,
        },
        f"{backup} holds {data} up to serial {report.last_serial:,}: "
        f"{output.counted(report.files, 'file')}, {output.about(report.size)}, of which "
        f"{report.copied_files:,} were copied now ({output.about(report.copied_bytes)})"
        f"{again if report.replaced else ''}",
    )
