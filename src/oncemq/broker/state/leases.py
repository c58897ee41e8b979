"""Leases: subscriptions that end when their client was not heard of for a time that it named.

A client with an id asks for a lease and renews it, as often as it likes. The lease is a fact in the
log. A renewal is another one only when a quarter of the time is over since the last; so the log
may know of a renewal up to a quarter too early, and that quarter is added to the time.

Laws: a lease never ends sooner than its time after the client's last renewal, nor sooner than an
hour after a start of the server (`upkeep`), whose clients could not renew while it was away.
Without a lease a subscription stays until its client ends it.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from oncemq.broker.state.ages import Reading
from oncemq.protocol.names import ClientId, Micros, is_anonymous
from oncemq.protocol.records import ClientLeased
from oncemq.protocol.replies import RefusedReply
from oncemq.protocol.requests import Lease

LEASE_MS_MIN = 60_000
LEASE_MS_MAX = 10 * 365 * 86_400_000
ABOUT_BYTES_MAX = 200


@dataclass(slots=True)
class LeaseGrant:
    """One client's lease: for how long, and since when."""

    lease_ms: int
    renewed: Micros
    about: str

    @property
    def kept_micros(self) -> int:
        """How long it lasts after the renewal that the log knows."""
        return self.lease_ms * 1_250

    @property
    def ends(self) -> Micros:
        """When it is over, unless it is renewed, or the clock is set forward."""
        return Micros(self.renewed + self.kept_micros)

    def is_fresh(self, lease: Lease, now: Micros) -> bool:
        """Whether there is nothing to write: the same lease, renewed a moment ago."""
        same = (self.lease_ms, self.about) == (lease.lease_ms, lease.about)
        return same and now < self.renewed + self.lease_ms * 250


class LeaseState(msgspec.Struct, frozen=True, array_like=True, tag=44):
    """A lease as a checkpoint keeps it."""

    client: ClientId
    lease_ms: int
    renewed: Micros
    about: str


class Leases:
    """All leases of a shard."""

    def __init__(self) -> None:
        self.grants: dict[ClientId, LeaseGrant] = {}
        self._next = Micros(0)  # no lease ends before

    def apply(self, record: ClientLeased) -> None:
        """A lease began, was renewed, or (without a time) is over. Remembered twice, it is so."""
        if record.lease_ms:
            grant = LeaseGrant(record.lease_ms, record.timestamp, record.about)
            self.grants[record.client] = grant
            self._next = min(self._next, grant.ends)
        else:
            self.forget(record.client)

    def forget(self, client: ClientId) -> None:
        """The client is forgotten, or its lease is over."""
        self.grants.pop(client, None)

    def ends(self, client: ClientId) -> Micros:
        """When a client's subscriptions end, unless it is heard of; 0: never."""
        grant = self.grants.get(client)
        return grant.ends if grant else Micros(0)

    def about(self, client: ClientId) -> str:
        """Whose the client's subscriptions are, in its own words."""
        grant = self.grants.get(client)
        return grant.about if grant else ""

    def over(self, ages: Reading) -> list[ClientId]:
        """Whose time is over."""
        if ages.now < self._next:
            return []
        self._next = min((grant.ends for grant in self.grants.values()), default=ages.now)
        return [
            client
            for client, grant in self.grants.items()
            if grant.renewed <= ages.before(grant.kept_micros)
        ]

    def capture(self) -> Iterator[LeaseState]:
        """All of them as values."""
        for client, grant in list(self.grants.items()):
            yield LeaseState(client, grant.lease_ms, grant.renewed, grant.about)

    def restore(self, state: LeaseState) -> None:
        """A lease that a checkpoint kept."""
        self.grants[state.client] = LeaseGrant(state.lease_ms, state.renewed, state.about)


def lease_fault(lease: Lease) -> RefusedReply | None:
    """Why a lease cannot be, or None."""
    if is_anonymous(lease.client):
        return RefusedReply("malformed", "the subscriptions of a client without an id end with it")
    if lease.lease_ms and not LEASE_MS_MIN <= lease.lease_ms <= LEASE_MS_MAX:
        detail = f"a lease is for {LEASE_MS_MIN} to {LEASE_MS_MAX} ms, or 0 for none"
        return RefusedReply("malformed", f"{detail}, not for {lease.lease_ms}")
    if len(lease.about.encode()) > ABOUT_BYTES_MAX:
        return RefusedReply("malformed", f"a lease is described in {ABOUT_BYTES_MAX} bytes at most")
    return None
