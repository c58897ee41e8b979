"""Apps on a real server: order, retries, long handlers, stops and starts."""

import logging
import threading
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from oncemq import App, Client, Fenced, Message, Unreachable
from oncemq.testing import Chaos, server
from tests.e2e.processes import free_port, until

pytestmark = pytest.mark.usefixtures("oncemq_server")


class Order(msgspec.Struct, frozen=True):
    id: int


def orders(*ids: int) -> list[bytes]:
    return [msgspec.json.encode(Order(each)) for each in ids]


def cursor(mq: Client, client: str) -> int:
    (found,) = mq.subscriptions(client=client)
    return found.cursor


def test_handlers_get_their_messages_in_order_as_they_want_them(app: App, mq: Client) -> None:
    got: dict[str, list[Any]] = {"blocking": [], "awaitable": [], "list": [], "raw": []}

    @app.handler("orders")
    def blocking(order: Order, message: Message) -> None:
        got["blocking"].append((order, message.id))

    @app.handler("orders", name="later")
    async def awaitable(order: Order, message: Message) -> None:
        got["awaitable"].append((order, message.id))

    @app.handler("notes")
    def many(notes: list[str]) -> None:
        got["list"] += notes

    @app.handler("notes", name="raw")
    async def raw(message: Message) -> None:
        got["raw"].append(message.payload.decode())

    with app.running():
        mq.put_many("orders", orders(*range(50)))
        mq.put_many("notes", [b"%d" % n for n in range(50)])
        until(lambda: min(map(len, got.values())) == 50)
    expected = [(Order(n), f"orders@{n}") for n in range(50)]
    assert got["blocking"] == got["awaitable"] == expected
    assert got["list"] == got["raw"] == [str(n) for n in range(50)]
    assert {each.client for each in mq.subscriptions()} == {
        "shop.orders",
        "shop.later",
        "shop.notes",
        "shop.raw",
    }


@pytest.mark.parametrize("awaitable", [False, True])
def test_a_failing_message_is_retried_in_order_and_holds_up_no_other_handler(
    app: App, mq: Client, awaitable: bool
) -> None:
    got: list[int] = []
    others: list[int] = []
    stumbled, let_pass = threading.Event(), threading.Event()

    def stumble(order: Order) -> None:
        if order.id == 1 and not let_pass.is_set():
            stumbled.set()
            raise RuntimeError("not yet")
        got.append(order.id)

    async def stumble_awaitably(order: Order) -> None:
        stumble(order)

    app.handler("orders", backoff=0.01, retries=10_000)(stumble_awaitably if awaitable else stumble)

    @app.handler("orders", name="others")
    def steady(order: Order) -> None:
        others.append(order.id)

    with app.running():
        mq.put_many("orders", orders(0, 1, 2, 3))
        until(lambda: others == [0, 1, 2, 3])
        until(stumbled.is_set)
        assert got == [0], "the failing message blocks its own handler"
        let_pass.set()
        until(lambda: got == [0, 1, 2, 3])


def test_a_server_that_is_away_for_the_handler_is_no_messages_fault(app: App, mq: Client) -> None:
    tries = 0

    @app.handler("orders", retries=0)
    def handle(order: Order) -> None:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise Unreachable("another server, of the handler's own")

    with app.running():
        mq.put_many("orders", orders(0))
        until(lambda: cursor(mq, "shop.orders") == 1)
    assert tries == 3
    assert [each.name for each in mq.topics()] == ["orders"]


def test_of_a_list_that_fails_each_is_tried_alone(app: App, mq: Client) -> None:
    calls: list[list[int]] = []
    tries = 2

    @app.handler("orders", backoff=0.001)
    def handle(orders: list[Order]) -> None:
        nonlocal tries
        ids = [each.id for each in orders]
        calls.append(ids)
        if 2 in ids and tries:
            tries -= 1
            raise RuntimeError("not two")

    mq.create_topic("orders")
    with app.running():
        mq.put_many("orders", orders(0, 1, 2, 3))
        until(lambda: calls[-1:] == [[3]])
    assert calls == [[0, 1, 2, 3], [0], [1], [2], [2], [3]]


def test_a_start_goes_on_where_the_last_one_stopped(app: App, mq: Client) -> None:
    got: list[int] = []

    @app.handler("orders")
    def handle(order: Order) -> None:
        got.append(order.id)

    for first in range(0, 9, 3):
        with app.running():
            mq.put_many("orders", orders(*range(first, first + 3)))
            until(lambda end=first + 3: len(got) == end)
    mq.put_many("orders", orders(9))
    with app.running():
        until(lambda: len(got) == 10)
    assert got == list(range(10))


def test_a_stop_finishes_and_settles_the_message_in_hand(app: App, mq: Client) -> None:
    begun, go_on = threading.Event(), threading.Event()
    got: list[int] = []

    @app.handler("orders")
    def handle(order: Order) -> None:
        begun.set()
        go_on.wait(30)
        got.append(order.id)

    with app.running():
        mq.put_many("orders", orders(0, 1, 2))
        begun.wait(30)
        threading.Timer(0.1, go_on.set).start()  # once the stop is on its way
    assert got == [0]
    assert cursor(mq, "shop.orders") == 1
    with app.running():
        until(lambda: len(got) == 3)
    assert got == [0, 1, 2]


