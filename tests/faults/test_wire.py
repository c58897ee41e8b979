"""A wire that is cut, clogged, slow or closed at random: every promise holds behind it.

The worst fault of a network is not that a request is lost, it is that its answer is: done, and
nobody was told. `oncemq.testing.proxy` does that too, between delivery and answer.
"""

from pathlib import Path

import pytest

from oncemq import Client, testing
from oncemq.protocol.records import Retention
from oncemq.testing.proxy import ANSWERS, REQUESTS, Proxy, proxy
from tests.e2e.processes import until
from tests.faults.cast import FaultNursery, FaultStorm

KEPT = Retention(forever=True)


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.usefixtures("full_gets")
def test_a_bad_wire_loses_and_doubles_nothing(
    nursery: FaultNursery, tmp_path: Path, seed: int
) -> None:
    storm = FaultStorm(nursery, tmp_path, seed, wire=True)
    storm.begin()
    for fault in range(60):
        if fault % 5 == 0:
            storm.make_progress()
        storm.let_pass(50)
        storm.trouble_wire()
        if fault % 20 == 10:
            storm.kill(server=True)
    storm.prove("faults-wire", "bad wire and kill -9 of server")
    assert storm.wire is not None
    assert storm.wire.cuts > 10


def test_a_put_whose_answer_is_cut_off_is_stored_once(tmp_path: Path) -> None:
    with (
        testing.server() as address,
        proxy(address) as wire,
        Client(address) as checker,
        Client(wire.address, id="ada", state=tmp_path / "ada") as client,
    ):
        checker.create_topic("orders", KEPT)
        client.put("orders", b"before")
        for number in range(20):
            wire.clog(ANSWERS)
            pending = client.put_many("orders", [b"%d" % number], keys=[None], wait=False)
            until(lambda n=number: checker.topic("orders").topic.end == n + 2, what="it arrives")
            assert not pending.done()  # type: ignore[union-attr]
            wire.cut()
            wire.heal()
            assert pending.result()[0].duplicate  # type: ignore[union-attr]
        stored = [message.payload for message in checker.read("orders", 0)]
        assert stored == [b"before", *(b"%d" % number for number in range(20))]


def test_requests_that_are_held_and_then_cut_arrive_once(tmp_path: Path) -> None:
    with (
        testing.server() as address,
        proxy(address) as wire,
        Client(address) as checker,
        Client(wire.address, id="ada", state=tmp_path / "ada") as client,
    ):
        checker.create_topic("orders", KEPT)
        client.put("orders", b"before")
        wire.clog(REQUESTS)
        client.put_many("orders", [b"held"], keys=[None], wait=False)
        wire.cut()
        assert checker.topic("orders").topic.end == 1
        wire.heal()
        client.flush()
        assert [m.payload for m in checker.read("orders", 0)] == [b"before", b"held"]


def test_bytes_pass_an_honest_wire_unchanged() -> None:
    with testing.server() as address, proxy(address) as wire, Client(wire.address) as client:
        client.create_topic("orders", KEPT)
        payloads = [bytes([number]) * 100_000 for number in range(200)]
        client.put_many("orders", payloads[:100])
        wire.delay(0.01)
        client.put_many("orders", payloads[100:])
        got: list[bytes] = []
        while len(got) < 200:
            got += [message.payload for message in client.read("orders", len(got), limit=200)]
        assert got == payloads


def test_a_closed_wire_refuses_newcomers_and_a_closed_proxy_is_gone() -> None:
    with testing.server() as address:
        wire = Proxy(address)
        wire.refuse()
        with Client(wire.address, timeout=0.3) as client, pytest.raises(Exception, match="answer"):
            client.status()
        wire.heal()
        with Client(wire.address) as client:
            assert client.status()
        wire.close()
        wire.close()
