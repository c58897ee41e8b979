"""Both clients have the same verbs: names, parameters, defaults, and what is said about them."""

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from oncemq import AsyncClient, Client
from oncemq.client.aio.getting import AsyncGetting
from oncemq.client.aio.pending import AwaitedReceipt
from oncemq.client.aio.runner import AsyncRunner, LoopLock
from oncemq.client.aio.transactions import AsyncStage, AsyncTransaction
from oncemq.client.blocking.getting import Getting
from oncemq.client.blocking.runner import Runner
from oncemq.client.blocking.transactions import Stage, Transaction
from oncemq.client.pending import Pending
from oncemq.client.shell.signals import SignalSafeLock
from tools.unasync import blocking_text

USED = [(AsyncClient, Client), (AsyncTransaction, Transaction), (AsyncStage, Stage)]


def public(kind: type) -> dict[str, Any]:
    """What users see of a class; and how it is made, and used in `with`."""
    special = {"__init__", "__aenter__", "__aexit__", "__enter__", "__exit__", "__repr__"}
    return {
        blocking_text(name): inspect.getattr_static(kind, name)
        for name in dir(kind)
        if not name.startswith("_") or (name in special and hasattr(kind, "close"))
    }


def shape(member: Any) -> list[tuple[str, Any, Any, str]]:
    """The parameters of a verb, with their types in the blocking shell's names."""
    if isinstance(member, property):
        member = member.fget
    parameters = inspect.signature(member).parameters.values()
    return [(e.name, e.kind, e.default, blocking_text(str(e.annotation))) for e in parameters]


@pytest.mark.parametrize(("awaited", "blocking"), USED)
def test_the_two_have_the_same_names_parameters_and_defaults(awaited: type, blocking: type) -> None:
    ours, theirs = public(awaited), public(blocking)
    assert list(ours) == list(theirs)
    assert {name: shape(each) for name, each in ours.items()} == {
        name: shape(each) for name, each in theirs.items()
    }
    kinds = [{name: isinstance(e, property) for name, e in each.items()} for each in (ours, theirs)]
    assert kinds[0] == kinds[1]


@pytest.mark.parametrize(("awaited", "blocking"), USED)
def test_the_two_say_the_same_about_them(awaited: type, blocking: type) -> None:
    ours, theirs = public(awaited), public(blocking)
    for name, each in ours.items():
        assert blocking_text(inspect.getdoc(each) or "") == (inspect.getdoc(theirs[name]) or "")
    assert awaited.__doc__
    assert blocking_text(awaited.__doc__) == blocking.__doc__


def test_the_two_give_the_same() -> None:
    for name, each in public(AsyncClient).items():
        member = public(Client)[name]
        if not isinstance(each, property) and name not in ("put", "put_many"):
            given = str(inspect.signature(each).return_annotation)
            assert blocking_text(given) == str(inspect.signature(member).return_annotation)
    for name in ("put", "put_many"):  # but for a receipt that is still to come
        assert "asyncio.Future[" in str(inspect.signature(getattr(AsyncClient, name)))
        assert "Pending[" in str(inspect.signature(getattr(Client, name)))


def test_only_the_one_is_awaited() -> None:
    def waits(member: Any) -> bool:
        inner = inspect.unwrap(member) if callable(member) else member
        return inspect.iscoroutinefunction(inner) or inspect.isasyncgenfunction(inner)

    assert not any(waits(each) for each in public(Client).values())
    at_once = {name for name, each in public(AsyncClient).items() if not waits(each)}
    assert at_once == {"__init__", "__repr__", "counters", "id", "listen", "stage", "unsent"}


# What is written by hand in both shells: the generated code calls the same names of it


def verbs(kind: type, *names: str) -> dict[str, list[Any]]:
    return {name: [each[:3] for each in shape(getattr(kind, name))] for name in names}


RUN = ("__init__", "begin", "check", "run", "wait_until", "pump", "see_out", "close", "forked")


@pytest.mark.parametrize(
    ("awaited", "blocking", "names"),
    [(AsyncRunner, Runner, RUN), (AsyncGetting, Getting, ("block", "add"))],
)
def test_what_differs_by_hand_is_called_the_same_way(
    awaited: type, blocking: type, names: tuple[str, ...]
) -> None:
    assert verbs(awaited, *names) == verbs(blocking, *names)


def test_receipts_to_come_are_made_of_the_same() -> None:
    ours, theirs = (
        [name.lstrip("_") for name in inspect.signature(kind).parameters]
        for kind in (AwaitedReceipt, Pending)
    )
    assert ours == theirs


@pytest.mark.parametrize("lock", [lambda: LoopLock(lambda: None), SignalSafeLock])
def test_each_shell_has_a_lock_and_a_plain_one(lock: Callable[[], Any]) -> None:
    held = lock()
    with held, held.plain, held:
        pass
