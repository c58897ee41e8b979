"""Rows of the inbox that two processes want, or that a person changes, with every connection."""

from typing import Any

import pytest

from oncemq import DatabaseRefused, Fenced
from oncemq.databases import inbox
from oncemq.databases.inbox import InboxRow, Mark, Move, RowOvertaken, SubscriptionPlace
from oncemq.databases.statements import Ask, Bound, Work
from oncemq.protocol.names import Generation, Offset, SubscriptionId
from tests.databases.desks import Desk

FIRST = Generation(1)
ID = SubscriptionId(7 << 32 | 1)
PLACE = SubscriptionPlace("orders", ID, Offset(0), False)
MOVE = Move("orders", ID, 1, Offset(0), Offset(1))


@pytest.fixture
def table(desk: Desk) -> Any:
    """A connection to a database that has the table."""
    table = desk.recognize(desk.connect())
    desk.work(table, inbox.see_to_table(table))
    return table


def rows(desk: Desk) -> list[tuple[Any, ...]]:
    return desk.look("SELECT cursor, fence FROM oncemq_inbox")


def test_of_two_processes_that_found_no_row_one_adds_it(desk: Desk, table: Any) -> None:
    mark = Mark(ID, 1, Offset(0), Offset(0))
    assert desk.work(table, inbox.take("c", [PLACE], [None], FIRST)) == [("orders", mark)]
    other = desk.recognize(desk.connect())
    with pytest.raises(RowOvertaken):
        desk.work(other, inbox.take("c", [PLACE], [None], FIRST))
    assert rows(desk) == [(0, 1)]


@pytest.mark.parametrize(
    "then",
    [
        "UPDATE oncemq_inbox SET fence = fence + 1",
        "UPDATE oncemq_inbox SET cursor = cursor + 1",
        "DELETE FROM oncemq_inbox",
        "UPDATE oncemq_inbox SET subscription_id = subscription_id + 1",
    ],
)
def test_a_row_that_is_not_as_it_was_read_is_not_taken_nor_is_any_other(
    desk: Desk, table: Any, then: str
) -> None:
    desk.work(table, inbox.take("c", [PLACE], [None], FIRST))
    desk.change("UPDATE oncemq_inbox SET cursor = 3, fence = 4")
    desk.change(then)
    before = rows(desk)
    other, seen = PLACE._replace(topic="other"), InboxRow(Offset(3), 4)
    with pytest.raises(RowOvertaken):
        desk.work(table, inbox.take("c", [other, PLACE], [None, seen], FIRST))
    assert rows(desk) == before


def test_taking_a_row_raises_its_fence_and_leaves_its_cursor(desk: Desk, table: Any) -> None:
    places = [PLACE._replace(reached=Offset(2)), PLACE._replace(topic="b", reached=Offset(9))]
    desk.work(table, inbox.take("c", places, [None, None], FIRST))
    desk.change("UPDATE oncemq_inbox SET cursor = 5")
    standings = desk.work(table, inbox.read("c", places))
    assert standings == [InboxRow(Offset(5), 1), InboxRow(Offset(5), 1)]
    taken = desk.work(table, inbox.take("c", places, standings, FIRST, notes=True))
    assert taken == [
        ("orders", Mark(ID, 2, Offset(5), Offset(5), notes=True)),
        ("b", Mark(ID, 2, Offset(5), Offset(9), notes=True)),
    ]
    assert rows(desk) == [(5, 2), (5, 2)]
    assert desk.work(table, inbox.look("c", dict(taken))) == {"orders": 5, "b": 5}


def test_a_new_subscription_takes_the_rows_of_those_before_it_away(desk: Desk, table: Any) -> None:
    """Those of the same log: another's may be in use at another server."""
    log = 7 << 32
    ids = [log - 1, log, log + 1, log + 3, log + 4, (8 << 32) + 1]
    for client, topic in (("c", "orders"), ("d", "orders"), ("c", "other")):
        for each in ids:
            desk.change(
                "INSERT INTO oncemq_inbox (client, topic, subscription_id, cursor, fence) "
                f"VALUES ('{client}', '{topic}', {each}, 0, 1)"
            )
    new = SubscriptionId(log + 2)
    desk.work(table, inbox.take("c", [PLACE._replace(subscription_id=new)], [None], FIRST))

    def left(client: str, topic: str) -> list[int]:
        found = desk.look(
            "SELECT subscription_id FROM oncemq_inbox "
            f"WHERE client = '{client}' AND topic = '{topic}' ORDER BY subscription_id"
        )
        return [each for (each,) in found]

    assert left("c", "orders") == [log - 1, log + 2, log + 3, log + 4, (8 << 32) + 1]
    assert left("d", "orders") == left("c", "other") == ids


