"""Requests under way: whose each is, when to send it again, when to try another server.

Each has a token, by which its reply names it, and the key by which its owner, a part of the
client, knows it (`session.outgoing`). Tokens are given here, to what the parts left to be asked.

Laws: a request is sent again under its own token until a reply names it, with growing,
jittered waits; what was sent earlier is sent again earlier. Time and chance are arguments.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from oncemq.protocol.names import Epoch, Micros
from oncemq.protocol.requests import Request, Settled
from oncemq.session.outgoing import RequestOwner, Wanted

FIRST_WAIT = 1_000_000  # microseconds until a request counts as lost on a live connection
LONGEST_WAIT = 10_000_000


class InFlightRequest(msgspec.Struct):
    """A request that waits for its reply."""

    token: int
    owner: RequestOwner
    key: Any
    patience: Micros  # how long the server may rightly take, beyond FIRST_WAIT
    attempts: int = 0
    due: Micros = Micros(0)
    first_epoch: Epoch | None = None  # of the client when it first left; a copy may still come
    asked: type[Request] | None = None  # what left; nothing yet, so there is no answer either
    said: tuple[Settled, ...] = ()  # what its first copy told the server is settled


class InFlight:
    """All requests of one client that have no reply yet."""

    def __init__(self, chance: Callable[[], float]) -> None:
        self._chance = chance
        self.open: dict[int, InFlightRequest] = {}  # by token, the oldest first
        self._tokens: dict[int, int] = {}  # by the identity of the key, which is kept in `open`
        self._last_token = 0
        self.first_wait = FIRST_WAIT  # on this connection
        self.sends = 0

    def __len__(self) -> int:
        return len(self.open)

    def __contains__(self, token: int) -> bool:
        return token in self.open

    def __iter__(self) -> Iterator[int]:
        return iter(list(self.open))

    def get(self, token: int) -> InFlightRequest | None:
        """The request of a token; None when it was answered before, or nobody wants it."""
        return self.open.get(token)

    def carry_out(self, wanted: Iterable[Wanted]) -> None:
        """Begin what the parts want to be asked, and end what they do not, in their order."""
        for owner, key, patience_ms in wanted:
            place = id(key)
            if owner is not None:  # it is new, and due at once
                assert place not in self._tokens, "a key is under way once at a time"
                self._last_token = token = self._last_token + 1
                self.open[token] = InFlightRequest(token, owner, key, Micros(patience_ms * 1000))
                self._tokens[place] = token
            elif place in self._tokens:
                self.end(self._tokens[place])

    def begin(self, owner: RequestOwner, key: Any, *, patience_ms: int = 0) -> int:
        """Begin this one; its token."""
        self.carry_out([(owner, key, patience_ms)])
        return self._last_token

    def end(self, token: int) -> bool:
        """A reply came (or nobody wants it any more); False when it was ended before."""
        ended = self.open.pop(token, None)
        if ended is None:
            return False
        del self._tokens[id(ended.key)]
        return True

    def is_asked(self, key: Any) -> bool:
        """Whether the request of this key is under way."""
        return id(key) in self._tokens

    def due(self, now: Micros) -> list[InFlightRequest]:
        """What to send now, oldest first."""
        return [each for each in self.open.values() if each.due <= now]

    def sent(
        self, exchange: InFlightRequest, now: Micros, client_epoch: Epoch | None = None
    ) -> None:
        """It left: when does it count as lost?"""
        self.sends += 1
        if exchange.first_epoch is None:
            exchange.first_epoch = client_epoch
        exchange.attempts += 1
        wait = min(self.first_wait << (exchange.attempts - 1), LONGEST_WAIT)
        jitter = 0.75 + 0.5 * self._chance()
        exchange.due = Micros(now + exchange.patience + int(wait * jitter))

    def is_of_before(self, token: int, client_epoch: Epoch | None) -> bool:
        """Whether a reply may be to a copy from before this client was let in anew.

        Then it is sent again: what is refused for its epoch of now is refused once more.
        """
        exchange = self.open[token]
        if client_epoch is None:
            return True  # it is being let in: that tells
        if exchange.first_epoch is None or exchange.first_epoch >= client_epoch:
            return False
        exchange.first_epoch, exchange.due = client_epoch, Micros(0)
        return True

    def retry_all(self) -> None:
        """A new connection or epoch: nothing that was under way before will be answered."""
        for each in self.open.values():
            each.due = Micros(0)
            each.attempts = 0

    @property
    def troubled(self) -> bool:
        """Whether something was sent and not answered in time: try the next server."""
        return any(each.attempts > 1 for each in self.open.values())

    @property
    def awaits_one(self) -> bool:
        """Whether just one answer is under way that the server gives as soon as it can."""
        soon = 0
        for each in self.open.values():
            if not each.patience:
                soon += 1
                if soon > 1:
                    return False
        return soon == 1

    def next_due(self) -> Micros | None:
        """When something that was sent counts as lost; what was not sent waits for no clock."""
        found: Micros | None = None
        for each in self.open.values():
            if each.attempts and (found is None or each.due < found):
                found = each.due
        return found
