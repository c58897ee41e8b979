"""A listener's end of the live feed: some subjects of one server's."""

from oncemq.errors import ConfigError
from oncemq.transport.connecting.link import ClientLink, logger
from oncemq.transport.connecting.owed_bytes import OWED_BYTES_MAX
from oncemq.zmtp.connection import Message
from oncemq.zmtp.limits import WireLimits
from oncemq.zmtp.messages import subscription

# What is larger is announced on the feed, and pulled.
LIMITS = WireLimits(frame_bytes_max=16 << 20, message_bytes_max=32 << 20)


class FeedSubscriber(ClientLink):
    """A SUB that connects. Used by one thread at a time."""

    def __init__(self) -> None:
        super().__init__(b"SUB", LIMITS)
        self._subjects: set[bytes] = set()
        self._minor = 0

    def connect(self, address: str) -> None:
        """Listen to this feed from now on, and no longer to the one before; empty: to none.

        An address that is none is a feed that nobody reaches: it is the server's word, and a feed
        is not needed.
        """
        self._leave()
        if address:
            try:
                super().connect(address)
            except ConfigError as error:
                logger.warning("no live feed: %s", error.detail)

    def tune(self, subjects: set[bytes]) -> None:
        """Listen to these subjects, and to no others."""
        before, self._subjects = self._subjects, subjects
        if self._is_open:
            self._tell(before - subjects, joined=False)
            self._tell(subjects - before, joined=True)

    def receive(self) -> Message | None:
        """The next message's frames; None: there was no more at the last look."""
        while (message := super().receive()) is not None:
            subject = message[0]  # of one that was under way when it was wanted no longer, too
            if isinstance(subject, bytes) and subject in self._subjects:
                return message
        return None

    def _opened(self, minor: int) -> None:
        self._minor = minor
        self._tell(self._subjects, joined=True)

    def _tell(self, subjects: set[bytes], *, joined: bool) -> None:
        for subject in subjects:
            self._send([subscription(subject, joined=joined, minor=self._minor)])
        if self._owed.size > OWED_BYTES_MAX:
            self._lose("it does not read which subjects are wanted", warns=True)
