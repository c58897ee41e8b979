"""Servers of two versions in one cluster: what is written, who may join, what an old one meets."""

from typing import Any

import msgspec
import pytest

from oncemq.broker import recorder
from oncemq.protocol.names import Epoch, Micros, ServerId
from oncemq.protocol.records import Marked
from oncemq.protocol.replicas import versions
from oncemq.protocol.replies import RefusedReply, Subscribed
from oncemq.protocol.requests import Start, Subscribe
from oncemq.protocol.step import Step
from oncemq.server.driver import Driver
from oncemq.storage.segments import framing
from tests.harness.server import GUEST
from tests.harness.side_by_side import Side, SideBySide

OLD, NEW = 1, 2
ALL = "abc"


class Planted(Marked, frozen=True, array_like=True):
    """A fact of a kind that came with version 2."""

    kind = 99


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> SideBySide:
    monkeypatch.setitem(versions.KINDS, Planted.kind, NEW)
    monkeypatch.setattr(recorder, "NEWEST", NEW)  # who is told nothing writes whatever it can
    servers = SideBySide()

    def nothing_newer_is_written() -> None:
        if servers.leader is not None and servers.shard.version == OLD:
            assert refusal(servers) is not None

    servers.always = nothing_newer_is_written
    return servers


def started(servers: SideBySide, **reads: int) -> Side:
    """A cluster that server a founded."""
    for name, version in reads.items():
        servers.start(name, reads=version)
    return servers.until_in_sync(*reads)


def upgrade(servers: SideBySide, name: str) -> Side:
    servers.end(name)
    servers.start(name, reads=NEW)
    return servers.until_in_sync(*ALL)


def knows_the_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    """All servers of this process, from here on."""
    decoder = msgspec.msgpack.Decoder(Planted)
    monkeypatch.setitem(framing._decoders, Planted.kind, decoder.decode)


def driver_of(servers: SideBySide) -> Driver:
    assert servers.leader is not None
    driver = servers.leader.replica._parts.driver
    assert driver is not None
    return driver


def refusal(servers: SideBySide) -> RefusedReply | None:
    """Why a rule of the leader's broker may not write the new kind."""
    return driver_of(servers).broker._scribe.too_new(Planted)


def write(servers: SideBySide) -> int:
    """Write it, as a rule would; its serial."""
    driver, step = driver_of(servers), Step()
    serial = driver.broker._scribe.write(step, Planted())
    driver._carry_out(step, Micros(servers.now))
    return serial


def subscribe(servers: SideBySide, topic: str) -> None:
    assert isinstance(servers.ask(Subscribe(GUEST, Epoch(0), topic, Start())), Subscribed)


def have(servers: SideBySide, serial: int, names: str) -> bool:
    """Whether it is in the state of all of these."""
    sides = [servers.running.get(ServerId(name)) for name in names]
    return all(side and facts(side).get("cluster_applied", 0) >= serial for side in sides)


def facts(side: Side) -> Any:
    return side.replica._told_of_itself()


# ------------------------------------------------------------------ what may be written


def test_a_new_kind_is_written_once_every_replica_reads_it(
    servers: SideBySide, monkeypatch: pytest.MonkeyPatch
) -> None:
    started(servers, a=OLD, b=OLD, c=OLD)
    for name in ALL:  # one after the other, the leader too
        refused = refusal(servers)
        assert refused is not None
        assert refused.code == "not_upgraded"
        with pytest.raises(AssertionError, match="Planted may not be written yet"):
            write(servers)
        assert servers.shard.version == OLD
        subscribe(servers, f"before-{name}")
        upgrade(servers, name)
    knows_the_kind(monkeypatch)
    servers.until(lambda: servers.leader is not None and refusal(servers) is None)
    assert servers.shard.version == NEW
    serial = write(servers)
    servers.until(lambda: have(servers, serial, ALL))


def test_who_is_older_is_named_until_it_is_upgraded(servers: SideBySide) -> None:
    started(servers, a=OLD, b=OLD, c=OLD)
    upgrade(servers, "b")
    leader = upgrade(servers, "a")
    newest = servers.running[ServerId("b")]
    servers.until(lambda: facts(newest)["cluster_older"] == "c")
    assert facts(leader)["cluster_version"] == OLD
    upgrade(servers, "c")
    servers.until(lambda: servers.shard.version == NEW)
    servers.until(lambda: facts(newest)["cluster_older"] == "")


def test_who_may_come_back_as_it_was_is_waited_for(servers: SideBySide) -> None:
    """It did not run when the others were upgraded: nobody knows what it will be."""
    started(servers, a=OLD, b=OLD, c=OLD)
    upgrade(servers, "b")
    upgrade(servers, "a")
    servers.end("c")
    servers.until_in_sync("a", "b")
    servers.until(lambda: facts(servers.running[ServerId("b")])["cluster_older"] == "c")
    assert servers.shard.version == OLD
    servers.start("c", reads=OLD)
    servers.until_in_sync(*ALL)
    assert servers.shard.version == OLD


def test_a_cluster_that_is_founded_writes_all_that_its_founder_reads(servers: SideBySide) -> None:
    started(servers, a=NEW, b=NEW, c=NEW)
    assert servers.shard.version == NEW
    assert refusal(servers) is None


# ------------------------------------------------------------------ who may join


def test_who_cannot_read_what_is_written_is_not_let_in_and_is_told_why(
    servers: SideBySide,
) -> None:
    started(servers, a=NEW, b=NEW, c=NEW)
    servers.end("c")
    old = servers.start("c", reads=OLD)
    servers.until(lambda: old.agreement.declined)
    assert facts(old)["cluster_trouble"] == (
        "the servers of the cluster write version 2, and c runs a OnceMQ that reads versions up to "
        "1: run the version that the other servers run; its data directory can stay as it is"
    )
    assert not old.agreement.is_known
    upgrade(servers, "c")


def test_a_shard_that_is_not_understood_is_not_raised(servers: SideBySide) -> None:
    """It may have been raised, and more, by a server that knows it better."""
    leader = started(servers, a=OLD, b=OLD, c=OLD)
    known = leader.agreement._known
    known.faults[known.shard_key] = "of a later version"
    known.announced = {
        name: msgspec.structs.replace(each, reads=NEW) for name, each in known.announced.items()
    }
    assert known.raised(leader.name, "n") is None
    del known.faults[known.shard_key]
    assert known.raised(leader.name, "n") is not None


# ------------------------------------------------------------------ a rule that is broken


def test_a_follower_that_gets_an_unknown_kind_halts_whole_and_goes_on_once_upgraded(
    servers: SideBySide, monkeypatch: pytest.MonkeyPatch
) -> None:
    started(servers, a=OLD, b=OLD, c=OLD)
    subscribe(servers, "before")
    leader = servers.leader
    assert leader is not None
    others = [servers.running[ServerId(name)] for name in ALL if name != leader.name]
    servers.always = lambda: None
    driver_of(servers).broker.recorder.version = NEW  # which no value of the shard says
    serial = write(servers)
    servers.until(lambda: all(each.ended for each in others))
    for each in others:
        assert each.ended is not None
        assert each.ended.code == "replica_halted"
        assert "upgrade this server, and start it again" in each.ended.detail
        assert "a record of kind 99" in each.ended.detail
        assert facts(each)["cluster_last"] == serial - 1  # all that it had
    knows_the_kind(monkeypatch)
    for each in others:
        servers.start(each.name, reads=NEW)
    servers.until(lambda: have(servers, serial, ALL))
    subscribe(servers, "after")
    subscribe(servers, "before")
