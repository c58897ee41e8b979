"""G5 with every kind of connection: effect and cursor in one commit, and whoever is right wins."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from oncemq import DatabaseRefused, Fenced, InboxGap, InvalidRequest, NotSubscribed, testing
from oncemq.protocol.records import Retention
from tests.databases.desks import Desk

Effects = list[tuple[Any, ...]]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """One for all: the topics of each test are its own."""
    with testing.server() as address:
        yield address


class Shop:
    """A user's program: a topic, a client, a table of effects."""

    def __init__(self, desk: Desk, server: str, state: Path) -> None:
        self.desk = desk
        self.server = server
        self.state = state
        self.topic = f"orders-{uuid4().hex[:8]}"
        self.connection = desk.connect()
        desk.do(self.connection, "CREATE TABLE effects (number BIGINT, topic TEXT)")
        desk.commit(self.connection)
        self.client = self.start()
        self.client.subscribe(self.topic)

    def start(self) -> Any:
        """The client's next start."""
        self.client = self.desk.client(self.server, id=f"c-{self.topic}", state=self.state)
        return self.client

    def put(self, *numbers: int, topic: str = "") -> None:
        self.client.put_many(topic or self.topic, [b"%d" % number for number in numbers])

    def consume(self, limit: int = 100, *, topic: str | None = "", into: Any = None) -> list[int]:
        """One block, as a user writes it."""
        if topic == "":
            topic = self.topic
        into = into or self.connection
        with self.client.consume(topic, limit=limit, wait=0, into=into) as messages:
            self.apply(messages, into)
        return [int(message.payload) for message in messages]

    def apply(self, messages: list[Any], into: Any) -> None:
        for message in messages:
            values = f"({int(message.payload)}, '{message.topic}')"
            self.desk.do(into, f"INSERT INTO effects VALUES {values}")

    def effects(self) -> list[int]:
        return [number for (number,) in self.desk.look("SELECT number FROM effects")]

    def cursors(self) -> Effects:
        return self.desk.look("SELECT cursor, fence FROM oncemq_inbox ORDER BY subscription_id")


@pytest.fixture
def shop(desk: Desk, server: str, tmp_path: Path) -> Shop:
    return Shop(desk, server, tmp_path / "state")


def test_effect_and_cursor_are_committed_together(shop: Shop) -> None:
    shop.put(*range(5))
    assert shop.consume(3) == [0, 1, 2]
    assert (shop.effects(), shop.cursors()) == ([0, 1, 2], [(3, 1)])
    assert shop.consume(3) == [3, 4]
    assert shop.consume() == []
    assert (shop.effects(), shop.cursors()) == ([0, 1, 2, 3, 4], [(5, 1)])


def test_until_the_block_ends_nobody_sees_anything(shop: Shop) -> None:
    shop.put(1, 2)
    with shop.client.consume(shop.topic, into=shop.connection) as messages:
        shop.apply(messages, shop.connection)
        assert (shop.effects(), shop.cursors()) == ([], [(0, 1)])
    assert (shop.effects(), shop.cursors()) == ([1, 2], [(2, 1)])


def test_an_exception_rolls_both_back_and_the_messages_come_again(shop: Shop) -> None:
    shop.put(1, 2)
    with (
        pytest.raises(ZeroDivisionError),
        shop.client.consume(shop.topic, into=shop.connection) as messages,
    ):
        shop.apply(messages, shop.connection)
        raise ZeroDivisionError
    assert (shop.effects(), shop.cursors()) == ([], [(0, 1)])
    assert shop.consume() == [1, 2]
    assert shop.effects() == [1, 2]


def test_a_statement_that_fails_rolls_both_back(shop: Shop) -> None:
    shop.put(1)
    with (
        pytest.raises(Exception, match="nowhere"),
        shop.client.consume(shop.topic, into=shop.connection) as messages,
    ):
        shop.apply(messages, shop.connection)
        shop.desk.do(shop.connection, "INSERT INTO nowhere VALUES (1)")
    assert shop.effects() == []
    assert shop.consume() == [1]
    assert shop.effects() == [1]


