"""The outbox's tables as a relay reads and writes them: which rows, in which order, which go."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import msgspec
import pytest

import oncemq
from oncemq.protocol.names import ProducerId, Sequence, TopicId
from oncemq.protocol.replies import Resumed
from oncemq.relay import tables as module
from oncemq.relay.database import RelayDatabase
from oncemq.relay.tables import RelayTables, StandingOvertaken
from oncemq.relay.topic_relay import StandingChange, TopicRelay, TopicStanding
from oncemq.wire.batch import Item
from tests.relay.conftest import Homes
from tests.relay.homes import Home

PRODUCER = ProducerId(b"0123456789abcdef")


@pytest.fixture
def desk(home: Home) -> Iterator[RelayDatabase]:
    with closing(RelayDatabase(home.connect)) as desk:
        yield desk


@pytest.fixture
def ledger(desk: RelayDatabase) -> RelayTables:
    return RelayTables(desk.kind)


def fill(home: Home) -> None:
    """Rows of every sort, each in a transaction of its own."""
    with closing(home.writer()) as connection:
        outbox = oncemq.outbox(connection)
        outbox.put("orders", b"12345", key=b"key", headers={"a": "ü"})
        outbox.put("others", b"not of this topic")
        outbox.put("orders", b"", key=b"")
        outbox.put("orders", b"123456")
        outbox.put("orders", b"set aside")
        connection.execute("UPDATE oncemq_outbox SET failed = 'because' WHERE id = 5")
        connection.execute(
            "INSERT INTO oncemq_outbox (topic, payload, headers) VALUES ('orders', '1', '[]')"
        )


def left(home: Home) -> list[tuple[Any, ...]]:
    return home.look("SELECT id, failed FROM oncemq_outbox ORDER BY id")


def test_what_waits_is_told_with_its_size_and_its_fault(
    home: Home, desk: RelayDatabase, ledger: RelayTables
) -> None:
    fill(home)
    found = desk.run(ledger.waiting(TopicStanding("orders", PRODUCER), 5))
    header = len('{"a":"ü"}'.encode() if desk.kind == "sqlite" else '{"a":"ü"}')
    sizes = [(row.id, row.size) for row in found]
    assert sizes == [(1, 5 + 3 + header), (3, 0), (4, 6), (6, 1 + 2)]
    assert [row.fault.partition(":")[0] for row in found] == [
        "",
        "",
        "a message of 6 bytes is over the server's limit of 5",
        "its headers are no JSON object of texts",
    ]
    places = [row.place for row in found]
    assert places == ([0] * 4 if desk.kind == "sqlite" else [1, 3, 4, 6])


def test_messages_are_those_of_the_rows_named_in_their_order(
    home: Home, desk: RelayDatabase, ledger: RelayTables
) -> None:
    fill(home)
    assert desk.run(ledger.contents((4, 1, 3))) == [
        Item(b"123456"),
        Item(b"12345", b"key", {"a": "ü"}),
        Item(b"", b""),
    ]
    assert desk.run(ledger.contents((4, 99, 3))) is None


def test_topics_are_those_that_rows_wait_for(
    home: Home, desk: RelayDatabase, ledger: RelayTables
) -> None:
    fill(home)
    home.write("last", [b"set aside too"])
    home.look("UPDATE oncemq_outbox SET failed = 'because' WHERE topic = 'last'")
    assert sorted(desk.run(ledger.topics())) == ["orders", "others"]


def test_the_rest_of_a_transaction_that_was_broken_off_goes_first(
    make_home: Homes, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = make_home("psycopg")
    for payloads in ([b"1"], [b"2", b"2", b"2"], [b"3"]):
        home.write("orders", payloads)
    home.look("UPDATE oncemq_outbox SET place = 8 WHERE id = 1")  # it committed last
    standing = TopicStanding("orders", PRODUCER, last_place=8)
    with closing(RelayDatabase(home.connect)) as desk:
        ledger = RelayTables(desk.kind)

        def waiting() -> list[tuple[int, int]]:
            rows = desk.run(ledger.waiting(standing, 100))
            return [(row.id, row.place) for row in rows]

        assert waiting() == [(1, 8), (2, 2), (3, 2), (4, 2), (5, 3)]
        monkeypatch.setattr(module, "ROWS_MAX", 3)
        assert waiting() == [(1, 8), (2, 2), (3, 2)]
        standing = msgspec.structs.replace(standing, last_place=2)
        assert waiting() == [(2, 2), (3, 2), (4, 2)], "no room for another"


def stand(desk: RelayDatabase, ledger: RelayTables, topic: str = "orders") -> TopicStanding:
    return desk.run(ledger.standing(topic, PRODUCER))


def test_a_topic_keeps_the_producer_it_began_with(desk: RelayDatabase, ledger: RelayTables) -> None:
    assert stand(desk, ledger) == TopicStanding("orders", PRODUCER)
    again = desk.run(ledger.standing("orders", ProducerId(b"another one has ")))
    assert again == TopicStanding("orders", PRODUCER)


def test_a_change_is_the_standing_and_the_rows_it_names(
    home: Home, desk: RelayDatabase, ledger: RelayTables
) -> None:
    fill(home)
    before = stand(desk, ledger)
    after = TopicStanding(
        "orders", ProducerId(b"another one has "), TopicId(7), Sequence(10), (9, 10, 4), 11, 12,
        "because", 1,
    )  # fmt: skip
    desk.run(
        ledger.write(StandingChange(before, after, freed=(1, 4), set_aside=(6,), reason="why"))
    )
    assert stand(desk, ledger) == after
    assert left(home) == [(2, None), (3, None), (5, "because"), (6, "why")]
    with pytest.raises(StandingOvertaken, match="orders"):
        desk.run(ledger.write(StandingChange(before, after, freed=(2, 3))))
    assert len(left(home)) == 4


def test_a_turn_is_all_of_it_or_nothing(
    home: Home, desk: RelayDatabase, ledger: RelayTables
) -> None:
    fill(home)
    errands = [TopicRelay(stand(desk, ledger, topic)) for topic in ("orders", "others")]
    for errand in errands:
        errand.resumed(Resumed(TopicId(0), Sequence(0)))
    home.look("UPDATE oncemq_outbox_topics SET version = 5 WHERE topic = 'others'")
    before = [stand(desk, ledger, topic) for topic in ("orders", "others")]
    with pytest.raises(StandingOvertaken, match="others"):
        desk.run(ledger.turn(errands, errands, message_bytes=100))
    assert [stand(desk, ledger, topic) for topic in ("orders", "others")] == before
    assert not any(each.planned for each in before)


def test_a_turn_frees_what_has_a_receipt_and_numbers_what_comes_next(
    home: Home, desk: RelayDatabase, ledger: RelayTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ROWS_MAX", 2)
    home.write("orders", [b"1", b"2", b"3"])
    errand = TopicRelay(stand(desk, ledger))
    errand.resumed(Resumed(TopicId(0), Sequence(0)))
    desk.run(ledger.turn([errand], [errand], message_bytes=100))
    assert (errand.standing.planned, errand.change, len(left(home))) == ((1, 2), None, 3)
    errand.resumed(Resumed(TopicId(4), Sequence(0), deleted_after=Sequence(2)))  # a receipt, too
    desk.run(ledger.turn([errand], [errand], message_bytes=100))
    assert left(home) == [(3, None)]
    place = 0 if desk.kind == "sqlite" else 1
    assert stand(desk, ledger) == errand.standing == TopicStanding(
        "orders", PRODUCER, TopicId(4), Sequence(0), (3,), place, place, version=3, newest="0@0"
    )  # fmt: skip
