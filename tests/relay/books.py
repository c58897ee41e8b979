"""Writers whose transactions are numbered by a row they lock: the order of commits is known."""

import threading
from contextlib import closing
from random import Random
from typing import Any

import oncemq
from oncemq import Client
from tests.relay.homes import Home


class Books:
    """What was committed, kept in the same transactions as what was put."""

    def __init__(self, home: Home) -> None:
        self._home = home
        home.look("CREATE TABLE turn (number integer)")
        home.look("INSERT INTO turn VALUES (0)")
        home.look("CREATE TABLE written (number integer, parts integer, apart integer)")

    def write(self, connection: Any, chance: Random) -> None:
        """One transaction: rows before its turn, its turn, rows after; some are rolled back."""
        apart, parts = chance.randrange(3), 1 + chance.randrange(3)
        sqlite = self._home.kind == "sqlite3"
        connection.execute("BEGIN IMMEDIATE" if sqlite else "BEGIN")
        oncemq.outbox(connection).put_many("apart", [b"apart"] * apart)
        if not sqlite:  # others begin and end meanwhile
            connection.execute(f"SELECT pg_sleep({chance.random() / 300})")
        connection.execute("UPDATE turn SET number = number + 1")
        ((number,),) = connection.execute("SELECT number FROM turn").fetchall()
        texts = [b"%d.%d" % (number, each) for each in range(parts)]
        oncemq.outbox(connection).put_many("orders", texts)
        connection.execute(f"INSERT INTO written VALUES ({number}, {parts}, {apart})")
        connection.execute("ROLLBACK" if chance.random() < 0.2 else "COMMIT")

    def write_many(self, count: int, chance: Random) -> None:
        """So many transactions, one after the other."""
        with closing(self._home.writer()) as connection:
            for _ in range(count):
                self.write(connection, chance)

    def write_at_once(self, writers: int, count: int, seed: int) -> None:
        """The same from several connections, whose transactions overlap."""
        threads = [
            threading.Thread(target=self.write_many, args=(count, Random(f"{seed} {each}")))
            for each in range(writers)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def check(self, client: Client) -> int:
        """Each committed row is in its topic once, in the order of commits; how many there are."""
        rows = self._home.look("SELECT number, parts, apart FROM written ORDER BY number")
        assert [number for number, *_ in rows] == list(range(1, len(rows) + 1))
        orders = [b"%d.%d" % (number, each) for number, parts, _ in rows for each in range(parts)]
        assert _all(client, "orders") == orders
        assert len(_all(client, "apart")) == sum(apart for *_, apart in rows)
        return len(orders)


def _all(client: Client, topic: str) -> list[bytes]:
    found: list[bytes] = []
    while messages := client.read(topic, len(found), limit=1000):
        found += [message.payload for message in messages]
    return found