def test_the_database_wins_over_a_client_that_lost_its_state(shop: Shop) -> None:
    shop.put(1, 2, 3)
    assert shop.consume(2) == [1, 2]
    shop.client.close()
    shutil.rmtree(shop.state)
    shop.desk.change("UPDATE oncemq_inbox SET cursor = 3")  # as if 3 had come, too
    shop.start()
    shop.put(4)
    assert shop.consume() == [4]
    assert shop.cursors() == [(4, 2)]
    [subscription] = shop.client.subscriptions(shop.topic)
    assert subscription.cursor >= 3  # told with the first request


def test_a_restored_database_gets_again_what_it_lacks_if_it_is_kept(shop: Shop) -> None:
    shop.client.configure_topic(shop.topic, Retention(forever=True))
    shop.put(*range(6))
    assert shop.consume(4) == [0, 1, 2, 3]
    shop.client.close()
    shop.desk.change("UPDATE oncemq_inbox SET cursor = 1")
    shop.desk.change("DELETE FROM effects WHERE number >= 1")
    shop.start()
    assert [shop.consume(2) for _ in range(4)] == [[1, 2], [3], [4, 5], []]
    assert (shop.effects(), shop.cursors()) == (list(range(6)), [(6, 2)])


@pytest.mark.parametrize("made_anew", [True, False])
def test_a_restored_database_does_not_get_messages_of_a_topic_that_was_made_anew_meanwhile(
    shop: Shop, made_anew: bool
) -> None:
    """Of the subscription that it lacks messages of, which has ended with its topic."""
    shop.client.configure_topic(shop.topic, Retention(forever=True))
    shop.put(*range(6))
    assert shop.consume(6) == list(range(6))
    shop.client.close()
    shop.desk.change("UPDATE oncemq_inbox SET cursor = 0")
    shop.desk.change("DELETE FROM effects")
    shop.start()
    assert shop.consume(2) == [0, 1]
    shop.client.delete_topic(shop.topic)
    if made_anew:
        shop.client.create_topic(shop.topic, Retention(forever=True))
        shop.put(*range(10, 16))
    with pytest.raises(NotSubscribed):
        shop.consume(2)
    shop.client.subscribe(shop.topic, start="earliest")
    shop.put(16)
    assert shop.consume() == [*(range(10, 16) if made_anew else ()), 16]
    assert shop.effects() == [0, 1, *(range(10, 16) if made_anew else ()), 16]


def test_a_restored_database_whose_messages_are_gone_is_an_error_with_a_way_on(shop: Shop) -> None:
    shop.put(*range(6))
    assert shop.consume(4) == [0, 1, 2, 3]
    shop.client.close()
    shop.desk.change("UPDATE oncemq_inbox SET cursor = 1")
    shop.start()
    client = shop.client.id
    with pytest.raises(InboxGap, match=f"{shop.topic}/{client}@1, the subscription at @4") as gap:
        shop.consume()
    assert shop.effects() == [0, 1, 2, 3]
    statement = gap.value.detail.partition("\n")[2]
    assert "SET cursor = 4 " in statement
    shop.desk.change(statement)
    assert shop.consume() == [4, 5]


def test_a_database_that_was_emptied_is_an_error_with_a_way_on(shop: Shop) -> None:
    shop.put(*range(4))
    assert shop.consume(2) == [0, 1]
    shop.client.close()
    shop.desk.change("DELETE FROM oncemq_inbox")
    shop.start()
    with pytest.raises(InboxGap, match=f"no cursor of {shop.topic}/.* up to @2 are") as gap:
        shop.consume()
    shop.desk.change(gap.value.detail.partition("\n")[2])
    assert shop.consume() == [2, 3]
    assert shop.cursors() == [(4, 1)]


