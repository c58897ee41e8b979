"""How a client with state gets its epoch, whatever crashed in between.

A claim (a nonce) is on the client's disk before it is sent, so a grant whose answer was lost
is found again: earlier claims are asked about first, newest first, then the own one; all of them
once more, where another one was granted meanwhile.
Laws: two clients never hold one epoch, because each ends with a claim of its own; whoever is
granted an epoch has its claim, or the epoch, on the disk, so the next start is let in.
"""

from typing import NamedTuple

from oncemq.protocol.names import ANONYMOUS_EPOCH, ClientId, Epoch, Generation
from oncemq.protocol.replies import RefusedReply, TakenReply, Welcome
from oncemq.protocol.requests import Hello


class LogSeen(NamedTuple):
    """The log that a client's state is about, and the newest generation of it that it knows.

    A state from before logs had generations knows the first one, of whichever log.
    """

    log_id: bytes = b""
    generation: Generation = Generation(1)


NO_LOG = LogSeen()


class Handshake:
    """The hellos of one client start."""

    def __init__(
        self,
        client: ClientId,
        *,
        last_epoch: Epoch,
        earlier: tuple[int, ...],
        claim: int,
        last_nonce: int = 0,
        over: Epoch = ANONYMOUS_EPOCH,
        log: LogSeen = NO_LOG,
    ) -> None:
        self._client = client
        self.log = log  # that the state knows
        self.recorded = last_epoch  # on the disk when the claim was made
        self._last_epoch = last_epoch or over  # a state never let in takes over from there
        self._last_nonce = last_nonce  # that it was granted to
        self._claims = earlier
        self._earlier = list(earlier)  # newest last: asked first
        self._first_refusal: RefusedReply | TakenReply | None = None  # since the first was asked
        self.claim = claim
        self.was_good = False  # the newest grant was one of this state's
        self.granted: Epoch | None = None

    def hello(self) -> Hello:
        """What to say now."""
        return Hello(
            self._client,
            self._last_epoch,
            self._nonce,
            *self.log,
            compares=True,
            last_nonce=self._last_nonce,
        )

    @property
    def _nonce(self) -> int:
        return self._earlier[-1] if self._earlier else self.claim

    def follows(self, before: "Handshake") -> bool:
        """Whether no later claim than that one's was granted: it would be cleared up then."""
        return before.claim in self._earlier

    def welcomed(self, welcome: Welcome) -> bool:
        """An answer; True when this start has its epoch."""
        if welcome.client_epoch >= self._last_epoch:
            self._last_epoch, self._last_nonce = welcome.client_epoch, self._nonce
        self.was_good = True
        self._first_refusal = None
        if self._earlier:
            self._earlier.clear()  # the newest that was granted; older ones came before it
            return False
        self.granted = welcome.client_epoch
        return True

    def refused(self, reply: RefusedReply | TakenReply) -> bool:
        """Not with this claim; True when another is left to try.

        The own one is always tried: a later start that asked about it may have been granted it.
        A refusal names the epoch that is granted. Where the last names another than the first, a
        late hello of an earlier start was granted meanwhile, perhaps with a claim that was asked
        about before: all are asked about once more.
        """
        stale = isinstance(reply, TakenReply) or reply.code == "stale_state"
        if not stale:
            return False
        first = self._first_refusal = self._first_refusal or reply
        if self._earlier:
            self._earlier.pop()
            return True
        self._first_refusal = None
        self._earlier = list(self._claims) if reply != first else []
        return bool(self._earlier)
