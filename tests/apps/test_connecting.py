"""The connection of a handler: opened here and closed here, or the user's own."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from oncemq.apps.connecting import AsyncAttachment, Attachment


def is_open(connection: sqlite3.Connection) -> bool:
    try:
        connection.execute("SELECT 1")
    except sqlite3.ProgrammingError:
        return False
    return True


def had(attachment: Attachment | AsyncAttachment) -> Any:
    """Its connection, while it is open and after it was closed."""

    async def use() -> tuple[Any, bool, bool]:
        if isinstance(attachment, Attachment):
            connection, sound = attachment.get(), attachment.is_sound()
            attachment.close()
            return connection, sound, attachment.is_sound()
        connection, sound = await attachment.get(), await attachment.is_sound()
        await attachment.close()
        return connection, sound, await attachment.is_sound()

    return asyncio.run(use())


@pytest.mark.parametrize("kind", [Attachment, AsyncAttachment])
def test_what_was_opened_for_a_handler_is_closed_after_it(
    kind: type[Attachment | AsyncAttachment], tmp_path: Path
) -> None:
    connection, sound, sound_after = had(kind(f"sqlite:///{tmp_path}/shop.db"))
    assert (sound, sound_after, is_open(connection)) == (True, False, False)


@pytest.mark.parametrize("kind", [Attachment])
def test_a_connection_that_the_user_gave_stays_open(kind: type[Attachment], tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "shop.db")) as own:
        connection, sound, sound_after = had(kind(own))
        assert connection is own
        assert (sound, sound_after, is_open(own)) == (True, True, True)
