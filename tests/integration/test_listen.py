"""Listening to the real server: live, in order, once; with and without its feed; both clients."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from oncemq import AsyncClient, Client, NotSubscribed
from oncemq.assembly import Server
from oncemq.protocol.limits import ServerLimits
from oncemq.storage.log.log import LogOptions
from tests.harness.waiting import PATIENCE, until_true


@contextmanager
def serving(
    data: Path, *, bind: str = "tcp://127.0.0.1:*", feed: str = "auto", retry_ms: int = 3_000
) -> Iterator[Server]:
    """The server itself, in this process."""
    server = Server(
        data, bind, rules=ServerLimits(retry_ms=retry_ms), options=LogOptions(), feed=feed
    )
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.stop()
        thread.join()


class Hearing:
    """A client that listens on a thread, and everything it got."""

    def __init__(self, client: Client, *topics: str) -> None:
        self.client = client
        self.got: list[str] = []
        self.error: BaseException | None = None
        self.stop = False
        self.slow = 0.0
        self._topics = topics
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            for message in self.client.listen(*self._topics, wait=0.2):
                self.got.append(message.id)
                time.sleep(self.slow)
                if self.stop:
                    break
        except BaseException as error:
            self.error = error

    def until_live(self) -> "Hearing":
        until_true(lambda: self.client._engine.listening.is_live, "the feed is there")
        return self

    def until_got(self, count: int) -> list[str]:
        until_true(lambda: len(self.got) >= count or self.error, f"{count} messages")
        assert self.error is None
        return self.got

    def end(self) -> None:
        self.stop = True


@pytest.fixture
def mq(tmp_path: Path) -> Iterator[Callable[..., Client]]:
    opened: list[Client] = []

    def open_client(server: str, name: str | None = None) -> Client:
        state = tmp_path / f"state-{name}" if name else None
        opened.append(Client(server, id=name, state=state, timeout=20))
        return opened[-1]

    yield open_client
    for client in opened:
        client.close()


def ids(topic: str, *offsets: int) -> list[str]:
    return [f"{topic}@{offset}" for offset in offsets]


def test_messages_are_pushed_in_order_to_everyone_who_listens(tmp_path: Path, mq) -> None:
    with serving(tmp_path / "data") as server:
        hearers = []
        for name in ("ada", "bob", None):
            client = mq(server.address, name)
            client.subscribe("orders")
            hearers.append(Hearing(client, "orders").until_live())
        shop = mq(server.address)
        shop.put("orders", b"first")  # answers a get that may still wait from before the feed
        for hearer in hearers:
            hearer.until_got(1)
        before = shop.status()["sent"]
        for number in range(99):
            shop.put("orders", b"%d" % number, wait=False)
        shop.put_many("orders", [b"x"] * 400)
        for hearer in hearers:
            assert hearer.until_got(500) == ids("orders", *range(500))
        assert shop.status()["sent"] == before, "something was pulled"
        shop.close()
        for hearer in hearers:
            hearer.client.close()


def test_batches_over_a_size_are_announced_and_pulled(tmp_path: Path, mq) -> None:
    with serving(tmp_path / "data") as server:
        ada, shop = mq(server.address, "ada"), mq(server.address)
        ada.subscribe("orders")
        hearer = Hearing(ada, "orders").until_live()
        sizes = [10, 300_000, 10, 10, 3_000_000, 10]
        for size in sizes:
            shop.put("orders", b"x" * size)
        assert hearer.until_got(6) == ids("orders", *range(6))
        ada.close()
        shop.close()


@pytest.mark.parametrize("feed", ["none", "tcp://127.0.0.1:*"])
def test_it_works_the_same_without_a_feed(tmp_path: Path, mq, feed: str) -> None:
    with serving(tmp_path / "data", feed=feed) as server:
        ada, shop = mq(server.address, "ada"), mq(server.address)
        ada.subscribe("orders")
        ada.subscribe("refunds")
        hearer = Hearing(ada)
        for number in range(10):
            shop.put("orders", b"%d" % number)
            shop.put("refunds", b"%d" % number)
        got = hearer.until_got(20)
        for topic in ("orders", "refunds"):
            mine = [each for each in got if each.startswith(topic)]
            assert mine == ids(topic, *range(10))
        ada.close()
        shop.close()


def test_a_server_that_restarts_elsewhere_with_its_feed_is_followed(tmp_path: Path, mq) -> None:
    with serving(tmp_path / "data") as server:
        address = server.address
        ada, shop = mq(address, "ada"), mq(address, "shop")
        ada.subscribe("orders")
        hearer = Hearing(ada, "orders").until_live()
        shop.put("orders", b"0")
        hearer.until_got(1)
    shop.put("orders", b"1", wait=False)
    with serving(tmp_path / "data", bind=address):
        shop.flush()
        assert hearer.until_got(2) == ids("orders", 0, 1)
        hearer.until_live()
        shop.put("orders", b"2")
        assert hearer.until_got(3) == ids("orders", 0, 1, 2)
        ada.close()
        shop.close()


@pytest.mark.slow
def test_a_slow_listener_gets_everything_and_slows_nobody(tmp_path: Path, mq) -> None:
    with serving(tmp_path / "data") as server:
        slow, quick, shop = (mq(server.address) for _ in range(3))
        for client in (slow, quick):
            client.subscribe("orders")
        slowly, quickly = Hearing(slow, "orders"), Hearing(quick, "orders")
        for hearer in (slowly, quickly):
            hearer.until_live()
        slowly.slow = 0.2
        for _ in range(100):
            shop.put_many("orders", [b"x" * 1_000] * 100)
        assert quickly.until_got(10_000) == ids("orders", *range(10_000))
        assert len(slowly.got) < 5_000
        slowly.slow = 0.0
        assert slowly.until_got(10_000) == ids("orders", *range(10_000))
        for client in (slow, quick, shop):
            client.close()


def test_listening_to_what_is_not_subscribed_is_refused(tmp_path: Path, mq) -> None:
    with serving(tmp_path / "data") as server:
        ada = mq(server.address, "ada")
        with pytest.raises(NotSubscribed, match="orders"):
            next(iter(ada.listen("orders")))
        ada.subscribe("orders")
        with pytest.raises(NotSubscribed, match="refunds"):
            next(iter(ada.listen("orders", "refunds")))
        ada.close()


def test_an_unsubscribe_ends_the_listening(tmp_path: Path, mq) -> None:
    with serving(tmp_path / "data") as server:
        ada, shop = mq(server.address, "ada"), mq(server.address)
        ada.subscribe("orders")
        hearer = Hearing(ada, "orders").until_live()
        shop.put("orders", b"0")
        hearer.until_got(1)
        assert ada.unsubscribe("orders")
        shop.put("orders", b"nobody")
        until_true(lambda: hearer.error is not None, "the listener is told")
        assert isinstance(hearer.error, NotSubscribed)
        assert ada.subscribe("orders")
        shop.put("orders", b"1")
        assert [message.payload for message in ada.get("orders", limit=9, wait=9)] == [b"1"]
        shop.close()
        ada.close()


def test_a_listener_that_ends_says_goodbye(tmp_path: Path, mq) -> None:
    with serving(tmp_path / "data") as server:
        ada, shop = mq(server.address, "ada"), mq(server.address)
        ada.subscribe("orders")
        hearer = Hearing(ada, "orders").until_live()
        until_true(lambda: shop.status()["listening"] == 1, "it listens")
        hearer.end()
        shop.put("orders", b"0")
        until_true(lambda: shop.status()["listening"] == 0, "it has left")
        assert hearer.got == ["orders@0"]
        # It broke off before it asked for the next: the message is not settled, and comes again.
        assert [message.id for message in ada.get("orders", wait=9)] == ["orders@0"]
        shop.close()
        ada.close()


def test_two_listens_of_one_client_by_turns(tmp_path: Path, mq) -> None:
    with serving(tmp_path / "data") as server:
        ada, shop = mq(server.address, "ada"), mq(server.address)
        for topic in ("orders", "refunds"):
            ada.subscribe(topic)
            shop.put_many(topic, [b"0", b"1", b"2"])
        orders, refunds = ada.listen("orders"), ada.listen("refunds")
        got = [next(each).id for _ in range(3) for each in (orders, refunds)]
        assert got == [f"{topic}@{n}" for n in range(3) for topic in ("orders", "refunds")]
        orders.close()
        refunds.close()
        ada.close()
        shop.close()


async def test_the_asyncio_client_listens_too(tmp_path: Path) -> None:
    with serving(tmp_path / "data") as server:
        async with (
            AsyncClient(server.address, id="ada", state=tmp_path / "ada") as ada,
            AsyncClient(server.address) as shop,
        ):
            await ada.subscribe("orders")
            got: list[str] = []

            async def listen() -> None:
                async for message in ada.listen("orders"):
                    got.append(message.id)
                    if len(got) == 200:
                        break

            listening = asyncio.create_task(listen())
            async with asyncio.timeout(PATIENCE):
                for number in range(200):
                    await shop.put("orders", b"%d" % number)
                await listening
            assert got == ids("orders", *range(200))
            assert int((await shop.status())["sent"]) < 200, "all of it was pulled"


def test_listeners_of_one_client_in_two_threads_get_each_message_once(tmp_path: Path, mq) -> None:
    with serving(tmp_path / "data") as server:
        ada, shop = mq(server.address, "ada"), mq(server.address)
        ada.subscribe("orders")
        both = [Hearing(ada, "orders"), Hearing(ada, "orders")]
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda n: shop.put("orders", b"%d" % n), range(50)))
        until_true(lambda: sum(len(each.got) for each in both) >= 50, "every message")
        got = [each for hearer in both for each in hearer.got]
        assert sorted(got) == sorted(ids("orders", *range(50)))
        ada.close()
        shop.close()
