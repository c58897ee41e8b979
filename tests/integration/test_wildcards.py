"""Patterns with the real server and both clients: made later, from the first message, ended."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from oncemq import Client, InvalidRequest, NotSubscribed
from tests.harness.waiting import until_true
from tests.integration.test_listen import Hearing, serving


def names(messages) -> list[str]:
    return [message.id for message in messages]


def test_a_pattern_brings_topics_that_are_made_later(server: str, connect) -> None:
    ada, shop = connect(server, "ada"), connect(server)
    assert ada.subscribe("orders.*") is True
    assert ada.subscribe("orders.*") is False
    assert ada.get("orders.*") == []
    for topic in ("orders.eu", "orders.us", "refunds", "orders.eu.west"):
        shop.put_many(topic, [b"one", b"two"])
    got = names(ada.get("orders.*", limit=9, wait=9)) + names(ada.get("orders.*", limit=9))
    assert sorted(got) == ["orders.eu@0", "orders.eu@1", "orders.us@0", "orders.us@1"]
    shop.put("orders.new", b"one")
    with ada.consume("orders.>", wait=9) as messages:
        assert names(messages) == ["orders.new@0"]
    assert names(ada.get(limit=9)) == []
    shop.put("orders.eu", b"three")
    assert ada.unsubscribe("orders.*") is True
    assert ada.unsubscribe("orders.*") is False
    with pytest.raises(NotSubscribed):
        ada.get("orders.*")
    assert ada.subscribe("orders.*", start="earliest") is True  # afresh: nobody kept the old ones
    assert ada.get("orders.*") == []


def test_a_topic_also_subscribed_by_name_keeps_its_place(server: str, connect) -> None:
    ada, shop = connect(server, "ada"), connect(server)
    ada.subscribe("orders.*")
    shop.put_many("orders.eu", [b"0", b"1", b"2"])
    shop.put_many("orders.us", [b"0", b"1", b"2"])
    assert names(ada.get("orders.eu", limit=2, wait=9)) == ["orders.eu@0", "orders.eu@1"]
    assert ada.subscribe("orders.eu") is False
    assert ada.unsubscribe("orders.*")
    assert names(ada.get(limit=9)) == ["orders.eu@2"]
    assert ada.unsubscribe_all() == 1


def test_wrong_patterns_are_refused_with_a_way_out(server: str, connect) -> None:
    ada = connect(server, "ada")
    with pytest.raises(InvalidRequest, match="whole one"):
        ada.subscribe("orders.*x.*")
    with pytest.raises(InvalidRequest, match="orders"):
        ada.subscribe("order*")
    with pytest.raises(InvalidRequest, match="subscriptions"):
        ada.put("orders.*", b"x")
    with pytest.raises(InvalidRequest, match="new or earliest"):
        ada.subscribe("orders.*", start=7)


def test_unsubscribing_from_everything_ends_patterns_too(server: str, connect) -> None:
    ada, shop = connect(server, "ada"), connect(server)
    ada.subscribe("orders.>")
    ada.subscribe("refunds")
    shop.put("orders.eu", b"x")
    assert ada.unsubscribe_all() == 2
    assert ada.subscriptions() == []
    assert shop.put("orders.us", b"x").stored is False


def test_a_guest_takes_its_patterns_with_it(server: str, connect) -> None:
    shop = connect(server)
    with Client(server) as guest:
        guest.subscribe("orders.*")
    assert shop.put("orders.eu", b"x").stored is False


def test_listening_to_a_pattern_hears_new_topics(tmp_path: Path) -> None:
    with (
        serving(tmp_path / "data") as server,
        Client(server.address, id="ada", state=tmp_path / "ada") as ada,
        Client(server.address) as shop,
    ):
        ada.subscribe("orders.*")
        hearer = Hearing(ada, "orders.*").until_live()
        expected: list[str] = []
        for number in range(20):
            topic = f"orders.{number % 7}"
            expected.append(f"{topic}@{number // 7}")
            shop.put(topic, b"%d" % number)
        assert sorted(hearer.until_got(20)) == sorted(expected)
        assert ada.unsubscribe("orders.*")
        until_true(lambda: hearer.error is not None, "the listener is told")
        assert isinstance(hearer.error, NotSubscribed)


def test_it_goes_on_where_it_was_after_both_started_again(tmp_path: Path) -> None:
    with (
        serving(tmp_path / "data") as server,
        Client(server.address) as shop,
        Client(server.address, id="ada", state=tmp_path / "ada") as ada,
    ):
        ada.subscribe("orders.*")
        shop.put_many("orders.eu", [b"0", b"1"])
        assert names(ada.get("orders.*", wait=9)) == ["orders.eu@0"]
    with serving(tmp_path / "data") as server, Client(server.address) as shop:
        shop.put("orders.us", b"0")
        with Client(server.address, id="ada", state=tmp_path / "ada") as ada:
            assert names(ada.get("orders.*", limit=9)) == ["orders.eu@1", "orders.us@0"]


@pytest.mark.parametrize("topic", ["orders.*", None])
def test_a_pattern_is_consumed_into_a_database(
    server: str, tmp_path: Path, topic: str | None
) -> None:
    with (
        closing(sqlite3.connect(":memory:")) as db,
        Client(server, id="ada", state=tmp_path / "ada") as ada,
        Client(server) as shop,
    ):
        ada.subscribe("orders.*")
        db.execute("CREATE TABLE got (id TEXT)")
        for name in ("orders.eu", "orders.us", "orders.eu", "orders.new"):
            shop.put(name, b"x")
            with ada.consume(topic, into=db, wait=9) as messages:
                db.executemany("INSERT INTO got VALUES (?)", [(m.id,) for m in messages])
        got = [name for (name,) in db.execute("SELECT id FROM got").fetchall()]
    assert got == ["orders.eu@0", "orders.us@0", "orders.eu@1", "orders.new@0"]
