"""A real database and a real server that were restored together, and served in turn with others."""

import shutil
from contextlib import closing
from pathlib import Path

import pytest

import oncemq
from oncemq import Client, Relay, testing
from oncemq.databases.outbox_schema import has_notes, make_tables
from oncemq.protocol.records import Retention
from oncemq.relay.database import RelayDatabase
from oncemq.storage.disk import LocalDisk
from oncemq.storage.segments.layout import raise_generation
from tests.e2e.processes import until
from tests.relay.homes import Home
from tests.relay.test_stops import go_on, payloads, seen, until_stopped


class Place:
    """A server's data directory, which copies are put back to."""

    def __init__(self, home: Home, directory: Path) -> None:
        self._home = home
        self._directory = directory

    def keep(self, name: str) -> None:
        shutil.copytree(self._directory / "data", self._directory / name)

    def put_back(self, name: str, *, restored: bool) -> None:
        """By hand, or as `once restore` does: in a generation of its own."""
        data = self._directory / "data"
        shutil.rmtree(data)
        shutil.copytree(self._directory / name, data)
        if restored:
            raise_generation(LocalDisk(), str(data), lambda count: bytes([7] * count))

    def publish(self, *texts: bytes) -> list[bytes]:
        """What the topic has once the relay has sent these, each in a batch of its own."""
        home = self._home
        with testing.server(self._directory / "data") as address, Client(address) as mq:
            mq.create_topic("orders", Retention(forever=True))
            with Relay(home.connect, server=address):
                for text in texts:
                    home.write("orders", [text])
                    until(lambda: home.left == 0 or seen(home)["orders"].stopped, what="it is done")
            return payloads(mq)


@pytest.fixture
def place(home: Home, tmp_path: Path) -> Place:
    return Place(home, tmp_path)


def standings(home: Home) -> list[tuple[object, ...]]:
    fields = "topic, producer, topic_id, acknowledged, planned, planned_place, last_place, stopped"
    return home.look(f"SELECT {fields}, version, newest FROM oncemq_outbox_topics")


def put_back_standings(home: Home, rows: list[tuple[object, ...]]) -> None:
    """The outbox as it was when nothing waited in it."""
    mark = "?" if "sqlite" in home.kind else "%s"
    with closing(home.writer()) as connection:
        connection.execute("DELETE FROM oncemq_outbox")
        connection.execute("DELETE FROM oncemq_outbox_topics")
        for row in rows:
            marks = ", ".join([mark] * len(row))
            connection.execute(f"INSERT INTO oncemq_outbox_topics VALUES ({marks})", row)


@pytest.mark.parametrize("restored", [True, False])
def test_other_rows_under_the_same_numbers_stop_the_topic(
    home: Home, place: Place, restored: bool
) -> None:
    """Server and database go back together; then the server of before is served again."""
    assert place.publish(b"1", b"2") == [b"1", b"2"]
    place.keep("backup")
    kept = standings(home)
    assert place.publish(b"3", b"4") == [b"1", b"2", b"3", b"4"]
    place.keep("first")
    place.put_back("backup", restored=restored)
    put_back_standings(home, kept)
    assert place.publish(b"x", b"y") == [b"1", b"2", b"x", b"y"]
    place.put_back("first", restored=False)
    assert place.publish(b"z") == [b"1", b"2", b"3", b"4"]
    reason = until_stopped(home)
    assert "the server has a number 4 of this outbox" in reason
    assert "once relay retry --anew" in reason
    assert go_on(home, "orders", anew=True) == ["orders"]
    assert place.publish(b"on") == [b"1", b"2", b"3", b"4", b"z", b"on"]


def test_a_table_of_an_older_version_gets_its_column(home: Home, place: Place) -> None:
    home.look("ALTER TABLE oncemq_outbox_topics DROP COLUMN newest")
    assert place.publish(b"1", b"2") == [b"1", b"2"]
    ((number, newest),) = home.look("SELECT acknowledged, newest FROM oncemq_outbox_topics")
    assert number == 2
    assert newest.startswith("2@")


def test_a_relay_goes_on_without_the_column(
    home: Home, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the table is another's, or a lock on it is not to be had."""
    refusing = dict.fromkeys(KINDS, ("ALTER TABLE there_is_none ADD COLUMN newest text",))
    monkeypatch.setattr("oncemq.databases.newest._ADD", refusing)
    home.look("ALTER TABLE oncemq_outbox_topics DROP COLUMN newest")
    assert place.publish(b"1", b"2") == [b"1", b"2"]
    with closing(RelayDatabase(home.connect)) as desk:
        desk.run(make_tables(desk.kind))
        assert not desk.run(has_notes(desk.kind))
    assert place.publish(b"3") == [b"1", b"2", b"3"]
    home.look("UPDATE oncemq_outbox_topics SET stopped = 'a person looks'")
    assert go_on(home, "orders", anew=True) == ["orders"]
    assert place.publish(b"4") == [b"1", b"2", b"3", b"4"]


KINDS = ("sqlite", "postgresql")


def test_looking_for_the_column_leaves_no_transaction_open(home: Home) -> None:
    """The connection is the user's, and may begin transactions by itself."""
    with closing(home.connect()) as connection:
        oncemq.outbox(connection).create()
        is_open = getattr(connection, "in_transaction", None)
        if is_open is None:
            is_open = connection.info.transaction_status != 0  # PQTRANS_IDLE
        assert not is_open
