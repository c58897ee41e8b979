"""A server that went back in time, and a database that has the effects of what it lost."""

import re
import secrets
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from oncemq import Client, HistoryLost, testing
from oncemq.client.admin.accepting import ClientFiles
from oncemq.databases.inbox import InboxRow, generation_of
from oncemq.protocol.generations import continued
from oncemq.protocol.names import Offset
from oncemq.storage.disk import LocalDisk
from oncemq.storage.segments.layout import raise_generation


class Shop:
    """Puts to a topic, and a client that consumes it into SQLite."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.database = sqlite3.connect(home / "user.db")
        self.database.execute("CREATE TABLE effects (number)")

    def close(self) -> None:
        self.database.close()

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

    def put_back(self, copy: Path) -> None:
        """By hand, so that the generation stays as it is."""
        shutil.rmtree(self.home / "data")
        shutil.copytree(copy, self.home / "data")

    def go_back(self, copy: Path, name: int = 0x0C0B0A09) -> None:
        self.put_back(copy)
        raise_generation(
            LocalDisk(), str(self.home / "data"), lambda count: name.to_bytes(count, "little")
        )


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with closing(Shop(tmp_path)) as shop:
        yield shop


def test_a_database_that_knows_more_than_the_server_is_told_with_the_way_out(
    shop: Shop,
    tmp_path: Path,
) -> None:
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


def test_the_way_out_that_is_run_again_later_changes_nothing(shop: Shop, tmp_path: Path) -> None:
    """Two were told, or one ran it twice; the row stands at the same offset again by then."""
    with testing.server(tmp_path / "data") as address, shop.client(address) as client:
        client.subscribe("t")
        shop.put(address, 0)
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    with testing.server(tmp_path / "data") as address, shop.client(address, "a") as client:
        assert shop.consume(client) == [0]
    shop.go_back(tmp_path / "copy")
    shop.database.execute("UPDATE oncemq_inbox SET cursor = 3")  # as if 1 and 2 had come, too
    shop.database.commit()
    with testing.server(tmp_path / "data") as address, shop.client(address, "b") as client:
        shop.put(address, 11, 12)
        with pytest.raises(HistoryLost, match=r"only up to @1") as lost:
            shop.consume(client)
        (way_out,) = re.findall(r"UPDATE .*;", lost.value.detail)
        for changed, taken in ((1, [11, 12]), (0, [])):
            assert shop.database.execute(way_out).rowcount == changed
            shop.database.commit()
            assert shop.consume(client) == taken
        shop.put(address, 13)
        assert shop.consume(client) == [13]


def test_a_database_that_knows_no_more_goes_on_and_notes_the_generation(
    shop: Shop, tmp_path: Path
) -> None:
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
        assert generation_of(InboxRow(Offset(3), fence)) == continued(1, 0x0C0B0A09)


def test_a_database_of_another_branch_is_told_and_goes_on_where_the_server_has_it(
    shop: Shop,
    tmp_path: Path,
) -> None:
    """One copy is gone back to twice; no state directory is kept, as in a container."""
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
    shop: Shop,
    tmp_path: Path,
) -> None:
    """What was settled here since, by whomever, took no effect in this database."""
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


def lived_on(shop: Shop) -> None:
    """Two messages are in the copy; three more took effect before it was put back by hand."""
    with testing.server(shop.home / "data") as address, shop.client(address) as client:
        client.subscribe("t")
        shop.put(address, 0, 1)
        assert shop.consume(client) == [0, 1]
    shutil.copytree(shop.home / "data", shop.home / "copy")
    shutil.copytree(shop.home / "state", shop.home / "older")
    with testing.server(shop.home / "data") as address:
        shop.put(address, 2, 3, 4)
        with shop.client(address) as client:
            assert shop.consume(client) == [2, 3, 4]
    shop.put_back(shop.home / "copy")


def told(shop: Shop, client: Client) -> None:
    """The row stands beyond what this copy has given it; the command that is named moves it."""
    for _ in range(2):
        with pytest.raises(HistoryLost, match=r"stands at t/shop@5.*another copy.*@2,") as lost:
            shop.consume(client)
    (way_out,) = re.findall(r"UPDATE .*;", lost.value.detail)
    shop.database.execute(way_out)
    shop.database.commit()


@pytest.mark.parametrize("restored", [False, True], ids=["by hand", "and then restored"])
@pytest.mark.parametrize("state", ["state", "older", "fresh"])
def test_a_database_is_told_of_a_copy_that_was_put_back_by_hand(
    shop: Shop, tmp_path: Path, state: str, restored: bool
) -> None:
    """Grown beyond the row: whether the client's state was moved, restored with it, or is new."""
    lived_on(shop)
    with testing.server(tmp_path / "data") as address:
        shop.put(address, *range(10, 20))
    if restored:
        shutil.copytree(tmp_path / "data", tmp_path / "grown")
        shop.go_back(tmp_path / "grown")
    with testing.server(tmp_path / "data") as address:
        if state == "state":
            with shop.client(address) as client, pytest.raises(HistoryLost, match="accept"):
                shop.consume(client)
            with ClientFiles("shop", tmp_path / state, secrets.token_bytes) as files:
                files.accept(files.look(address, 20))
        with shop.client(address, state) as client:
            told(shop, client)
            assert shop.consume(client) == list(range(10, 20))
        with shop.client(address, "later") as client:
            shop.put(address, 20)
            assert shop.consume(client) == [20]


def test_a_database_that_is_ahead_of_a_server_that_was_not_told_goes_on(
    shop: Shop, tmp_path: Path
) -> None:
    """The very messages that it took, in an older copy of server and state."""
    with testing.server(tmp_path / "data") as address, shop.client(address) as client:
        client.subscribe("t")
        shop.put(address, *range(6))
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    shutil.copytree(tmp_path / "state", tmp_path / "older")
    with testing.server(tmp_path / "data") as address, shop.client(address) as client:
        with client.consume("t", wait=0, into=shop.database, limit=4) as messages:
            assert len(messages) == 4
        ((newest,),) = shop.database.execute("SELECT newest FROM oncemq_inbox").fetchall()
        assert re.fullmatch(r"3@\d{16}", newest)
    shop.put_back(tmp_path / "copy")
    with testing.server(tmp_path / "data") as address, shop.client(address, "older") as client:
        assert shop.consume(client) == [4, 5]


@pytest.mark.parametrize("moved", [False, True], ids=["as it was", "and moved by it"])
def test_a_table_of_an_older_version_is_given_the_column(
    shop: Shop, tmp_path: Path, moved: bool
) -> None:
    with testing.server(tmp_path / "data") as address, shop.client(address, "a") as client:
        client.subscribe("t")
        shop.put(address, *range(6))
        with client.consume("t", wait=0, into=shop.database, limit=2) as messages:
            assert len(messages) == 2
        if moved:  # an older version took two more, and noted nothing
            shop.database.execute("UPDATE oncemq_inbox SET cursor = 4")
        else:
            shop.database.execute("ALTER TABLE oncemq_inbox DROP COLUMN newest")
        shop.database.commit()
    with testing.server(tmp_path / "data") as address, shop.client(address, "b") as client:
        assert shop.consume(client) == ([4, 5] if moved else [2, 3, 4, 5])
        ((newest,),) = shop.database.execute("SELECT newest FROM oncemq_inbox").fetchall()
        assert newest.startswith("5@")
