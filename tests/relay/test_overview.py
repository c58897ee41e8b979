"""What a person is shown of an outbox, and what `retry` does to it, row by row."""

from contextlib import closing
from typing import Any

import msgspec
import pytest

from oncemq.protocol.names import ProducerId
from oncemq.relay.database import RelayDatabase
from oncemq.relay.overview import TopicOverview, overview, retry
from oncemq.relay.tables import RelayTables
from tests.relay.homes import Home

UNWANTED = "unwanted: nobody would get the messages"
TOPICS = (  # topic, acknowledged, planned, stopped
    ("freed", 9, "", ""),
    ("stopped", 7, "", "because"),
    ("unwanted", 3, "", UNWANTED),
    ("wanted by nobody once", 2, "", UNWANTED),
)
ROWS = (  # topic, why it was set aside, when it was written
    ("new", None, "2026-01-02 00:00:00+00"),
    ("new", None, "2026-01-01 00:00:00+00"),
    ("set aside", None, "2026-01-03 00:00:00+00"),
    ("set aside", "too large", "2026-01-04 00:00:00+00"),
    ("set aside", "also too large", "2026-01-05 00:00:00+00"),
    ("stopped", None, "2026-01-06 00:00:00+00"),
    ("stopped", "no headers", "2026-01-07 00:00:00+00"),
    ("unwanted", None, "2026-01-08 00:00:00+00"),
)


def quoted(text: str | None) -> str:
    return "NULL" if text is None else f"'{text}'"


@pytest.fixture
def used(home: Home) -> Home:
    """An outbox with a topic of each sort."""
    blob = "BLOB" if home.kind == "sqlite3" else "bytea"
    for topic, acknowledged, planned, stopped in TOPICS:
        home.look(
            "INSERT INTO oncemq_outbox_topics (topic, producer, topic_id, acknowledged, planned, "
            f"planned_place, last_place, stopped, version) VALUES ('{topic}', "
            f"CAST('p' AS {blob}), 4, {acknowledged}, '{planned}', 5, 6, '{stopped}', 8)"
        )
    for topic, failed, written in ROWS:
        home.look(
            "INSERT INTO oncemq_outbox (topic, payload, failed, written) "
            f"VALUES ('{topic}', '', {quoted(failed)}, '{written}')"
        )
    return home


def standings(home: Home) -> list[tuple[Any, ...]]:
    return home.look(
        "SELECT topic, topic_id, acknowledged, planned, last_place, stopped, version "
        "FROM oncemq_outbox_topics ORDER BY topic"
    )


def set_aside(home: Home) -> list[tuple[Any, ...]]:
    return home.look("SELECT topic, failed FROM oncemq_outbox WHERE failed IS NOT NULL ORDER BY id")


def go_on(home: Home, *topics: str, anew: bool = False) -> list[str]:
    fresh = (lambda: ProducerId(b"0123456789abcdef")) if anew else None
    with closing(RelayDatabase(home.connect)) as desk:
        return desk.run(retry(RelayTables(desk.kind), topics, fresh))


def test_every_topic_is_shown_with_what_waits_and_why(used: Home) -> None:
    written = dict(used.look("SELECT topic, min(written) FROM oncemq_outbox GROUP BY topic"))
    with closing(RelayDatabase(used.connect)) as desk:
        found = desk.run(overview(RelayTables(desk.kind)))
    assert [each.oldest for each in found] == [str(written.get(each.topic, "")) for each in found]
    assert [msgspec.structs.replace(each, oldest="") for each in found] == [
        TopicOverview("freed", 0, 0, 9, False, "", ""),
        TopicOverview("new", 2, 0, 0, False, "", ""),
        TopicOverview("set aside", 1, 2, 0, False, "also too large", ""),
        TopicOverview("stopped", 1, 1, 7, True, "because", ""),
        TopicOverview("unwanted", 1, 0, 3, False, UNWANTED, "", unwanted=True),
        TopicOverview("wanted by nobody once", 0, 0, 2, False, "", ""),
    ]


def test_every_stopped_topic_and_every_row_set_aside_goes_on(used: Home) -> None:
    assert go_on(used) == ["set aside", "stopped", "unwanted", "wanted by nobody once"]
    assert standings(used) == [
        ("freed", 4, 9, "", 6, "", 8),
        ("stopped", 4, 7, "", 6, "", 9),
        ("unwanted", 4, 3, "", 6, "", 9),
        ("wanted by nobody once", 4, 2, "", 6, "", 9),
    ]
    assert set_aside(used) == []
    assert go_on(used) == []


def test_only_the_topics_named_go_on(used: Home) -> None:
    assert go_on(used, "stopped", "new", "none") == ["stopped"]
    assert [stopped for *_, stopped, _ in standings(used)] == ["", "", UNWANTED, UNWANTED]
    assert set_aside(used) == [("set aside", "too large"), ("set aside", "also too large")]


def test_anew_begins_the_numbers_of_what_was_stopped_and_of_nothing_else(used: Home) -> None:
    assert go_on(used, "stopped", "set aside", "freed", anew=True) == ["set aside", "stopped"]
    assert standings(used) == [
        ("freed", 4, 9, "", 6, "", 8),
        ("stopped", 0, 0, "", 6, "", 9),
        ("unwanted", 4, 3, "", 6, UNWANTED, 8),
        ("wanted by nobody once", 4, 2, "", 6, UNWANTED, 8),
    ]
    producers = used.look("SELECT topic, producer FROM oncemq_outbox_topics ORDER BY topic")
    assert bytes(dict(producers)["stopped"]) == b"0123456789abcdef"
    assert set_aside(used) == []


def test_a_retry_that_fails_half_way_changes_nothing(used: Home) -> None:
    before = (standings(used), set_aside(used))
    fresh = [ProducerId(b"0123456789abcdef")]  # for the first of three topics
    with closing(RelayDatabase(used.connect)) as desk:
        with pytest.raises(IndexError):
            desk.run(retry(RelayTables(desk.kind), (), fresh.pop))
        assert desk.run(RelayTables(desk.kind).topics()), "the connection is free for others"
        assert (standings(used), set_aside(used)) == before
