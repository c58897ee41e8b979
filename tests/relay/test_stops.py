"""What a relay cannot publish: it stops there, says so, and goes on when it is told to."""

import logging
from contextlib import closing
from pathlib import Path

import pytest

from oncemq import Client, Relay
from oncemq.protocol.limits import ServerLimits
from oncemq.protocol.names import ProducerId
from oncemq.protocol.records import Retention
from oncemq.relay.database import RelayDatabase
from oncemq.relay.overview import TopicOverview, overview, retry
from oncemq.relay.tables import RelayTables
from oncemq.testing import server
from tests.e2e.processes import until
from tests.relay.conftest import Homes
from tests.relay.homes import Home
from tests.relay.test_relay import got

FOREVER = Retention(forever=True)


def seen(home: Home) -> dict[str, TopicOverview]:
    with closing(RelayDatabase(home.connect)) as desk:
        return {each.topic: each for each in desk.run(overview(RelayTables(desk.kind)))}


def go_on(home: Home, *topics: str, anew: bool = False) -> list[str]:
    fresh = (lambda: ProducerId(b"0123456789abcdef")) if anew else None
    with closing(RelayDatabase(home.connect)) as desk:
        return desk.run(retry(RelayTables(desk.kind), topics, fresh))


def until_stopped(home: Home, topic: str = "orders") -> str:
    until(lambda: topic in seen(home) and seen(home)[topic].stopped, what="it stops")
    return seen(home)[topic].reason


def payloads(client: Client, topic: str = "orders") -> list[bytes]:
    return [message.payload for message in client.read(topic, 0, limit=1000)]


