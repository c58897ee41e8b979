"""Bugs planted in what time does; see `planted`."""

from typing import Any

from oncemq.broker.expiry import Calendar
from oncemq.broker.state.ages import Ages
from oncemq.broker.state.leases import LeaseGrant
from oncemq.server.clock import SteadyClock
from simulator.planted.plant import instead


@instead(SteadyClock, "_look", "clock_jump")
def _believes_a_clock_that_is_set_forward(_: Any) -> Any:
    def look(self: Any, steady: int, _gap: int) -> None:
        self._ahead = max(self._ahead, self._wall() - self._base - steady)
        self.calendar = Calendar(self._ahead, self._passed)

    return look


@instead(Ages, "apply", "clock_jump")
def _forgets_that_the_clock_was_set_forward(_: Any) -> Any:
    def apply(self: Any, record: Any) -> None:
        pass

    return apply


@instead(LeaseGrant, "is_fresh", "leases")
def _ignores_the_renewal_of_a_lease(_: Any) -> Any:
    def is_fresh(self: LeaseGrant, lease: Any, now: Any) -> bool:
        return self.lease_ms == lease.lease_ms

    return is_fresh
