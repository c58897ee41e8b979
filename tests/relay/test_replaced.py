"""A SQLite file that is replaced under relays: they go on with the file that has the name now."""

import logging
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import oncemq
from oncemq import Client, Relay
from oncemq.relay.database import RelayDatabase, Replaced
from tests.e2e.processes import until
from tests.relay.conftest import Homes
from tests.relay.homes import Home
from tests.relay.test_relay import got


def put_copy_in_place(home: Home) -> None:
    """As a restore does: a whole copy gets the name, and the old file's journal is removed."""
    path = Path(home.url)
    copy = path.with_name("copy.db")
    with closing(home.writer()) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    copy.replace(path)


@pytest.mark.parametrize("kind", ["sqlite3", "sqlalchemy-sqlite"])
def test_relays_go_on_with_the_file_that_has_the_name_now(
    kind: str,
    make_home: Homes,
    oncemq_server: str,
    reader: Client,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "oncemq.relay")
    home = make_home(kind)
    with Relay(home.connect, server=oncemq_server) as first:
        home.write("orders", [b"1"])
        assert got(reader, 1) == [b"1"]
        until(lambda: home.left == 0, what="the row is freed")
        with Relay(home.connect, server=oncemq_server):
            until(lambda: "another relay is at work" in caplog.text, what="the second waits")
            put_copy_in_place(home)
            with closing(home.writer()) as connection:
                oncemq.outbox(connection).put("orders", b"2")
                assert got(reader, 1) == [b"2"]
                until(lambda: home.left == 0, what="the row is freed")
                until(lambda: caplog.text.count("was replaced") == 2, what="both say so")
            first.stop()
            home.write("orders", [b"3"])
            assert got(reader, 1) == [b"3"]
    assert home.look("PRAGMA integrity_check") == [("ok",)]


def test_a_file_whose_name_is_gone_is_gone_on_with_and_no_other_is_made(make_home: Homes) -> None:
    home = make_home("sqlite3")
    path = Path(home.url)
    desk = RelayDatabase(home.connect)
    try:
        desk.must_have_its_name()
        path.rename(path.with_name("moved.db"))
        desk.must_have_its_name()
        assert not path.exists()
        path.touch()
        with pytest.raises(Replaced, match=r"user\.db"):
            desk.must_have_its_name()
    finally:
        desk.close()
