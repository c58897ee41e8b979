"""Where one server is, as a value of etcd that the others look it up by.

Laws: a server that is let in says so until it is known, and again when somebody deleted it by
mistake: without it nobody connects to the server. Of who is removed, the shard's value says so as
well: that one says nothing. A newcomer that is not let in may say where it is, and moves nobody.
"""

from oncemq.cluster.agreement.known_keys import KnownKeys
from oncemq.cluster.agreement.wishes import Wish, Wishes
from oncemq.coordination import transactions
from oncemq.coordination.values import encoded
from oncemq.protocol.names import Micros, ServerId


class Registration:
    """Of one server, from its start to its end."""

    def __init__(self, me: ServerId, address: str, known: KnownKeys, wishes: Wishes) -> None:
        self._me, self._address = me, address
        self._known, self._wishes = known, wishes
        self._key = known.keys.server(me)
        self._is_there = False  # it was known once
        self._wish: Wish | None = None

    def tick(self, now: Micros, *, is_let_in: bool, is_declined: bool) -> None:
        """Say where this server is, if that is not known and it may."""
        known, key = self._known, self._key
        before = known.servers.get(self._me)
        if self._is_there and is_let_in and not known.revision(key):
            self._is_there, self._wish = False, None  # a new value: the old one was there once
        may = is_let_in or (is_declined and not known.revision(key))
        if self._is_there or not may or key in known.faults:
            return
        if before is not None and before.address == self._address:
            self._is_there = True
            return
        if not self._wishes.repeated(self._wish, now):
            state = transactions.register(before, address=self._address, nonce=self._wishes.nonce)
            self._wish = self._wishes.made({key: encoded(state)})

    @property
    def fault(self) -> str | None:
        """That another process says the same of another place, in words."""
        mine = self._known.servers.get(self._me)
        if not self._is_there or mine is None or mine.address == self._address:
            return None
        return (
            f"another process runs as {self._me}, at {mine.address} (this one is at "
            f"{self._address}): stop one of them, and give each server an id of its own"
        )
