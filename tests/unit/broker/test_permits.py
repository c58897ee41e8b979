"""Permits from leader to leader: what was sent before a leader led needs a resume."""

from oncemq.broker.permits import Permits
from oncemq.protocol.names import ClientId, Epoch, LeaderEpoch, Micros, ProducerId
from oncemq.protocol.requests import Resume

PRODUCER = ProducerId(b"producer")
RESUME = Resume(ClientId("publisher"), Epoch(1), "orders", PRODUCER, 1)


def leads(leader_epoch: int) -> Permits:
    permits = Permits()
    permits.begin(Micros(1_700_000_000_000_000), LeaderEpoch(leader_epoch))
    return permits


def holds(permits: Permits, permit: int) -> bool:
    return permits.holds("orders", PRODUCER, permit, named=True)


def test_a_leader_stores_no_put_before_its_producer_resumes() -> None:
    """The leader before may have refused it, and its publisher may have heard of that."""
    earlier = leads(4).issue(RESUME)
    permits = leads(5)
    assert not holds(permits, 0)
    assert not holds(permits, earlier)
    permit = permits.issue(RESUME)
    assert holds(permits, permit)
    assert not holds(permits, earlier)


def test_a_server_alone_takes_puts_of_who_never_resumed() -> None:
    assert holds(leads(0), 0)


def test_no_permit_is_given_twice_whoever_leads() -> None:
    permits = [leads(epoch).issue(RESUME) for epoch in (0, 1, 2, 3)]
    assert permits == sorted(set(permits))
