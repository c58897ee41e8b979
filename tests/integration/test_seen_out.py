"""Puts that nobody waits for leave by themselves, whatever their client does meanwhile."""

import asyncio
import time
from pathlib import Path

import pytest

from oncemq import AsyncClient, Client
from oncemq.client.aio import base as awaited_base
from oncemq.client.blocking import base as blocking_base
from oncemq.client.blocking import runner
from tests.integration.lone import alone

NOBODY = "tcp://127.0.0.1:1"


def test_what_an_earlier_start_left_unsent_leaves_with_the_next(
    server: str, tmp_path: Path
) -> None:
    with Client(server) as reader:
        reader.subscribe("orders")
        with Client(NOBODY, id="shop", state=tmp_path, timeout=0.1) as shop:
            shop.put("orders", b"left", wait=False)
        with Client(server, id="shop", state=tmp_path):
            assert [each.payload for each in reader.get("orders", wait=20)] == [b"left"]


def test_a_sender_that_rests_is_woken_by_the_next_put(
    server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "REST_SECONDS", 600.0)
    with Client(server) as reader, Client(server) as shop:
        reader.subscribe("orders")
        for payload in (b"1", b"2"):
            shop.put("orders", payload, wait=False)
            assert [each.payload for each in reader.get("orders", wait=20)] == [payload]
            give_up = time.monotonic() + 20
            while not shop._turns._resting and time.monotonic() < give_up:
                time.sleep(0.01)
            assert shop._turns._resting


def test_a_sender_that_rested_for_a_while_ends_and_the_next_put_starts_another(
    server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would keep a client alive that nobody has any more."""
    monkeypatch.setattr(runner, "REST_SECONDS", 0.01)
    with Client(server) as reader, Client(server) as shop:
        reader.subscribe("orders")
        for payload in (b"1", b"2"):
            shop.put("orders", payload, wait=False)
            assert [each.payload for each in reader.get("orders", wait=20)] == [payload]
            give_up = time.monotonic() + 20
            while shop._turns._sender is not None and time.monotonic() < give_up:
                time.sleep(0.01)
            assert shop._turns._sender is None


def test_a_close_does_not_wait_long_for_a_server_that_is_away_if_all_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for base in (awaited_base, blocking_base):
        monkeypatch.setattr(base, "AWAY_SECONDS", 0.01)

    async def awaited() -> None:
        shop = AsyncClient(NOBODY, id="shop", state=tmp_path, timeout=600)
        await shop.put("orders", b"2", wait=False)
        await shop.close()

    shop = Client(NOBODY, id="shop", state=tmp_path, timeout=600)
    shop.put("orders", b"1", wait=False)
    began = time.monotonic()
    shop.close()
    asyncio.run(awaited())
    assert time.monotonic() - began < 60


AT_EXIT = """
import atexit, sys
from oncemq import Client

client = Client(sys.argv[1], id="shop", state=sys.argv[2], timeout=20)
client.status()  # it is connected

@atexit.register
def last_words():
    puts = [client.put("orders", b"1", wait=False), client.put_many("orders", [b"2"], wait=False)]
    puts.append(client.put("orders", b"3", key=b"k", wait=False))
    if sys.argv[3] == "flushed":
        client.flush()
        print([put.done() for put in puts])
"""


@pytest.mark.parametrize(
    ("end", "said"), [("flushed", ["[True, True, True]"]), ("left to the next start", [])]
)
def test_a_put_at_the_end_of_the_process_needs_no_thread(
    server: str, tmp_path: Path, end: str, said: list[str]
) -> None:
    """Since Python 3.12 no thread can be started there."""
    with Client(server) as reader:
        reader.subscribe("orders")
        assert alone(AT_EXIT, server, str(tmp_path / "shop"), end) == said
        with Client(server, id="shop", state=tmp_path / "shop") as shop:
            shop.flush()
        got = [each.payload for each in reader.get("orders", limit=9, wait=20)]
        assert got == [b"1", b"2", b"3"]


def test_a_put_is_sent_where_no_thread_can_be_started(
    server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process may have as many as the system lets it."""

    def refused(_: object) -> None:
        raise RuntimeError("can't start new thread")

    with Client(server) as reader, Client(server, timeout=20) as shop:
        reader.subscribe("orders")
        shop.status()
        monkeypatch.setattr("threading.Thread.start", refused)
        pending = shop.put("orders", b"1", wait=False)
        assert [each.payload for each in reader.get("orders", wait=20)] == [b"1"]
        assert pending.result().offset == 0
