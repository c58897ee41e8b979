"""What everything does that must know when it is a copy in a forked process."""

import inspect
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from oncemq.client.aio.runner import AsyncRunner
from oncemq.client.blocking.runner import Runner
from oncemq.client.shell.forks import Forkable
from oncemq.errors import Forked

ERROR = Forked("this client was made by another process")


class Engine:
    """Notes that its connection, its journal and its outbox are not its own any more."""

    def __init__(self) -> None:
        self.disowned: list[Forked] = []
        self.closed = True  # nothing is left to close for those who are collected
        self.descriptors: tuple[int, ...] = ()

    def disown(self, error: Forked) -> None:
        self.disowned.append(error)

    def check_open(self) -> None:
        if self.disowned:
            raise self.disowned[0]

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"a copy touches the engine's {name}")


KINDS: dict[str, Callable[[Any, float], Any]] = {"blocking": Runner, "awaited": AsyncRunner}


@pytest.fixture(params=list(KINDS))
async def turns(request: pytest.FixtureRequest) -> AsyncIterator[Any]:
    turns = KINDS[request.param](Engine(), 1.0)
    yield turns
    if isinstance(turns, Runner):
        turns._bell.close()


async def test_a_copy_is_closed_and_has_disowned_what_is_the_parents(turns: Any) -> None:
    forkable: Forkable = turns
    assert not turns.closed
    before = turns.getting
    forkable.forked(ERROR)
    assert turns.closed
    assert turns._engine.disowned == [ERROR]
    assert turns.getting is not before  # whoever was getting is in the parent


async def test_every_verb_of_a_copy_says_why_not(turns: Any) -> None:
    turns.forked(ERROR)

    def verb() -> Any:
        raise AssertionError("a copy begins nothing")
        yield

    with pytest.raises(Forked, match="another process"):
        await _carried_out(turns, verb())


async def _carried_out(turns: Any, verb: Any) -> None:
    answer = turns.run(verb)
    if inspect.isawaitable(answer):
        await answer