def test_a_machine_that_is_lost_with_state_and_database_is_told_what_is_missing(
    shop: Shop,
) -> None:
    shop.put(*range(4))
    assert shop.consume(2) == [0, 1]
    shop.client.close()
    shop.desk.change("DELETE FROM oncemq_inbox")
    shutil.rmtree(shop.state)
    shop.start()
    with pytest.raises(InboxGap, match=f"no cursor of {shop.topic}/.* up to @2 are") as gap:
        shop.consume()
    shop.desk.change(gap.value.detail.partition("\n")[2])
    assert shop.consume() == [2, 3]
    assert shop.cursors() == [(4, 1)]


def test_the_same_while_the_messages_are_kept_can_take_all_of_them_again(shop: Shop) -> None:
    shop.client.configure_topic(shop.topic, Retention(forever=True))
    shop.put(*range(4))
    assert shop.consume(2) == [0, 1]
    shop.client.close()
    shop.desk.change("DELETE FROM oncemq_inbox")
    shop.desk.change("DELETE FROM effects")
    shutil.rmtree(shop.state)
    shop.start()
    with pytest.raises(InboxGap, match="with 0 as its cursor instead of 2") as gap:
        shop.consume()
    statement = gap.value.detail.partition("\n")[2]
    shop.desk.change(statement.replace(", 2, 0);", ", 0, 0);"))
    assert [shop.consume(), shop.consume()] == [[0, 1], [2, 3]]
    assert (shop.effects(), shop.cursors()) == ([0, 1, 2, 3], [(4, 1)])


def test_a_subscription_of_which_nothing_was_taken_begins_in_any_database(shop: Shop) -> None:
    shop.put(0, 1)
    shop.client.unsubscribe(shop.topic)
    shop.client.subscribe(shop.topic)
    shop.put(2)
    shop.client.close()
    shutil.rmtree(shop.state)
    shop.start()
    assert shop.consume() == [2]


def test_a_plain_get_beside_the_inbox_is_seen(shop: Shop) -> None:
    shop.client.configure_topic(shop.topic, Retention(forever=True))
    shop.put(*range(4))
    assert shop.consume(1) == [0]
    assert [message.payload for message in shop.client.get(shop.topic)] == [b"1"]
    assert [shop.consume(), shop.consume()] == [[1], [2, 3]]
    assert shop.effects() == [0, 1, 2, 3]


def test_who_was_taken_over_fails_its_commit(shop: Shop) -> None:
    shop.put(1, 2)
    assert shop.consume(1) == [1]
    shop.desk.change("UPDATE oncemq_inbox SET fence = fence + 1")  # what a twin does
    with pytest.raises(Fenced, match=re.escape("(fence 2, ours is 1): nothing was committed")):
        shop.consume()
    assert (shop.effects(), shop.cursors()) == ([1], [(1, 2)])
    with pytest.raises(Fenced):
        shop.consume()
    shop.start()
    assert shop.consume() == [2]
    assert (shop.effects(), shop.cursors()) == ([1, 2], [(2, 3)])


