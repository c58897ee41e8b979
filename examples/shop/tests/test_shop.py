"""The shop: its functions alone, on a real server, and while that server is hurt."""

import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from shop import database
from shop.handlers import NotSold, Order, take
from shop.worker import make_app

from oncemq import App, Client
from oncemq.testing import Chaos


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "shop.db"
    database.create(path)
    return path


@pytest.fixture
def app(oncemq_server: str, path: Path) -> App:
    return make_app(oncemq_server, path)


def ask(path: Path, question: str) -> list[tuple]:
    connection = database.connect(path)
    try:
        return connection.execute(question).fetchall()
    finally:
        connection.close()


def until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not done():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


def order(number: int, product: str = "espresso") -> bytes:
    return msgspec.json.encode(Order(number, "ada@example.org", product, cups=2))


def mails(path: Path) -> list[str]:
    return [text for (text,) in ask(path, "SELECT text FROM mails ORDER BY rowid")]


def test_a_handler_is_a_function(path: Path) -> None:
    connection = database.connect(path)
    with connection:
        take(Order(1, "ada@example.org", "tea", cups=3), connection)
    with pytest.raises(NotSold):
        take(Order(2, "ada@example.org", "gold", cups=1), connection)
    connection.close()
    assert ask(path, "SELECT cups FROM stock WHERE product = 'tea'") == [(997,)]


def test_an_order_becomes_a_row_and_a_mail(
    app: App, path: Path, oncemq_client: Callable[..., Client]
) -> None:
    with app.running():
        oncemq_client().put("orders", order(1))
        until(lambda: bool(mails(path)))
    assert ask(path, "SELECT number, product, cups FROM orders") == [(1, "espresso", 2)]
    assert mails(path) == ["Order 1: 4.40 EUR"]


def test_what_is_not_sold_is_a_dead_letter(
    app: App, path: Path, oncemq_client: Callable[..., Client]
) -> None:
    mq = oncemq_client()
    with app.running():
        mq.put("orders", order(1, "gold"))
        mq.put("orders", order(2))
        until(lambda: bool(mails(path)))
    assert ask(path, "SELECT number FROM orders") == [(2,)]
    (letter,) = mq.read("orders.dead", 0)
    assert letter.payload == order(1, "gold")
    assert letter.headers["oncemq-dead-reason"] == "NotSold: gold"


def test_every_order_takes_effect_once_whatever_breaks(
    app: App,
    path: Path,
    oncemq_client: Callable[..., Client],
    oncemq_chaos: Chaos,
    oncemq_audit: Callable[..., None],
) -> None:
    till = oncemq_client(id="till")
    with app.running():
        oncemq_chaos.duplicate_requests(0.2)
        oncemq_chaos.delay(0.01, 0.2)
        oncemq_chaos.crash_after_append(0.05, times=2)
        oncemq_chaos.crash_before_sync(0.05, times=2)
        oncemq_chaos.crash_after_sync(0.05, times=2)
        receipts = [till.put("orders", order(number)) for number in range(60)]
        oncemq_chaos.calm()
        until(lambda: len(mails(path)) >= 60)
    assert ask(path, "SELECT number FROM orders") == [(number,) for number in range(60)]
    assert mails(path) == [f"Order {number}: 4.40 EUR" for number in range(60)]
    assert ask(path, "SELECT cups FROM stock WHERE product = 'espresso'") == [(1000 - 2 * 60,)]
    sent = [key for (key,) in ask(path, "SELECT key FROM mails ORDER BY rowid")]
    oncemq_audit("orders", receipts=receipts)
    oncemq_audit("bills", effects={"mail": sent})
    assert sum(oncemq_chaos.injected.values()) > 0, oncemq_chaos
