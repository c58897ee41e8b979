"""What the server has lost, in words: the numbers are those that a person looks for."""

import shutil
from pathlib import Path

import pytest

from oncemq.client.lost_history import (
    NAMED_MAX,
    LostHistory,
    cursor_in_words,
    goes_on_at,
    numbers_in_words,
    what_is_lost,
)
from oncemq.client.verbs import messages
from oncemq.errors import HistoryLost
from oncemq.protocol.client_replies import LostCommits, LostCursor
from oncemq.protocol.names import Offset
from oncemq.protocol.replies import NO_OFFSET
from oncemq.session.publisher import GUEST_MICROS


def cursor(
    topic: str = "orders", *, known: int = 9, agreed: int = 7, stands: int = 7, end: int = 7
) -> LostCursor:
    return LostCursor(topic, Offset(known), Offset(agreed), Offset(stands), Offset(end))


@pytest.mark.parametrize(
    ("lost", "words", "offset"),
    [
        (cursor(), "orders@7 to orders@8", 7),
        (cursor(known=8), "orders@7 to orders@7", 7),
        (cursor(stands=3), "orders@7 to orders@8", 7),
        (
            cursor(agreed=NO_OFFSET, stands=5, end=6),
            "'orders' (this client stands at @9, the topic ends at @6)",
            5,
        ),
        (
            cursor(agreed=NO_OFFSET, stands=NO_OFFSET),
            "'orders' (the subscription that stood at @9 is not there)",
            None,
        ),
    ],
)
def test_a_cursor_is_told_with_what_is_gone_and_goes_on_behind_it(
    lost: LostCursor, words: str, offset: int | None
) -> None:
    assert cursor_in_words(lost) == words
    assert goes_on_at(lost) == offset


def test_topics_are_named_up_to_a_number_and_the_others_counted() -> None:
    topics = [cursor(f"t{number}") for number in range(NAMED_MAX + 2)]
    named = "; ".join(f"t{number}@7 to t{number}@8" for number in range(NAMED_MAX))
    before = ". It does not have what this client took: "
    assert what_is_lost(LostHistory(topics[:NAMED_MAX], [], [])) == before + named
    assert what_is_lost(LostHistory(topics, [], [])) == f"{before}{named}; and 2 topics more"
    assert what_is_lost(LostHistory([], [], [])) == ""


def test_transactions_are_counted_over_all_owners() -> None:
    lost = LostHistory([], [LostCommits("a", 9, 7), LostCommits("b", 4, 3)], [])
    assert "up to 3 transactions" in what_is_lost(lost)
    assert "what this client took" not in what_is_lost(lost)


@pytest.mark.parametrize(("last", "count"), [(3, "1 message "), (4, "2 messages ")])
def test_puts_are_counted_and_numbered(last: int, count: str) -> None:
    words = numbers_in_words("orders", 3, last)
    assert f": {count}" in words
    assert f"(its numbers 3 to {last})" in words


def go_back(world, shop, backup: Path) -> None:
    world.server.log.close()
    shutil.rmtree(world.server.directory)
    shutil.copytree(backup, world.server.directory)
    world.server.start()
    shop.wire.cut()
    shop.wire.mend()


@pytest.mark.parametrize(
    ("lasting", "passed", "told"),
    [
        (True, 0, True),
        (True, GUEST_MICROS + 1_000, True),
        (False, 0, True),
        (False, GUEST_MICROS - 1_000_000, True),
        (False, GUEST_MICROS + 1_000, False),  # the server may have forgotten it, as it may
    ],
)
def test_lost_puts_are_told_unless_they_are_a_guests_of_long_ago(
    world, lasting: bool, passed: int, told: bool
) -> None:
    reader, shop = world.client("reader"), world.client("shop")
    reader.turn()
    reader.run(messages.subscribe(reader.engine, "orders", "new"))
    shop.put("orders", b"1", lasting=lasting)
    shop.turn()
    backup = world.directory / "backup"
    shutil.copytree(world.server.directory, backup)
    shop.put("orders", b"2", lasting=lasting)
    shop.turn()
    go_back(world, shop, backup)
    world.server.now += passed
    shop.put("orders", b"3", lasting=lasting)
    shop.turn(12)
    assert isinstance(shop.engine.failure, HistoryLost) == told
    assert (world.server.stored("orders") == [b"1", b"3"]) == (not told)
