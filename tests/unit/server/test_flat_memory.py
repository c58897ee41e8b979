"""A server that runs for days holds no more than one that runs for one: everything is counted."""

# pyright: reportArgumentType=false
# Names and numbers are written plainly here.

from collections import Counter
from typing import Any

import msgspec
import pytest

from oncemq.protocol.limits import ServerLimits
from oncemq.protocol.names import ClientId, Epoch, Micros, Offset, ProducerId, key_producer
from oncemq.protocol.replies import RefusedReply, Reply, Resumed
from oncemq.protocol.requests import (
    CommitRequest,
    DeleteTopic,
    DropStage,
    Leave,
    Listen,
    Piece,
    Put,
    Resume,
    StagePut,
    Start,
    Subscribe,
    Unsubscribe,
    WatchEnds,
)
from oncemq.server.housekeeping import Housekeeping
from oncemq.storage.log.log import LogOptions
from oncemq.wire import batch
from tests.held import sizes
from tests.simulation.crashed_server import Janitor

ROUND = 300_000_000  # microseconds: five minutes
A_DAY = 288  # rounds


class Town:
    """Clients of every kind that come and go."""

    def __init__(self, host: Any) -> None:
        self.host = host
        self.housekeeping = Housekeeping(host.driver, Micros(host.now))
        self.round = 0

    def ask(self, request: Any, body: bytes | None = None) -> Reply | None:
        """The answer, if there is one by now."""
        token = self.host.send(request, body)
        self.host.commit()
        answer = self.host.replies().get(token)
        return answer[0] if answer else None

    def put(self, topic: str, name: bytes, key: str = "") -> None:
        producer = key_producer(key) if key else ProducerId(name.ljust(16, b"."))
        body = batch.encode_payloads([b"x" * 200])
        checksum = batch.checksum(body, batch.seed(topic, producer, 1, 1))
        guest = ClientId("_anonymous-" + name.decode())
        put = Put(
            guest, Epoch(0), topic, 0, producer, False, 1, 1, 0, checksum, idempotency_key=key
        )
        reply = self.ask(put, body)
        if isinstance(reply, RefusedReply):
            resumed = self.ask(Resume(guest, Epoch(0), topic, producer, 1))
            assert isinstance(resumed, Resumed)
            reply = self.ask(msgspec.structs.replace(put, permit=resumed.permit), body)
        assert not isinstance(reply, RefusedReply), reply

    def stage(self, topic: str, name: bytes) -> None:
        stage, guest = ProducerId(name.ljust(16, b"-")), ClientId("_anonymous-" + name.decode())
        body = batch.encode_payloads([b"y" * 200])
        checksum = batch.checksum(body, batch.seed("", stage, 1, 1))
        self.ask(StagePut(guest, Epoch(0), stage, 1, 1, 0, checksum), body)
        if self.round % 3 == 0:
            self.ask(DropStage(guest, Epoch(0), stage))
        elif self.round % 3 == 1:
            piece = Piece(topic, stage, Offset(0), 1)
            self.ask(CommitRequest(guest, Epoch(0), f"_{guest}", 1, False, (piece,)))

    def live(self) -> None:
        """One round: somebody does everything there is, and most of them never come back."""
        name, topic = b"%d" % self.round, f"t{self.round % 20}"
        guest = ClientId(f"_anonymous-{self.round}")
        self.ask(Subscribe(guest, Epoch(0), topic, Start(), 1))
        if self.round % 5 == 0:
            self.ask(Subscribe(guest, Epoch(0), "t.*", Start(), 2))
        self.ask(self.host.getting(topic, wait_ms=20_000))
        getting = self.host.getting(topic, wait_ms=20_000)
        for _ in range(3):
            self.ask(msgspec.structs.replace(getting, client=guest))
        self.ask(Listen(guest, Epoch(0), (), (), 0, 20_000, 1))
        self.ask(WatchEnds(((topic, Offset(10**6)), (f"gone{self.round}", Offset(0))), 20_000))
        self.put(topic, name)
        self.put(topic, name, key=f"key-{self.round}")
        self.stage(topic, name)
        if self.round % 2:
            self.ask(Leave(guest, Epoch(0), 1))
            self.ask(Unsubscribe(guest, Epoch(0), topic, 3))
        if self.round % 20 == 19:
            self.ask(DeleteTopic(f"t{self.round // 20 % 20}"))
        for _ in range(6):
            self.host.now += ROUND // 6
            self.host.driver.tick(Micros(self.host.now))
            self.housekeeping.turn(Janitor(), Micros(self.host.now))
            self.host.commit()
            self.host.replies()
        self.round += 1

    def settle(self) -> None:
        """Nobody comes for a while, and every group is written."""
        for _ in range(40):
            self.host.now += 1_100_000
            self.housekeeping.turn(Janitor(), Micros(self.host.now))
            self.host.commit()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_what_a_server_holds_does_not_grow_with_the_days(make_host, monkeypatch) -> None:
    monkeypatch.setattr("oncemq.broker.permits.KEPT", 100)  # else it grows up to its limit
    monkeypatch.setattr("oncemq.broker.state.deleted_topics.KEPT_MAX", 100)
    options = LogOptions(segment_bytes=60_000, allocate_bytes=10_000, reserve_bytes=2_000)
    town = Town(make_host(options, ServerLimits(idempotency_ms=3_600_000, stage_ms=3_600_000)))
    counted: list[Counter[str]] = []
    for _ in range(3):
        for _ in range(A_DAY + A_DAY // 4):
            town.live()
        town.settle()
        counted.append(sizes(town.host.driver))
    before, after = counted[1:]
    grown = {path: (before[path], size) for path, size in after.items() if size > before[path] + 40}
    assert grown == {}
    assert len(after) > 50  # it did look
