"""A range that is read by columns: dense, in order, from where it was asked for, or refused."""

from typing import Any

import pytest

from oncemq.client.verbs.columns import RangeLost, RangeRead
from oncemq.errors import Corrupt
from oncemq.protocol.names import (
    Epoch,
    Micros,
    Offset,
    ProducerId,
    Sequence,
    SubscriptionId,
    TopicId,
)
from oncemq.protocol.records import Run
from oncemq.protocol.replies import BatchHead, LostMessages, Messages
from oncemq.wire import batch

PRODUCER = ProducerId(b"p" * 16)


def reply(*stretches: tuple[int, int], lost: tuple[int, int] | None = None) -> tuple[Any, Any]:
    """Batches from an offset on, of so many messages each."""
    heads, bodies = [], []
    for first, count in stretches:
        body = batch.encode_payloads([b"x"] * count)
        checksum = batch.checksum(body, batch.seed("t", PRODUCER, 1, count))
        run = Run(count, PRODUCER, Epoch(1), Sequence(1), Micros(1))
        heads.append(
            BatchHead("t", TopicId(1), SubscriptionId(0), Offset(first), count, 0, checksum, (run,))
        )
        bodies.append(body)
    holes = (LostMessages("t", TopicId(1), Offset(lost[0]), Offset(lost[1])),) if lost else ()
    return Messages(tuple(heads), more=False, lost=holes), bodies


def came(world: Any, answer: tuple[Any, Any]) -> tuple[list[tuple[int, int]], str]:
    """What a reader of t@5 up to @20 makes of an answer, and where it goes on."""
    wanted = RangeRead(world.client().engine, "t", start=5, stop=20)
    wanted.ask()
    wanted.ticket.fill(wanted._take(*answer))
    found = wanted.came()
    return [(each.first_offset, each.end_offset) for each in found], wanted.place


def test_consecutive_batches_are_taken_and_the_range_goes_on_behind_them(world: Any) -> None:
    assert came(world, reply((5, 2), (7, 3), (10, 1))) == ([(5, 7), (7, 10), (10, 11)], "t@11")


def test_nothing_where_the_topic_ends_is_the_end_of_the_range(world: Any) -> None:
    assert came(world, reply()) == ([], "t@20")


@pytest.mark.parametrize(
    "stretches",
    [[(4, 3)], [(6, 2)], [(5, 0)], [(5, 2), (8, 1)], [(5, 2), (5, 2)], [(5, 2), (6, 1)]],
)
def test_what_does_not_go_on_where_it_should_is_refused(
    world: Any, stretches: list[tuple[int, int]]
) -> None:
    with pytest.raises(Corrupt, match="was asked for"):
        came(world, reply(*stretches))


def test_a_hole_that_begins_here_is_told_with_its_end(world: Any) -> None:
    for lost in ((5, 9), (2, 6)):
        with pytest.raises(RangeLost, match=f"t@{lost[0]} up to @{lost[1]} is lost") as told:
            came(world, reply(lost=lost))
        assert (told.value.end_offset, told.value.code) == (lost[1], "messages_lost")


def test_a_hole_before_the_range_is_nothing_to_it(world: Any) -> None:
    assert came(world, reply((5, 1), lost=(2, 5))) == ([(5, 6)], "t@6")
