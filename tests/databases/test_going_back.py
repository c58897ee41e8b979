"""A server that went back in time, and a database that has the effects of what it lost."""

import re
import shutil
import sqlite3
from pathlib import Path

import pytest

from oncemq import Client, HistoryLost, testing
from oncemq.core.generations import continued
from oncemq.core.names import Offset
from oncemq.databases.inbox import Standing, generation_of
from oncemq.storage.disk import LocalDisk
from oncemq.storage.layout import raise_generation


class Shop:
    """Puts to a topic, and a client that consumes it into SQLite."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.database = sqlite3.connect(home / "user.db")
        self.database.execute("CREATE TABLE effects (number)")

    def client(self, address: str, state: str = "state") -> Client:
        return Client(address, id="shop", state=self.home / state, timeout=20)

    def put(self, address: str, *numbers: int) -> None:
        with Client(address) as mq:
            mq.put_many("t", [b"%d" % number for number in numbers])

    def consume(self, client: Client) -> list[int]:
        with client.consume("t", wait=0, into=self.database) as messages:
            for message in messages:
                self.database.execute("INSERT INTO effects VALUES (?)", (int(message.payload),))
        return [int(message.payload) for message in messages]

    def go_back(self, copy: Path, name: int = 0x0C0B0A09) -> None:
        shutil.rmtree(self.home / "data")
        shutil.copytree(copy, self.home / "data")
        raise_generation(
            LocalDisk(), str(self.home / "data"), lambda count: name.to_bytes(count, "little")
        )


def test_a_database_that_knows_more_than_the_server_is_told_with_the_way_out(
    tmp_path: Path,
) -> None:
    shop = Shop(tmp_path)
    with testing.server(tmp_path / "data") as address, shop.client(address) as client:
        client.subscribe("t")
        shop.put(address, 0, 1)
        assert shop.consume(client) == [0, 1]
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    with testing.server(tmp_path / "data") as address:
        shop.put(address, 2, 3, 4)
        with shop.client(address, "other") as client:  # whose own state goes no further
            assert shop.consume(client) == [2, 3, 4]
    shop.go_back(tmp_path / "copy")
    with testing.server(tmp_path / "data") as address:
        shop.put(address, *range(10, 20))
        with shop.client(address, "fresh") as client:
            with pytest.raises(HistoryLost, match=r"only up to @2") as lost:
                shop.consume(client)
            (way_out,) = re.findall(r"UPDATE .*;", lost.value.detail)
            shop.database.execute(way_out)
            shop.database.commit()
            assert shop.consume(client) == list(range(10, 20))
        with shop.client(address, "later") as client:
            assert shop.consume(client) == []


def test_a_database_that_knows_no_more_goes_on_and_notes_the_generation(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    with testing.server(tmp_path / "data") as address, shop.client(address) as client:
        client.subscribe("t")
        shop.put(address, 0, 1)
        assert shop.consume(client) == [0, 1]
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    shop.go_back(tmp_path / "copy")
    with testing.server(tmp_path / "data") as address, shop.client(address) as client:
        shop.put(address, 2)
        assert shop.consume(client) == [2]
        ((fence,),) = shop.database.execute("SELECT fence FROM oncemq_inbox").fetchall()
        assert generation_of(Standing(Offset(3), fence)) == continued(1, 0x0C0B0A09)


def test_a_database_of_another_branch_is_told_and_goes_on_where_the_server_has_it(
    tmp_path: Path,
) -> None:
    """One copy is gone back to twice; no state directory is kept, as in a container."""
    shop = Shop(tmp_path)
    with testing.server(tmp_path / "data") as address, shop.client(address, "a") as client:
        client.subscribe("t")
        shop.put(address, 0, 1)
        assert shop.consume(client) == [0, 1]
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    shop.go_back(tmp_path / "copy", name=0xFFFFFF)
    with testing.server(tmp_path / "data") as address, shop.client(address, "b") as client:
        shop.put(address, 2, 3, 4)
        assert shop.consume(client) == [2, 3, 4]
    shop.go_back(tmp_path / "copy", name=5)  # a lower number than before
    with testing.server(tmp_path / "data") as address:
        shop.put(address, *range(10, 20))
        with shop.client(address, "c") as client:
            with pytest.raises(HistoryLost, match="another copy of its data") as lost:
                shop.consume(client)
            (way_out,) = re.findall(r"UPDATE .*;", lost.value.detail)
            shop.database.execute(way_out)
            shop.database.commit()
            assert shop.consume(client) == list(range(10, 20))
        with shop.client(address, "d") as client:
            shop.put(address, 20)
            assert shop.consume(client) == [20]


def test_a_database_of_another_branch_is_told_though_the_server_has_it_further(
    tmp_path: Path,
) -> None:
    """What was settled here since, by whomever, took no effect in this database."""
    shop = Shop(tmp_path)
    with testing.server(tmp_path / "data") as address, shop.client(address, "a") as client:
        client.subscribe("t")
        shop.put(address, 0, 1)
        assert shop.consume(client) == [0, 1]
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    shop.go_back(tmp_path / "copy", name=0xFFFFFF)
    with testing.server(tmp_path / "data") as address, shop.client(address, "b") as client:
        shop.put(address, 2)
        assert shop.consume(client) == [2]
    shop.go_back(tmp_path / "copy", name=5)  # a lower number than before
    with testing.server(tmp_path / "data") as address:
        shop.put(address, *range(10, 20))
        with shop.client(address, "c") as client:
            assert len(client.get("t", limit=4)) == 4
        with (
            shop.client(address, "d") as client,
            pytest.raises(HistoryLost, match=r"another copy of its data.*@6"),
        ):
            shop.consume(client)