def test_a_message_that_is_too_large_stops_its_topic_and_no_other(
    home: Home, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    small = ServerLimits(message_bytes_max=100)
    with server(tmp_path / "data", rules=small) as address, Client(address) as client:
        client.create_topic("orders", FOREVER)
        client.create_topic("others", FOREVER)
        home.write("orders", [b"small", b"x" * 101, b"behind it"])
        with Relay(home.connect, server=address):
            assert "101 bytes is over the server's limit of 100" in until_stopped(home)
            until(lambda: "topic stopped topic=orders" in caplog.text, what="it says so")
            home.write("others", [b"go on"])
            until(lambda: payloads(client, "others") == [b"go on"], what="others go on")
            assert payloads(client) == [b"small"]
        with Relay(home.connect, server=address, set_aside=True):
            assert go_on(home) == ["orders"]
            until(lambda: payloads(client) == [b"small", b"behind it"], what="it goes on")
            state = seen(home)["orders"]
            assert (state.set_aside, state.stopped) == (1, False)
            assert "101 bytes" in state.reason
            # Else the next relay takes it for under way, to a topic that is not there any more.
            until(lambda: seen(home)["orders"].waiting == 0, what="it notes the answer")
    with (
        server(tmp_path / "data") as address,
        Client(address) as client,
        Relay(home.connect, server=address),
    ):
        assert go_on(home, "orders") == ["orders"]
        took = [b"small", b"behind it", b"x" * 101]
        until(lambda: payloads(client) == took, what="a larger server takes it")
    assert go_on(home) == []


def test_a_name_that_no_server_takes_stops_its_topic(home: Home, oncemq_server: str) -> None:
    with closing(home.writer()) as connection:  # not through `put`, which would have refused it
        connection.execute("INSERT INTO oncemq_outbox (topic, payload) VALUES ('_mine', '')")
        connection.execute("INSERT INTO oncemq_outbox (topic, payload) VALUES ('_mine', '')")
    with Relay(home.connect, server=oncemq_server):
        assert "name_invalid" in until_stopped(home, "_mine")
    assert go_on(home) == ["_mine"]
    with Relay(home.connect, server=oncemq_server, set_aside=True):
        until(lambda: seen(home)["_mine"].set_aside == 2, what="both are set aside")


def test_headers_that_are_none_stop_their_topic(home: Home, oncemq_server: str) -> None:
    with closing(home.writer()) as connection:
        for headers in ("'[1]'", "'{'"):
            connection.execute(
                "INSERT INTO oncemq_outbox (topic, payload, headers) "
                f"VALUES ('orders', '', {headers})"
            )
    with Relay(home.connect, server=oncemq_server):
        assert "no JSON object" in until_stopped(home)
    assert go_on(home) == ["orders"]
    with Relay(home.connect, server=oncemq_server, set_aside=True):
        until(lambda: seen(home)["orders"].set_aside == 2, what="both are set aside")


def test_a_topic_made_again_gets_what_is_committed_from_then_on(
    home: Home, oncemq_server: str
) -> None:
    with Client(oncemq_server) as client, Relay(home.connect, server=oncemq_server):
        client.create_topic("orders", FOREVER)
        home.write("orders", [b"1", b"2"])
        until(lambda: home.left == 0, what="they are published")
        client.delete_topic("orders")
        client.create_topic("orders", FOREVER)
        home.write("orders", [b"3"])
        until(lambda: payloads(client) == [b"3"], what="the new topic has it")


def test_a_database_restored_from_a_backup_stops_and_says_so(
    make_home: Homes, oncemq_server: str, reader: Client
) -> None:
    """The relay must not take the numbers of new rows for those that were published since."""
    home = make_home("sqlite3")
    backup = home.writer()
    with closing(backup), closing(type(backup)(":memory:")) as copy:
        with Relay(home.connect, server=oncemq_server):
            home.write("orders", [b"1"])
            assert got(reader, 1) == [b"1"]
            until(lambda: home.left == 0, what="it is freed")
        backup.backup(copy)
        with Relay(home.connect, server=oncemq_server):
            home.write("orders", [b"2", b"3"])
            assert got(reader, 2) == [b"2", b"3"]
            until(lambda: home.left == 0, what="they are freed")
        copy.backup(backup)
    home.write("orders", [b"4", b"5", b"6"])
    with Relay(home.connect, server=oncemq_server):
        assert "it is an older copy" in until_stopped(home)
        assert go_on(home, "orders", anew=True) == ["orders"]
        assert got(reader, 3) == [b"4", b"5", b"6"]


def test_a_server_restored_from_a_backup_stops_and_says_so(home: Home, tmp_path: Path) -> None:
    import shutil

    data, backup = tmp_path / "data", tmp_path / "backup"
    with server(data) as address, Client(address) as client:
        client.create_topic("orders", FOREVER)
        with Relay(home.connect, server=address):
            home.write("orders", [b"1"])
            until(lambda: home.left == 0, what="it is published")
    shutil.copytree(data, backup)
    with server(data) as address, Relay(home.connect, server=address):
        home.write("orders", [b"2"])
        until(lambda: home.left == 0, what="it is published")
    with server(backup) as address, Client(address) as client:
        home.write("orders", [b"3"])
        with Relay(home.connect, server=address):
            assert "messages are missing there" in until_stopped(home)
            assert go_on(home, "orders", anew=True) == ["orders"]
            until(lambda: payloads(client) == [b"1", b"3"], what="it goes on")


def test_rows_that_nobody_would_get_wait_until_somebody_does(
    home: Home, oncemq_server: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "oncemq.relay")
    home.write("orders", [b"1", b"2"])
    home.write("refunds", [b"r"])
    with Client(oncemq_server) as client, Relay(home.connect, server=oncemq_server):
        client.create_topic("refunds", FOREVER)
        until(lambda: "topic waits topic=orders" in caplog.text, what="it is said")
        until(lambda: home.left == 2, what="another topic goes on")
        with closing(RelayDatabase(home.connect)) as desk:
            (orders, refunds) = desk.run(overview(RelayTables(desk.kind)))
        assert (orders.unwanted, orders.stopped, orders.waiting) == (True, False, 2)
        assert "nobody would get the messages" in orders.reason
        assert (refunds.unwanted, refunds.reason) == (False, "")
        client.subscribe("orders")
        until(lambda: home.left == 0, what="they are published")
        got = [each.payload for each in client.get("orders", limit=9, wait=5)]
        assert got == [b"1", b"2"]
    assert caplog.text.count("topic waits topic=orders") == 1
    assert "topic goes on topic=orders" in caplog.text


def test_rows_that_nobody_would_get_are_discarded_on_purpose(
    home: Home, oncemq_server: str, caplog: pytest.LogCaptureFixture
) -> None:
    home.write("orders", [b"1"])
    with Relay(home.connect, server=oncemq_server, required=False):
        until(lambda: home.left == 0, what="it is discarded")
    assert "put discarded topic=orders" in caplog.text


def test_rows_that_someone_removed_while_they_had_numbers_stop_the_topic(
    home: Home, oncemq_server: str
) -> None:
    with Client(oncemq_server) as client:
        client.create_topic("orders", FOREVER)
    home.write("orders", [b"1", b"2"])
    with closing(RelayDatabase(home.connect)) as desk:
        desk.run(RelayTables(desk.kind).standing("orders", ProducerId(b"0123456789abcdef")))
    home.look("UPDATE oncemq_outbox_topics SET planned = '1-2'")
    home.look("DELETE FROM oncemq_outbox WHERE id = 1")
    with Relay(home.connect, server=oncemq_server):
        assert "by another hand" in until_stopped(home)
        assert go_on(home, "orders", anew=True) == ["orders"]
        until(lambda: home.left == 0, what="it goes on with the other")
