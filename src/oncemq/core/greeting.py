"""How a client with state gets its epoch, whatever crashed in between.

A claim (a nonce) is on the client's disk before it is sent, so a grant whose answer was lost
is found again: earlier claims are asked about first, newest first, then a new one is made.
Law: two clients never hold one epoch, because each ends with a claim of its own.
"""

from oncemq.core.names import ClientId, Epoch
from oncemq.core.replies import Refused, Welcome
from oncemq.core.requests import Hello


class Greeting:
    """The hellos of one client start."""

    def __init__(
        self, client: ClientId, *, last_epoch: Epoch, earlier: tuple[int, ...], claim: int
    ) -> None:
        self._client = client
        self._last_epoch = last_epoch
        self._earlier = list(earlier)  # newest last: asked first
        self.claim = claim
        self.granted: Epoch | None = None

    def hello(self) -> Hello:
        """What to say now."""
        nonce = self._earlier[-1] if self._earlier else self.claim
        return Hello(self._client, self._last_epoch, nonce)

    def welcomed(self, welcome: Welcome) -> bool:
        """An answer; True when this start has its epoch."""
        self._last_epoch = max(self._last_epoch, welcome.client_epoch)
        if self._earlier:
            self._earlier.clear()  # the newest that was granted; older ones came before it
            return False
        self.granted = welcome.client_epoch
        return True

    def refused(self, refused: Refused) -> bool:
        """A refusal; True when another claim is left to try."""
        if refused.code == "stale_state" and self._earlier:
            self._earlier.pop()
            return bool(self._earlier) or self._last_epoch == 0
        return False
