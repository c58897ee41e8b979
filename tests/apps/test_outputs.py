"""Handlers with `to=` or a `transaction`: outputs and cursor in one commit of the server."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import msgspec
import pytest

from oncemq import App, Client, Unreachable
from oncemq.apps import dead_letter_admin
from oncemq.apps.blocking import drive
from oncemq.apps.handler_loop import HandlerLoop
from oncemq.protocol.limits import ServerLimits
from oncemq.testing import Chaos
from tests.e2e.processes import until

Connect = Callable[..., Client]


class Order(msgspec.Struct, frozen=True):
    id: int


class Bill(msgspec.Struct, frozen=True):
    order: int
    cents: int = 220


@pytest.fixture
def app(oncemq_server: str, tmp_path: Path) -> App:
    return App(oncemq_server, id="shop", state=tmp_path / "state")


@pytest.fixture
def mq(oncemq_client: Connect) -> Client:
    client = oncemq_client()
    client.subscribe("bills")
    client.subscribe("copies")
    return client


def order(number: int) -> bytes:
    return msgspec.json.encode(Order(number))


def bills(mq: Client, count: int, topic: str = "bills") -> list[int]:
    """The orders of the next bills; there are no more than these."""
    got: list[int] = []

    def enough() -> bool:
        messages = mq.get(topic, limit=1000, wait=0.05)
        got.extend(msgspec.json.decode(each.payload, type=Bill).order for each in messages)
        return len(got) >= count

    until(enough)
    return got


def one(order: Order) -> Bill | None:
    return Bill(order.id) if order.id % 2 else None


async def one_awaitably(order: Order) -> Bill | None:
    return one(order)


def yielded(order: Order) -> Iterator[Bill | None]:
    yield one(order)


async def yielded_awaitably(order: Order) -> AsyncIterator[Bill | None]:
    yield one(order)


def many(orders: list[Order]) -> list[Bill | None]:
    return [one(each) for each in orders]


async def many_awaitably(orders: list[Order]) -> list[Bill | None] | None:
    return many(orders) or None


@pytest.mark.parametrize(
    "function", [one, one_awaitably, yielded, yielded_awaitably, many, many_awaitably]
)
def test_what_a_handler_returns_goes_on(app: App, mq: Client, function: Any) -> None:
    app.handler("orders", to="bills", limit=7)(function)
    with app.running():
        mq.put_many("orders", [order(n) for n in range(20)])
        assert bills(mq, 10) == list(range(1, 20, 2))


def test_a_transaction_puts_into_several_topics_at_once(app: App, mq: Client) -> None:
    @app.handler("orders")
    def blocking(order: Order, transaction: Any) -> None:
        transaction.put(["bills", "copies"], msgspec.json.encode(Bill(order.id)))

    @app.handler("teas")
    async def awaitable(order: Order, transaction: Any) -> None:
        await transaction.put("bills", msgspec.json.encode(Bill(order.id)))

    with app.running():
        mq.put_many("orders", [order(n) for n in range(3)])
        assert bills(mq, 3) == bills(mq, 3, "copies") == [0, 1, 2]
        mq.put_many("teas", [order(7)])
        assert bills(mq, 1) == [7]


def test_what_fails_puts_nothing_and_takes_no_other_along(app: App, mq: Client) -> None:
    @app.handler("orders", to="bills", retries=1, backoff=0.001)
    def handle(order: Order) -> Iterator[Bill]:
        yield Bill(order.id)
        if order.id == 3:
            raise ValueError("not three")

    with app.running():
        mq.put_many("orders", [order(n) for n in range(6)])
        assert bills(mq, 5) == [0, 1, 2, 4, 5]
        until(lambda: mq.subscriptions("orders")[0].cursor == 6)
    (letter,) = dead_letter_admin.open_letters(mq, "orders.dead")
    assert letter.origin == "orders@3"


def test_what_is_no_payload_is_a_failure_of_the_handler(app: App, mq: Client) -> None:
    @app.handler("orders", to="bills", retries=0)
    def handle(order: Order) -> object:
        return object()

    @app.handler("cakes", to="bills", retries=0)
    def too_large(order: Order) -> bytes:
        return b"x" * (ServerLimits().message_bytes_max + 1)

    @app.handler("teas", to="bills", retries=0)
    def lists(orders: list[Order]) -> Any:
        return "a text"

    with app.running():
        mq.put("orders", order(0))
        mq.put("teas", order(0))
        mq.put("cakes", order(0))
        until(
            lambda: [each.cursor for each in mq.subscriptions() if "shop" in each.client] == [1] * 3
        )
    (letter,) = dead_letter_admin.open_letters(mq, "orders.dead")
    assert "returned a object, which is no payload" in letter.reason
    (letter,) = dead_letter_admin.open_letters(mq, "cakes.dead")
    assert letter.reason.startswith("InvalidRequest: ")
    (letter,) = dead_letter_admin.open_letters(mq, "teas.dead")
    assert "a handler of a list returned str, not a list" in letter.reason


@pytest.mark.slow
def test_an_idle_handler_writes_nothing(app: App, mq: Client) -> None:
    def rests() -> bool:
        before = mq.status()["durable_serial"]
        assert mq.get("bills", wait=1) == []
        return mq.status()["durable_serial"] == before

    app.handler("orders", to="bills")(one)
    with app.running():
        mq.put("orders", order(1))
        assert bills(mq, 1) == [1]
        until(lambda: mq.subscriptions("orders")[0].cursor == 1)
        until(rests)  # with a commit at each poll it never would


@pytest.mark.slow
def test_outputs_are_inputs_through_all_chaos(app: App, mq: Client, oncemq_chaos: Chaos) -> None:
    @app.handler("orders", to="bills", limit=10)
    def handle(order: Order) -> Bill:
        return Bill(order.id)

    with app.running():
        oncemq_chaos.duplicate_requests(0.2)
        oncemq_chaos.drop_replies(0.5, times=2)
        oncemq_chaos.crash_after_append(0.02, times=3)
        oncemq_chaos.crash_before_sync(0.02, times=3)
        oncemq_chaos.crash_after_sync(0.02, times=3)
        for n in range(200):
            mq.put("orders", order(n))
        oncemq_chaos.calm()
        assert bills(mq, 200) == list(range(200))
    assert sum(oncemq_chaos.injected.values()) > 20, oncemq_chaos


# ------------------------------------------------------------------ what nobody would get


def waits(log: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in log.records if "handler waits" in each.getMessage()]


async def through_a_transaction(order: Order, transaction: Any) -> None:
    await transaction.put("late", msgspec.json.encode(Bill(order.id)))


@pytest.mark.parametrize(
    ("function", "to"), [(one, "late"), (one_awaitably, "late"), (through_a_transaction, None)]
)
def test_an_output_that_nobody_would_get_waits_and_is_no_dead_letter(
    app: App, mq: Client, caplog: pytest.LogCaptureFixture, function: Any, to: str | None
) -> None:
    app.handler("orders", to=to, retries=0)(function)
    with app.running():
        mq.put_many("orders", [order(n) for n in (1, 3, 5)])
        until(lambda: len(waits(caplog)) == 1)
        assert "Subscribe first" in waits(caplog)[0]
        assert mq.subscriptions("orders")[0].cursor == 0
        mq.subscribe("late")
        assert bills(mq, 3, "late") == [1, 3, 5]
        until(lambda: mq.subscriptions("orders")[0].cursor == 3)
    assert [each.name for each in mq.topics() if each.name.endswith(".dead")] == []


def test_restarts_while_an_output_waits_are_no_crashes_of_the_message(
    app: App, mq: Client, caplog: pytest.LogCaptureFixture
) -> None:
    app.handler("orders", to="late", crashes=0)(one)
    with app.running():
        mq.put("orders", order(1))
        until(lambda: len(waits(caplog)) == 1)
    with app.running():
        until(lambda: len(waits(caplog)) == 2)
    mq.subscribe("late")
    with app.running():
        assert bills(mq, 1, "late") == [1]
    assert [each.name for each in mq.topics() if each.name.endswith(".dead")] == []


def test_a_handler_that_finds_no_server_from_the_start_says_so_once(
    app: App, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pauses: list[float] = []

    class NobodyThere:
        async def subscribe(self) -> bool:
            raise Unreachable("no answer from tcp://127.0.0.1:1")

        async def pause(self, seconds: float) -> None:
            pauses.append(seconds)

    app.handler("orders")(one)
    hands: Any = NobodyThere()
    work = HandlerLoop(
        app.handlers[0], hands, client="shop.orders", directory=tmp_path, hold=nullcontext,
        stopping=lambda: len(pauses) == 3,
    )  # fmt: skip
    drive(work.run(lambda: None))
    assert [each.partition(" because=")[0] for each in waits(caplog)] == [
        "handler waits handler=shop.orders"
    ]


def test_an_output_that_is_not_required_may_be_discarded(app: App, mq: Client) -> None:
    app.handler("orders", to="late", required=False)(one)
    with app.running():
        mq.put("orders", order(1))
        until(lambda: mq.subscriptions("orders")[0].cursor == 1)
    assert mq.topic("late").topic.end == 0
