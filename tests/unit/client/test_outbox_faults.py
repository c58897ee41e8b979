"""The client's own disk fails at any call, in any way: every put's fate is told, and is true."""

import errno
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from oncemq.client.state import outbox
from oncemq.client.ticket import Ticket
from oncemq.client.verbs import messages
from oncemq.errors import (
    InvalidRequest,
    OnceMQError,
    StorageFull,
    StorageRefused,
    StorageUnsure,
)
from oncemq.protocol.limits import ServerLimits
from oncemq.session.publisher import TopicPuts
from oncemq.testing.faulty_disk import FaultyDisk
from simulator.machines.memory_journal import SimulatedJournal
from tests.harness.client import Node, World

ERRORS = (errno.EIO, errno.ENOSPC, errno.EROFS, errno.EMFILE, errno.EDQUOT, errno.EFBIG)
MOST_BYTES = 500
TOO_LARGE = b"x" * 600  # for the server: it is refused, and those behind it are renumbered


class Session:
    """A client that puts in every way, on a disk of which one call fails."""

    def __init__(self, world, *, fails: int = -1, error: int = errno.EIO, often: int = 1) -> None:
        self.world, self.fails, self.error, self.often = world, fails, error, often
        self.disk, self.journal = FaultyDisk(Random(7)), SimulatedJournal()
        self.calls = 0
        self.fates: dict[bytes, Ticket | OnceMQError] = {}
        self.reader = world.client()
        self.reader.run(messages.subscribe(self.reader.engine, "orders", "new"))

    def fail(self, call: str, path: str, _size: int) -> None:
        self.calls += 1
        if self.fails < self.calls <= self.fails + self.often:
            raise OSError(self.error, "planned", f"{call} {path}")

    def put(self, payload: bytes, make: Callable[[str, bytes], Ticket]) -> None:
        if self.client.engine.failure is not None:
            return
        try:
            self.fates[payload] = make("orders", payload)
        except OnceMQError as error:
            self.fates[payload] = error

    def start(self) -> None:
        self.client = self.world.on_disk(f"shop{self.fails}", self.disk, self.journal)

    def live(self) -> bool:
        """Whether it came as far as to put."""
        self.disk.faults.hook = self.fail
        try:
            self.start()
        except StorageRefused:
            return False  # in words, and nothing was put
        self.client.turn()
        for number in range(6):
            self.put(b"gathered %d" % number, self.client.gather)
            self.put(b"single %d" % number, self.client.put)
            if number == 2:
                self.put(TOO_LARGE, self.client.put)
                self.put(b"behind it", self.client.put)
            self.client.turn(3)
        self.client.turn(12)
        self.world.server.now += 5_000_000  # what was put off for want of room goes on
        self.client.turn(12)
        return True

    def flush(self) -> OnceMQError | None:
        outflow = self.client.engine.outflow
        assert outflow.idle
        return self.client.engine.failure or outflow.take_failure()

    def end(self) -> None:
        """It closes, or is killed; the next start finds a disk that works."""
        self.client.close()
        self.world.nodes.remove(self.client)
        self.start_again()

    def start_again(self) -> None:
        self.disk.faults.hook = None
        self.disk.kill()
        self.world.server.now += 30_000_000
        self.start()
        self.client.turn(20)
        assert self.client.engine.outflow.idle

    def leave(self) -> None:
        self.client.close()
        self.world.nodes.remove(self.client)
        self.reader.run(messages.delete_topic(self.reader.engine, "orders"))

    def judge(self) -> None:
        stored = self.world.server.stored("orders")
        for payload, fate in self.fates.items():
            error = fate if isinstance(fate, OnceMQError) else fate.error
            times = stored.count(payload)
            if error is None:
                assert times == 1, f"{payload[:12]} has a receipt, and is there {times} times"
            elif isinstance(error, StorageUnsure):
                assert times <= 1
            else:
                assert times == 0, f"{payload[:12]} was refused ({error}), and is there"


@pytest.fixture(autouse=True)
def _small(monkeypatch) -> None:
    monkeypatch.setattr(outbox, "ROTATE_BYTES", 400)
    monkeypatch.setattr(
        outbox, "_OPTIONS", outbox.LogOptions(1 << 30, allocate_bytes=2048, reserve_bytes=1024)
    )


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path, ServerLimits(message_bytes_max=MOST_BYTES))
    yield world
    world.close()


def calls_of_a_session(world: World) -> int:
    session = Session(world)
    assert session.live()
    assert isinstance(session.flush(), InvalidRequest)  # nobody looked at the one that is too large
    session.end()
    session.judge()
    session.leave()
    return session.calls


def test_a_session_without_faults_rotates_and_renumbers(world) -> None:
    session = Session(world)
    assert session.live()
    session.end()
    assert int(max(n for n in session.disk.names("/outbox/1") if n.isdigit())) > 2
    session.judge()
    assert world.server.stored("orders").count(b"behind it") == 1


