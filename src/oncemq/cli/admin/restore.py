"""`once restore`."""

import shlex
import sys
from pathlib import Path

import click

from oncemq.cli.terminal.command import command, setting, settings
from oncemq.cli.terminal.progress import Progress
from oncemq.cli.terminal.session import CommandSession
from oncemq.errors import Corrupt


@settings(setting("data", "DIR", "The data directory to make; it must not be there, or be empty."))
@command("restore")
@click.argument("backup", type=click.Path(exists=True, file_okay=False, path_type=Path))
def restore(session: CommandSession, backup: Path) -> None:
    """Make the data directory --data of the backup in the directory BACKUP.

    Nothing is overwritten. The log's generation is raised: clients that saw what was stored after
    the backup was made are told so, and go on only when a person says so.
    """
    import secrets

    from oncemq.server.examination import examine
    from oncemq.storage.backup.restore import restore as bring_back
    from oncemq.storage.disk import LocalDisk

    data = session.config.data
    copied = 0
    with Progress("restored", sys.stderr, unit="byte") as progress:

        def note(_: str, size: int) -> None:
            nonlocal copied
            copied += size
            progress.update(copied, None)

        manifest = bring_back(
            LocalDisk(),
            str(backup),
            str(data),
            random_bytes=secrets.token_bytes,
            progress=note,
        )
    place = shlex.quote(str(data))
    if not examine(LocalDisk(), str(data)).sound:
        raise Corrupt(f"{data} was restored, and is not whole: `once repair --data {place}`")
    session.answer(
        {"backup": str(backup), "data": str(data), "last_serial": manifest.last_serial},
        f"{data} holds the log up to serial {manifest.last_serial:,}; start it with "
        f"`once serve --data {place}`",
    )
