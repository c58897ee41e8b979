"""A mail service that knows a repeat by its key, as good ones do; it keeps its mails in a table."""

from pathlib import Path

from shop import database


class Mail:
    """Sends mails, each once."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def send(self, guest: str, text: str, *, key: str) -> None:
        """Send a mail, unless one was sent under this key."""
        connection = database.connect(self._path)
        try:
            with connection:
                connection.execute(
                    "INSERT OR IGNORE INTO mails VALUES (?, ?, ?)", (key, guest, text)
                )
        finally:
            connection.close()
