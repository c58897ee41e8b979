"""What an application of a simulation does that is told that the server's disk is full."""

from collections.abc import Iterator

import pytest

from oncemq.errors import NotSubscribed, OnceMQError, StorageFull
from simulator.actors.calls import Work, at_once, until_there_is_room


def _run(answers: list[OnceMQError | None]) -> Iterator[str]:
    """What it does, step by step: one attempt for each answer, and the pauses between them."""
    done: list[str] = []
    left = iter(answers)

    def begin() -> Work[None]:
        done.append("asks")
        yield at_once
        if (error := next(left)) is not None:
            raise error

    def pause() -> Work[None]:
        done.append("waits")
        yield at_once

    for _ in until_there_is_room(begin, pause):
        yield done.pop(0)


def test_who_is_told_that_there_is_no_room_asks_again_until_there_is_some() -> None:
    assert list(_run([None])) == ["asks"]
    assert list(_run([StorageFull("full"), StorageFull("full"), None])) == [
        "asks", "waits", "asks", "waits", "asks",
    ]  # fmt: skip


def test_any_other_refusal_is_the_answer() -> None:
    steps = _run([StorageFull("full"), NotSubscribed("not subscribed"), None])
    assert [next(steps), next(steps), next(steps)] == ["asks", "waits", "asks"]
    with pytest.raises(NotSubscribed):
        next(steps)
