"""A client without sockets: the engine over a line that ends at a driver in this process."""

import shutil
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from oncemq.broker.broker import Broker
from oncemq.broker.state.shard import Shard
from oncemq.client.engine.engine import Engine
from oncemq.client.settings import Settings
from oncemq.client.state.journal import Journal
from oncemq.client.state.known import Memory
from oncemq.client.state.outbox import Slot, open_slots
from oncemq.client.state.state import State
from oncemq.client.ticket import Ticket
from oncemq.client.values import Message
from oncemq.client.verbs.messages import Verb, settle, take
from oncemq.protocol.limits import ServerLimits
from oncemq.protocol.names import Micros
from oncemq.server.driver import Driver
from oncemq.storage.log.log import LogOptions
from oncemq.storage.log.recovery import open_log
from oncemq.testing.faulty_disk import FaultyDisk
from oncemq.transport.connecting.owed_bytes import OWED_MESSAGES_MAX
from oncemq.wire import batch
from simulator.machines.memory_journal import SimulatedJournal
from tests.harness.quick_disk import QuickDisk

NOWHERE = "nowhere"  # the address at which no server is
_numbers = count(1)


def random_bytes(size: int) -> bytes:
    """Never the same twice, and the same in every run of a test."""
    return blake2b(b"%d" % next(_numbers), digest_size=size).digest()


class Server:
    """A driver on a real log, with the clock and the network in the test's hands."""

    def __init__(self, directory: Path, rules: ServerLimits | None = None) -> None:
        self.directory = directory
        self.rules = rules or ServerLimits()
        self.now = 1_000_000_000
        self.start()

    def start(self) -> None:
        options = LogOptions(segment_bytes=1 << 20, allocate_bytes=1 << 16, reserve_bytes=1 << 12)
        opened = open_log(QuickDisk(), str(self.directory), options, random_bytes=random_bytes)
        shard = Shard(opened.log.tag)
        for serial, record in opened.replay:
            shard.apply(record, serial)
        shard.serial = opened.log.last_serial
        broker = Broker(shard, self.rules)
        broker.recovered(Micros(self.now))
        self.log, self.driver = opened.log, Driver(broker, opened.log)

    def crash(self) -> None:
        """What was not committed is gone; lines find out by themselves."""
        self.log.close()
        self.start()

    def commit(self) -> None:
        group = self.driver.commit(Micros(self.now + 1_000_000))
        if group is not None:
            self.log.write(group)
            self.driver.written(group, Micros(self.now))

    def stored(self, topic: str) -> list[bytes]:
        """Every payload the log holds of a topic."""
        known = self.driver.broker.shard.by_name[topic]
        found: list[bytes] = []
        while len(found) < known.visible:
            for each in self.log.read_many(known.id, len(found), count_max=99, bytes_max=1 << 20):
                record = each.record
                assert record.first_offset == len(found)
                found += batch.payloads_of(each.body, record.count, record.columns)
        return found


class Wire:
    """A line to the server. `lose` says of each reply whether it is lost on the way.

    It keeps the contract of `ServerConnection` (tests/contracts): what is sent while it is not
    connected does not leave, and each connection has a route of its own.
    """

    def __init__(self, server: Server) -> None:
        self.server = server
        self.route = b""  # of the connection; none without one
        self.descriptors: tuple[int, ...] = ()
        self.is_in_vain = False
        self.events: list[bool] = []
        self.inbox: list[list[bytes]] = []
        self.up = True  # the network is
        self.sent = 0
        self.lose: Callable[[int], bool] = lambda number: False
        self._wanted = False  # it was told to connect to where the server is
        self._is_read = True
        self._unread: list[list[bytes]] = []
        self._left: set[bytes] = set()  # routes of connections before
        self._replies = count()

    def connect(self, address: str) -> None:
        self._leave()
        self.events.clear()
        self._wanted = address != NOWHERE
        self._try()

    def news(self) -> bool | None:
        return self.events.pop(0) if self.events else None

    def send(self, frames: Sequence[Any]) -> bool:
        if not self.up or not self.route or len(self._unread) >= OWED_MESSAGES_MAX:
            return False
        self.sent += 1
        self._unread.append([bytes(frame) for frame in frames])
        self.be_read(self._is_read)
        return True

    def be_read(self, reads: bool) -> None:
        """Whether the server takes what was sent."""
        self._is_read = reads
        while self._is_read and self._unread:
            frames = self._unread.pop(0)
            self.server.driver.receive(self.route, frames, Micros(self.server.now))

    def receive(self) -> list[bytes] | None:
        return self.inbox.pop(0) if self.inbox else None

    def collect(self) -> None:
        """What the server has sent arrives."""
        kept = []
        for route, frames in self.server.driver.outgoing:
            if route in self._left:
                continue
            if route != self.route:
                kept.append((route, frames))
            elif self.up and not self.lose(next(self._replies)):
                self.inbox.append([bytes(frame) for frame in frames])
        self.server.driver.outgoing = kept

    def cut(self) -> None:
        """The connection breaks; what was on its way is gone."""
        self.up = False
        if self.route:
            self._leave()
            self.events.append(False)

    def mend(self) -> None:
        """The network is back: it connects by itself."""
        self.up = True
        self._leave()
        self._try()

    def next_deadline(self) -> None: ...

    def close(self) -> None:
        self.up = self._wanted = False
        self.events.clear()
        self._leave()

    def _try(self) -> None:
        if self.up and self._wanted:
            self.route = random_bytes(8)
            self.events.append(True)

    def _leave(self) -> None:
        self._left.add(self.route)
        self.route = b""
        self.inbox.clear()
        self._unread.clear()


