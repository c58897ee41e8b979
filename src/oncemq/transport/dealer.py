"""A client's end for requests: one server at a time, with news of it coming and going."""

from collections.abc import Sequence

from oncemq.transport.connecting.link import ClientLink
from oncemq.transport.connecting.owed_bytes import OWED_BYTES_MAX
from oncemq.transport.tcp_options import unacknowledged
from oncemq.zmtp.limits import WireLimits
from oncemq.zmtp.messages import Frame, encode


class DealerSocket(ClientLink):
    """A DEALER that connects. Used by one thread at a time."""

    def __init__(self, owed_bytes_max: int = OWED_BYTES_MAX) -> None:
        super().__init__(b"DEALER", WireLimits(), owed_bytes_max)

    def send(self, frames: Sequence[Frame]) -> bool:
        """Send now, or not at all: False without a connection or when it is full."""
        if not self._is_open:
            self._advance()
            if not self._is_open:
                return False
        owed = self._owed
        if owed.size and owed.is_full and not self._flush() and owed.is_full:
            return False
        return self._send(encode(frames))

    @property
    def unarrived(self) -> int:
        """How many bytes of what was sent the other end's system does not have, as far as known."""
        return 0 if self._socket is None else self._owed.size + unacknowledged(self._socket)