def test_a_commit_whose_answer_was_lost_is_found_out(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    from oncemq.databases import inbox as table

    real = table.commit

    def cut_off(*args: Any) -> Any:
        yield from real(*args)
        raise ConnectionError("the answer never came")

    shop.put(1, 2)
    with monkeypatch.context() as patched:
        patched.setattr(table, "commit", cut_off)
        with pytest.raises(ConnectionError):
            shop.consume(1)
    assert shop.effects() == [1]
    assert shop.consume() == [2]
    assert shop.effects() == [1, 2]


def test_each_block_may_have_a_connection_of_its_own(shop: Shop) -> None:
    shop.put(1, 2)
    assert shop.consume(1) == [1]
    assert shop.consume(into=shop.desk.connect()) == [2]
    assert (shop.effects(), shop.cursors()) == ([1, 2], [(2, 1)])


def test_several_topics_in_one_batch(shop: Shop) -> None:
    other = f"{shop.topic}-other"
    shop.client.subscribe(other)
    shop.put(1)
    shop.put(2, 3, topic=other)
    shop.put(4)
    assert sorted(shop.consume(topic=None)) == [1, 2, 3, 4]
    assert shop.consume(topic=None) == []
    third = f"{shop.topic}-third"
    shop.client.subscribe(third)  # while it runs
    shop.put(5, topic=third)
    assert shop.consume(topic=None) == [5]
    assert shop.cursors() == [(2, 1), (2, 1), (1, 1)]


def test_subscribing_again_starts_afresh(shop: Shop) -> None:
    shop.put(1, 2)
    assert shop.consume() == [1, 2]
    shop.client.unsubscribe(shop.topic)
    shop.put(3)
    shop.client.subscribe(shop.topic)
    shop.put(4)
    assert shop.consume() == [4]
    assert shop.effects() == [1, 2, 4]
    assert len(shop.cursors()) == 1  # the row of the subscription that ended is gone


def test_a_topic_made_again_is_another(shop: Shop) -> None:
    shop.put(1, 2, 3)
    assert shop.consume() == [1, 2, 3]
    shop.client.delete_topic(shop.topic)
    shop.client.subscribe(shop.topic)
    shop.put(4)
    assert shop.consume() == [4]
    assert shop.effects() == [1, 2, 3, 4]


def test_a_block_without_messages_is_a_transaction_too(shop: Shop) -> None:
    with shop.client.consume(shop.topic, wait=0, into=shop.connection) as messages:
        shop.desk.do(shop.connection, "INSERT INTO effects VALUES (7, 'mine')")
    assert (messages, shop.effects()) == ([], [7])


def test_a_commit_by_the_code_inside_is_an_error(shop: Shop) -> None:
    shop.put(1)
    with (
        pytest.raises(Exception, match=r"inside it|forbidden within"),
        shop.client.consume(shop.topic, into=shop.connection) as messages,
    ):
        if shop.desk.kind == "asyncpg":
            shop.desk.do(shop.connection, "COMMIT")
        shop.desk.commit(shop.connection)
    assert len(messages) == 1
    assert shop.cursors() == [(0, 1)]
    assert shop.consume() == [1]


def test_a_transaction_of_the_users_own_is_refused_and_left_alone(shop: Shop) -> None:
    if shop.desk.kind in ("asyncpg", "psycopg-autocommit", "sqlite3-none"):
        shop.desk.do(shop.connection, "BEGIN")
    shop.desk.do(shop.connection, "INSERT INTO effects VALUES (7, 'mine')")
    shop.put(1)
    with pytest.raises(DatabaseRefused, match="commit it or roll it back first"):
        shop.consume()
    shop.desk.do(shop.connection, "INSERT INTO effects VALUES (8, 'mine')")
    if shop.desk.kind in ("asyncpg", "psycopg-autocommit", "sqlite3-none"):
        shop.desk.do(shop.connection, "COMMIT")
    else:
        shop.desk.commit(shop.connection)
    assert shop.effects() == [7, 8]
    assert shop.consume() == [1]


def test_a_read_before_the_block_is_no_matter(shop: Shop) -> None:
    shop.put(1)
    shop.desk.do(shop.connection, "SELECT * FROM effects")
    assert shop.consume() == [1]


def test_without_a_subscription_it_says_so(shop: Shop) -> None:
    with pytest.raises(NotSubscribed):
        shop.consume(topic="nowhere")


def test_an_anonymous_client_has_no_inbox(desk: Desk, server: str) -> None:
    client = desk.client(server)
    client.subscribe("anything")
    with (
        pytest.raises(InvalidRequest, match="give the client an id"),
        client.consume("anything", wait=0, into=desk.connect()),
    ):
        pass