def test_a_commit_moves_all_cursors_or_none(desk: Desk, table: Any) -> None:
    places = [PLACE, PLACE._replace(topic="b")]
    desk.work(table, inbox.take("c", places, [None, None], FIRST))

    def moved(*moves: Move) -> Work[None]:
        yield Bound.BEGIN
        yield from inbox.commit("c", moves)

    late = MOVE._replace(topic="b", fence=0)
    with pytest.raises(Fenced, match="fence 1, ours is 0"):
        desk.work(table, moved(MOVE, late))
    assert rows(desk) == [(0, 1), (0, 1)]
    with pytest.raises(DatabaseRefused, match="no row for b/c any more"):
        desk.work(table, moved(MOVE, late._replace(subscription_id=SubscriptionId(1))))
    desk.work(table, moved(MOVE, MOVE._replace(topic="b", after=Offset(4), newest="3@17")))
    assert desk.look("SELECT topic, cursor, fence, newest FROM oncemq_inbox ORDER BY topic") == [
        ("b", 4, 1, "3@17"),
        ("orders", 1, 1, None),
    ]


def test_a_row_that_changes_while_it_is_taken_is_to_be_read_again(
    desk: Desk, table: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL fails such a transaction by itself, with a code that each library wraps."""
    if desk.database == "sqlite":
        return  # it has one writer at a time
    desk.work(table, inbox.take("c", [PLACE], [None], FIRST))
    take = inbox._take  # pyright: ignore[reportPrivateUsage]

    def slowly(
        client: str, place: SubscriptionPlace, row: InboxRow | None, generation: Generation
    ) -> Work[Mark]:
        yield Ask("SELECT count(*) FROM oncemq_inbox", {})  # from here on it sees no changes
        desk.change("UPDATE oncemq_inbox SET fence = fence + 1")
        return (yield from take(client, place, row, generation))

    monkeypatch.setattr(inbox, "_take", slowly)
    connection = desk.connect()
    level = "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL REPEATABLE READ"
    desk.do(connection, level)
    desk.commit(connection)
    with pytest.raises(RowOvertaken):
        desk.work(
            desk.recognize(connection), inbox.take("c", [PLACE], [InboxRow(Offset(0), 1)], FIRST)
        )
    assert rows(desk) == [(0, 2)]


def test_a_cursor_that_was_moved_by_hand_is_named_as_the_cause(desk: Desk, table: Any) -> None:
    desk.work(table, inbox.take("c", [PLACE], [None], FIRST))
    desk.change("UPDATE oncemq_inbox SET cursor = 5")

    def moved() -> Work[None]:
        yield Bound.BEGIN
        yield from inbox.commit("c", [MOVE])

    with pytest.raises(DatabaseRefused, match="orders/c@0 in oncemq_inbox was moved to @5 by hand"):
        desk.work(table, moved())
    assert rows(desk) == [(5, 1)]


def test_a_commit_that_failed_for_another_reason_keeps_its_own_error(
    desk: Desk, table: Any
) -> None:
    desk.work(table, inbox.take("c", [PLACE], [None], FIRST))

    def broken() -> Work[None]:
        yield Bound.BEGIN
        yield from inbox.commit("c", [MOVE._replace(after=None)])  # type: ignore[arg-type]

    with pytest.raises(Exception, match=r"(?i)null"):
        desk.work(table, broken())
    assert rows(desk) == [(0, 1)]


@pytest.mark.parametrize("fence", [0, 1, 7, 1 << 40, 3 << 40 | 5, 1 << 62 | 3 << 36 | 9])
def test_a_fence_grows_and_says_of_which_generation_it_is(fence: int) -> None:
    """Whatever the generation before was: the next one may be of another branch, and lower."""
    seen = InboxRow(Offset(0), fence)
    for generation in map(Generation, (1, 2, 2, 1 << 24 | 0xFFFFFF, 1 << 24 | 3, 1, 5 << 24)):
        taken = inbox._next_fence(seen.fence, generation)  # pyright: ignore[reportPrivateUsage]
        assert seen.fence < taken < 1 << 63
        seen = InboxRow(Offset(0), taken)
        assert inbox.generation_of(seen) == generation


def test_a_fence_of_before_generations_had_names_is_read() -> None:
    assert [inbox.generation_of(InboxRow(Offset(0), each)) for each in (1, 9, 1 << 40 | 3)] == [
        1,
        1,
        2,
    ]


def test_fences_are_on_disk_as_they_always_were() -> None:
    following = inbox._next_fence  # pyright: ignore[reportPrivateUsage]
    third, other = Generation(2 << 24 | 9), Generation(2 << 24 | 5)
    assert [following(0, FIRST), following(41, FIRST)] == [1, 42]
    named = following(41, third)
    assert named == 4611686087180419081
    assert following(named, other) == 4611686155899895813
    assert following(named, FIRST) == 4611686155866341377