class Node:
    """One client, pumped by hand."""

    def __init__(self, server: Server, state: State, wire: Wire, servers: Sequence[str]) -> None:
        self.server = server
        self.wire = wire
        self.state = state
        settings = Settings([*servers], 5.0, 1 << 20, lambda: 0.5)
        self.engine = Engine(settings, self.state, self.wire, lambda: Micros(server.now))

    def turn(self, times: int = 6) -> None:
        """Let requests and replies go to and fro, everything durable at once."""
        for _ in range(times):
            self.pump()
            self.server.commit()
            self.server.now += 1

    def pump(self) -> None:
        """What was sent has arrived; what is due leaves. An answer takes another pump."""
        self.wire.collect()
        self.engine.pump()

    def run(self, verb: Verb[Any], turns: int = 90) -> Any:
        """A verb to its end; a wait ends because time passes."""
        try:
            ticket = next(verb)
            for _ in range(turns):
                self.turn(1)
                if not ticket.done:
                    self.server.now += 100_000
                    self.server.driver.tick(Micros(self.server.now))
                    continue
                ticket = verb.send(None)
        except StopIteration as end:
            return end.value
        finally:
            verb.close()
        raise AssertionError("the verb did not end")

    def put(
        self, topic: str, *payloads: bytes, lasting: bool = True, required: bool = False
    ) -> Ticket[Any]:
        body, count = batch.encode_payloads(payloads), len(payloads)
        return self.engine.outflow.put(
            topic, count=count, columns=0, body=body, lasting=lasting, required=required
        )

    def gather(
        self, topic: str, payload: bytes, *, lasting: bool = True, required: bool = False
    ) -> Ticket[Any]:
        outflow = self.engine.outflow
        return outflow.gather(topic, [payload], None, lasting=lasting, required=required)[0]

    def take(self, topic: str = "", limit: int = 100, wait_ms: int = 0) -> list[Message]:
        return self.run(take(self.engine, topic, limit, wait_ms))

    def get(self, topic: str = "", limit: int = 100, wait_ms: int = 0) -> list[str]:
        messages = self.take(topic, limit, wait_ms)
        settle(self.engine, messages)
        return [f"{message.id}={message.payload.decode()}" for message in messages]

    def close(self) -> None:
        self.engine.close()


class World:
    """A server, and clients with directories of their own."""

    def __init__(self, directory: Path, rules: ServerLimits | None = None) -> None:
        self.directory = directory
        self.server = Server(directory / "server", rules)
        self.nodes: list[Node] = []
        self.wire_to: Callable[[Server], Wire] = Wire
        self.servers: Sequence[str] = ("one",)  # as clients are given them

    def client(self, name: str | None = None, directory: str | None = None) -> Node:
        if name is None:
            return self._node(f"_anonymous-{next(_numbers)}", None, [], lambda: None)
        path = self.directory / (directory or name)
        journal = Journal(path, name)
        slots = open_slots(QuickDisk(), str(path / "outbox"), random_bytes)
        return self._node(name, journal, slots, journal.close)

    def on_disk(self, name: str, disk: FaultyDisk, journal: SimulatedJournal) -> Node:
        """A client whose outbox is on a disk that may fail."""
        slots = open_slots(disk, "/outbox", random_bytes)
        return self._node(name, journal, slots, lambda: None)

    def _node(
        self, name: str, journal: Memory | None, slots: list[Slot], close: Callable[[], None]
    ) -> Node:
        state = State(
            name,
            journal=journal,
            slots=slots,
            directory="state",
            random_bytes=random_bytes,
            close=close,
        )
        node = Node(self.server, state, self.wire_to(self.server), self.servers)
        self.nodes.append(node)
        return node

    def crashed(self, name: str) -> Node:
        """A client that starts on what the one of that name has on its disk now."""
        copy = f"{name}-{next(_numbers)}"
        shutil.copytree(self.directory / name, self.directory / copy)
        return self.client(name, copy)

    def close(self) -> None:
        for node in self.nodes:
            node.close()
        self.server.log.close()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.close()


@pytest.fixture
def some_bytes() -> Callable[[int], bytes]:
    return random_bytes
