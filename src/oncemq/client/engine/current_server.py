"""Which of its servers a client talks to, and whether that one is on the line.

Laws: the next server is tried when this one does not come in time, or does not answer; the one that
is there is kept, for numbers and cursors are compared anew on each change.
"""

from oncemq.client.context import ClientContext
from oncemq.client.engine.line import ServerConnection
from oncemq.protocol.names import Micros

CONNECT_PATIENCE = 1_500_000  # microseconds to wait for a connection before the next address


class CurrentServer:
    """The server of now, out of those that the client was given."""

    def __init__(self, client: ClientContext, line: ServerConnection) -> None:
        self._client = client
        self._line = line
        self._number = 0
        self.is_connected = False
        self.is_silent = False  # its connection did not come in time
        self.deadline = Micros(0)  # until then a connection may come
        self._connect()

    @property
    def address(self) -> str:
        """Of the server that it talks to, or tries to."""
        servers = self._client.settings.servers
        return servers[self._number % len(servers)]

    def hear(self, now: Micros) -> bool:
        """Take the news of the connection; whether it is a new one.

        Nobody there knows what was said on the one before, and nothing of that will be answered.
        """
        is_new, news = False, self._client.news
        while (connected := self._line.news()) is not None:
            is_new = is_new or (connected and not self.is_connected)
            news.linked(self.address, connected=connected)
            self.is_connected = connected
            self.deadline = Micros(now + CONNECT_PATIENCE)
        self.is_silent = not self.is_connected and now > self.deadline
        if self.is_silent:
            news.linked(self.address, connected=False)
            self.deadline = Micros(now + CONNECT_PATIENCE)
        return is_new

    def try_next(self) -> None:
        """Talk to the next one from now on."""
        self._number += 1
        self._connect()

    def _connect(self) -> None:
        self._client.address = self.address
        self._line.connect(self.address)
        self.is_connected = self.is_silent = False
        self.deadline = Micros(self._client.now() + CONNECT_PATIENCE)
