"""Simulated clients whose subscriptions are leased: they renew, come late, or come no more.

Law: a lease that was renewed holds for its time, counted from the moment when the client sent the
renewal that it has an answer to. After that nothing is sure of its subscriptions, until it
subscribes again.
"""

from oncemq.audit import facts as saw
from oncemq.client.verbs.columns import leasing
from simulator.actors.calls import Work, carry_out
from simulator.actors.client import Process
from simulator.clock import MILLISECOND

LEASE_MS_MIN = 100  # so that some end while a world lasts
GRACE_MICROS = 400_000  # after a start of the server
FOR_GOOD = 0


def lease(process: Process, lease_ms: int) -> None:
    """Lease the client's subscriptions, or renew that, or have them for good."""
    process.begin("member", _lease(process, lease_ms))


def _lease(process: Process, lease_ms: int) -> Work[None]:
    client = process.client
    until = process.clock.now + lease_ms * MILLISECOND
    if lease_ms and not client.leased_until:
        _holds(process, until)  # it may begin without an answer
    yield from carry_out(leasing(process.engine, lease_ms / 1000, ""))
    process.world.tell("lease renewed" if lease_ms else "lease ended")
    if lease_ms:
        _holds(process, until)
    else:
        client.leased_until = 0


def _holds(process: Process, until: int) -> None:
    process.client.leased_until = until
    process.clock.at(until, lambda: _lapses(process, until))


def _lapses(process: Process, until: int) -> None:
    client, history = process.client, process.history
    if client.leased_until == until:  # else it was renewed since
        process.world.tell("lease over")
        moment = history.moment()
        asked = client.interests.all
        history.seen.extend(saw.Leaving(client.name, topic, moment) for topic in asked)
