"""The database of simulated worlds finds by itself who writes though it was taken over from."""

from oncemq.databases import inbox as table
from oncemq.databases.statements import Bound, Tell
from simulator.machines.fake_database import FakeConnection, FakeDatabase

ROW = {"client": "shop", "topic": "orders", "subscription_id": 7}
UNFENCED = table.MOVE.partition(" AND fence = ")[0]


def commit(connection: FakeConnection, sql: str, **values: int) -> None:
    connection.perform(Bound.BEGIN)
    assert connection.perform(Tell(sql, {**ROW, **values})) == 1
    connection.perform(Bound.COMMIT)


def test_a_cursor_that_is_moved_by_who_was_taken_over_from_is_trouble() -> None:
    troubles: list[str] = []
    database = FakeDatabase(troubles.append)
    elder, newer = FakeConnection(database), FakeConnection(database)
    elder.asked, newer.asked = 3, 5
    commit(elder, table.ADD, cursor=0, taken=1)
    commit(elder, table.MOVE, fence=1, before=0, after=2)
    commit(newer, table.TAKE, fence=1, cursor=2, taken=2)
    commit(newer, table.MOVE, fence=2, before=2, after=4)
    assert (elder.taken, newer.taken, troubles) == ({"orders": 3}, {"orders": 5}, [])
    commit(elder, UNFENCED, after=6)
    assert troubles == ["not_fenced: orders@6: moved by who was taken over from"]