# Each call fails alone, in one way or another; then all calls from it on.
@pytest.mark.parametrize("often", [1, 1000])
@pytest.mark.parametrize("share", range(4))
def test_whatever_call_of_the_disk_fails_every_put_is_told_what_became_of_it(
    world, often, share
) -> None:
    for fails in range(share, calls_of_a_session(world), 4):
        error = ERRORS[fails % len(ERRORS)]
        session = Session(world, fails=fails, error=error, often=often)
        if session.live():
            fates = [fate for fate in session.fates.values() if isinstance(fate, Ticket)]
            assert all(fate.done for fate in fates)
            gone = [fate for fate in fates if fate.error is not None]
            assert session.flush() or not gone, "flush says yes to puts that are gone"
            session.end()
        else:
            session.start_again()
        session.judge()
        session.leave()


# ------------------------------------------------------------------ a disk without room


class FullDisk:
    """A client with a refused put and one behind it, whose disk is full when that is known."""

    def __init__(self, world: World, *, spare: int) -> None:
        self.world, self.disk, self.journal = world, FaultyDisk(Random(7)), SimulatedJournal()
        reader = world.client()
        reader.run(messages.subscribe(reader.engine, "orders", "new"))
        self.client = world.on_disk("shop", self.disk, self.journal)
        self.client.turn()
        self.client.put("orders", b"first")
        self.client.turn()
        self.client.put("orders", TOO_LARGE)
        self.client.put("orders", b"behind it")
        self.spare = spare

    def fill(self) -> None:
        used = (1 << 40) - self.disk.free_bytes("/")
        self.disk.faults.capacity = used + self.spare

    def start_again(self) -> None:
        self.disk.kill()
        self.client = self.world.on_disk("shop", self.disk, self.journal)
        self.client.turn(12)


def test_new_numbers_find_room_on_a_full_disk(world) -> None:
    full = FullDisk(world, spare=0)
    full.fill()
    full.client.turn(12)
    assert world.server.stored("orders") == [b"first", b"behind it"]
    full.start_again()
    assert world.server.stored("orders") == [b"first", b"behind it"]


def test_numbers_that_found_no_room_are_not_used_and_the_client_comes_out_of_it(
    world, monkeypatch
) -> None:
    nothing_held_back = outbox.LogOptions(
        1 << 30, allocate_bytes=1, reserve_bytes=0, checkpoints=False
    )
    monkeypatch.setattr(outbox, "_OPTIONS", nothing_held_back)
    full = FullDisk(world, spare=0)
    full.disk.kill()
    client = world.on_disk("shop", full.disk, full.journal)
    full.fill()
    numbers = [p.first_sequence for p in lane_of(client).parcels]
    client.turn(20)
    assert world.server.stored("orders") == [b"first"]
    assert [p.first_sequence for p in lane_of(client).parcels] == numbers
    assert "make room" in client.engine.gave_up(1, "it").detail
    with pytest.raises(StorageFull):
        client.put("orders", b"no room")
    full.start_again()  # a restart on the full disk changes nothing
    assert world.server.stored("orders") == [b"first"]
    assert not full.client.engine.outflow.idle
    full.disk.faults.capacity = 1 << 40
    world.server.now += 3_000_000
    full.client.turn(12)
    assert world.server.stored("orders") == [b"first", b"behind it"]
    full.start_again()
    assert world.server.stored("orders") == [b"first", b"behind it"]
    assert full.client.engine.outflow.idle


def lane_of(client: Node) -> TopicPuts:
    return client.engine.outflow._publisher.lane("orders")


def test_an_interrupt_while_a_gathered_put_is_recorded_is_raised_and_the_put_knows(world) -> None:
    disk = FaultyDisk(Random(7))
    client = world.on_disk("shop", disk, SimulatedJournal())
    client.turn()
    ticket = client.gather("orders", b"x")

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    disk.faults.hook = interrupt
    with pytest.raises(KeyboardInterrupt):
        client.engine.outflow.seal_all()
    disk.faults.hook = None
    assert "not put, because of KeyboardInterrupt" in str(ticket.error)


def test_what_could_not_be_recorded_takes_no_share_of_the_outbox(world) -> None:
    full = FullDisk(world, spare=0)
    full.client.turn(12)
    full.fill()
    outflow = full.client.engine.outflow
    assert outflow.unsent_bytes == 0
    for _ in range(3):
        with pytest.raises(StorageFull):
            full.client.put("orders", b"x" * 4000)
        ticket = full.client.gather("orders", b"x" * 4000)
        full.client.turn(1)
        assert isinstance(ticket.error, StorageFull)
    assert outflow.unsent_bytes == 0
