"""What a courier sends for an errand, field by field, and what it makes of the answers."""

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from oncemq.errors import Fenced
from oncemq.protocol.names import (
    ANONYMOUS_EPOCH,
    ClientId,
    Epoch,
    Offset,
    ProducerId,
    Sequence,
    TopicId,
)
from oncemq.protocol.replies import PutAccepted, RefusedReply, Reply, Resumed
from oncemq.protocol.requests import Put, Request, Resume
from oncemq.protocol.step import Body
from oncemq.relay.publisher import RelayPublisher
from oncemq.relay.topic_relay import TopicRelay, TopicStanding
from oncemq.wire import batch
from oncemq.wire.batch import Item

PRODUCER = ProducerId(b"0123456789abcdef")
UNDER_WAY = TopicStanding("orders", PRODUCER, TopicId(7), Sequence(10), planned=(5, 6), version=3)
ITEMS = [Item(b"one", b"key", {"a": "b"}), Item(b"two")]


class Engine:
    """Keeps what is begun; a test sends it, and answers."""

    def __init__(self) -> None:
        self.client = "relay"
        self.client_epoch: Epoch | None = Epoch(4)
        self.failure: Exception | None = None
        self._begun: list[tuple[Callable[[], tuple[Request, Body]], Callable[..., None]]] = []

    def begin(self, make: Any, handler: Any) -> None:
        self._begun.append((make, handler))

    def send(self, number: int = 0) -> tuple[Request, Body]:
        return self._begun[number][0]()

    def answer(self, reply: Reply, number: int = 0) -> None:
        self._begun[number][1](reply, [])


@pytest.fixture
def engine() -> Engine:
    return Engine()


@pytest.fixture
def courier(engine: Engine) -> Iterator[RelayPublisher]:
    courier: Any = RelayPublisher("tcp://127.0.0.1:1", "relay")
    real, courier._engine = courier._engine, engine
    yield courier
    courier._engine = real
    courier.close()


def sure(*, required: bool = True) -> TopicRelay:
    """An errand that the server has confirmed, with a permit."""
    errand = TopicRelay(UNDER_WAY, required=required)
    errand.resumed(Resumed(TopicId(7), Sequence(10), permit=9))
    return errand


def test_each_ask_has_a_number_that_its_repeats_keep(
    courier: RelayPublisher, engine: Engine
) -> None:
    for number in range(2):
        errand = TopicRelay(UNDER_WAY)
        courier.ask(errand)
        assert (errand.under_way, errand.next(), courier.under_way) == (True, None, number + 1)
    first = Resume(ClientId("relay"), Epoch(4), "orders", PRODUCER, number=1, topic_id=TopicId(7))
    assert [engine.send(0), engine.send(0)] == [(first, None), (first, None)]
    engine.client_epoch = None  # not let in yet
    second, _ = engine.send(1)
    assert isinstance(second, Resume)
    assert (second.client_epoch, second.number) == (ANONYMOUS_EPOCH, 2)


@pytest.mark.parametrize("required", [True, False])
def test_a_put_is_the_planned_rows_under_their_numbers(
    courier: RelayPublisher, engine: Engine, required: bool
) -> None:
    errand = sure(required=required)
    courier.put(errand, ITEMS)
    assert (errand.under_way, errand.next(), courier.under_way) == (True, None, 1)
    put, body = engine.send()
    columns, wanted = batch.encode(ITEMS)
    assert put == Put(
        ClientId("relay"),
        Epoch(4),
        "orders",
        TopicId(7),
        PRODUCER,
        lasting=True,
        first_sequence=Sequence(11),
        count=2,
        columns=columns,
        checksum=batch.checksum(wanted, batch.seed("orders", PRODUCER, Sequence(11), 2)),
        permit=9,
        required=required,
    )
    assert batch.decode(bytes(body), 2, columns) == ITEMS
    assert (engine.send(), errand.sends) == ((put, body), 2)


def test_an_answer_is_for_its_errand_and_no_other(courier: RelayPublisher, engine: Engine) -> None:
    asked, put = TopicRelay(UNDER_WAY), sure()
    courier.ask(asked)
    courier.put(put, ITEMS)
    engine.answer(PutAccepted(TopicId(7), Offset(4), 2, True, False, 0), 1)
    assert (asked.under_way, put.under_way, courier.under_way) == (True, False, 1)
    assert put.change is not None
    assert (put.change.freed, put.change.after.acknowledged) == ((5, 6), 12)
    engine.answer(Resumed(TopicId(7), Sequence(10), permit=3), 0)
    assert (asked.sure, asked.permit, asked.under_way, courier.under_way) == (True, 3, False, 0)


def test_a_relay_that_was_refused_itself_decides_nothing(
    courier: RelayPublisher, engine: Engine
) -> None:
    errand = sure()
    courier.put(errand, ITEMS)
    engine.failure = Fenced("another relay")
    engine.answer(RefusedReply("fenced", "another relay"))
    assert (errand.under_way, errand.change, courier.under_way) == (True, None, 1)


def test_a_put_that_waits_for_room_is_said(
    courier: RelayPublisher, engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "oncemq.relay")
    for number, code in enumerate(("storage_full", "checksum")):
        errand = sure()
        courier.put(errand, ITEMS)
        engine.answer(RefusedReply(code, f"because of {code}"), number)
        assert (errand.put_off, errand.change) == (True, None)
    assert caplog.messages == ["put off topic=orders: because of storage_full"]