def test_a_stop_does_not_wait_for_a_retry(app: App, mq: Client) -> None:
    failed = threading.Event()

    @app.handler("orders", backoff=600)
    def handle(order: Order) -> None:
        failed.set()
        raise RuntimeError("not now")

    with app.running():
        mq.put_many("orders", orders(0))
        failed.wait(30)
    assert cursor(mq, "shop.orders") == 0


@pytest.mark.parametrize("awaitable", [False, True])
def test_a_long_handler_loses_nothing_while_the_server_dies_and_returns(
    app: App, mq: Client, oncemq_chaos: Chaos, awaitable: bool
) -> None:
    """No lease, no heartbeat: the time between taking and settling is the handler's own."""
    got: list[str] = []
    begun, go_on = threading.Event(), threading.Event()

    def handle(order: Order, message: Message) -> None:
        begun.set()
        go_on.wait(30)
        got.append(message.id)

    async def handle_in_the_loop(order: Order, message: Message) -> None:
        handle(order, message)  # badly written: it blocks the loop, and the client with it

    app.handler("orders")(handle_in_the_loop if awaitable else handle)
    with app.running():
        mq.put_many("orders", orders(0))
        begun.wait(30)
        for n in range(3):
            oncemq_chaos.crash()
            mq.put_many("orders", orders(n + 1))
        go_on.set()
        until(lambda: len(got) == 4)
    assert got == [f"orders@{n}" for n in range(4)]
    assert cursor(mq, "shop.orders") == 4
    assert oncemq_chaos.injected["crash"] == 3


def test_an_app_waits_for_its_server(tmp_path: Path) -> None:
    address = f"tcp://127.0.0.1:{free_port()}"
    app = App(address, id="shop", state=tmp_path, timeout=0.1)
    ready, over = threading.Event(), threading.Event()

    @app.handler("orders")
    def handle(order: Order) -> None: ...

    def run() -> None:
        with app.running():
            ready.set()
            over.wait(30)

    thread = threading.Thread(target=run)
    thread.start()
    assert not ready.wait(0.5)
    with server(bind=address):
        assert ready.wait(30)
        over.set()
        thread.join()


def test_a_twin_fences_the_older_app_which_stops(app: App, mq: Client) -> None:
    @app.handler("orders")
    def handle(order: Order) -> None: ...

    @app.handler("notes")
    async def other(note: str) -> None: ...

    def with_a_twin() -> None:
        state = app.state and app.state / "shop.orders"
        with app.running(), Client(app.server, id="shop.orders", state=state) as twin:
            twin.subscribe("orders")
            mq.put_many("orders", orders(0))
            until(lambda: "shop-app" not in [each.name for each in threading.enumerate()])

    with pytest.raises(Fenced):
        with_a_twin()


def test_hooks_run_before_the_first_and_after_the_last_message(app: App, mq: Client) -> None:
    told: list[str] = []

    @app.on_startup
    async def begin() -> None:
        told.append("begin")

    @app.on_shutdown
    def end() -> None:
        told.append("end")

    @app.handler("notes")
    def handle(note: str) -> None:
        told.append(note)

    with app.running():
        mq.put("notes", b"hello")
        until(lambda: "hello" in told)
    assert told == ["begin", "hello", "end"]


def test_a_hook_that_fails_stops_the_start(app: App) -> None:
    @app.on_startup
    def begin() -> None:
        raise ValueError("no database")

    @app.handler("notes")
    def handle(note: str) -> None: ...

    with pytest.raises(ValueError, match="no database"), app.running():
        pytest.fail("it was not ready")


async def test_it_serves_in_a_loop_of_somebody_else(app: App, mq: Client) -> None:
    import asyncio

    got: list[str] = []

    @app.handler("notes", start="earliest")
    async def handle(note: str) -> None:
        got.append(note)

    mq.create_topic("notes")
    mq.subscribe("notes")
    mq.put("notes", b"hello")
    serving = asyncio.create_task(app.serve())
    deadline = time.monotonic() + 30
    while not got:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
    assert got == ["hello"]


def test_the_log_has_one_line_for_an_event_and_no_payload(
    app: App, mq: Client, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "oncemq.app")
    failed = threading.Event()

    @app.handler("notes", backoff=0.001, retries=1_000)
    def handle(note: str) -> None:
        if not failed.is_set():
            failed.set()
            raise ValueError(f"cannot handle {note}")

    with app.running():
        mq.put("notes", b"my secret")
        until(lambda: failed.is_set() and cursor(mq, "shop.notes") == 1)
    lines = [each.getMessage() for each in caplog.records]
    assert (
        "handler failed handler=shop.notes message=notes@0 attempt=1 error=ValueError: cannot "
        "handle … at=test_app.py:"
    ) in "\n".join(lines)
    assert not [each for each in lines if "secret" in each or "\n" in each]


# ------------------------------------------------------------------ what it costs


def test_a_message_in_hand_is_noted_before_the_handler_sees_it(app: App, mq: Client) -> None:
    from oncemq.apps.attempts import NAME

    seen: list[bytes] = []

    @app.handler("notes")
    def handle(note: str) -> None:
        assert app.state is not None
        seen.append((app.state / "shop.notes" / NAME).read_bytes())

    with app.running():
        mq.put("notes", b"hello")
        until(lambda: seen)
    assert b'"offset":0' in seen[0]
    assert b'"at_work":true' in seen[0]
