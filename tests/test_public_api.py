"""What others build on: the names of the package, the commands, the typing marker, the version."""

import inspect
import re
import subprocess
import sys
import tomllib
from importlib import metadata, resources
from pathlib import Path

import pytest

import oncemq
from oncemq import errors

COMMANDS = (
    "serve subscribe unsubscribe put get listen topics topic subscriptions status bench audit "
    "demo config relay"
).split()


def public_exceptions() -> set[str]:
    """Every exception that `oncemq.errors` defines and does not hide."""
    return {
        name
        for name, member in inspect.getmembers(errors, inspect.isclass)
        if issubclass(member, Exception)
        and member.__module__ == errors.__name__
        and not name.startswith("_")
    }


def once(*arguments: str) -> str:
    command = [sys.executable, "-m", "oncemq", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout


@pytest.fixture(scope="module")
def listed_commands() -> list[str]:
    """The first word of each line below `Commands:`."""
    _, _, below = once("--help").partition("Commands:\n")
    return re.findall(r"^ {2}([a-z-]+)\b", below, flags=re.MULTILINE)


def test_the_package_offers_exactly_its_public_names() -> None:
    names = {"Client", "AsyncClient", "Message", "Receipt", "__version__", *public_exceptions()}
    names |= {"App", "inbox_schema", "outbox", "outbox_schema", "Relay"}
    names |= {"Commit", "Pending", "Receipts", "Retention"}
    names |= {"SubscriptionInfo", "TopicInfo", "TopicShown"}
    assert public_exceptions(), "oncemq.errors defines no public exception"
    assert sorted(oncemq.__all__) == sorted(names)


@pytest.mark.parametrize("verb", ["topics", "topic", "subscriptions", "put", "put_many", "commit"])
def test_what_the_verbs_give_is_public(verb: str) -> None:
    for kind in (oncemq.Client, oncemq.AsyncClient):
        given = str(inspect.signature(getattr(kind, verb)).return_annotation)
        inner = set(re.findall(r"oncemq\.[\w.]*?(\w+)(?=[\[\] |,'>]|$)", given))
        assert inner
        assert inner <= set(oncemq.__all__), inner


def verbs_of(kind: type) -> dict[str, list[tuple[str, object, object]]]:
    """What users call, with its parameters."""
    return {
        name: [
            (each.name, each.kind, each.default)
            for each in inspect.signature(verb).parameters.values()
        ]
        for name, verb in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_")
    }


def test_the_asyncio_client_has_every_verb_of_the_blocking_one() -> None:
    blocking, awaited = verbs_of(oncemq.Client), verbs_of(oncemq.AsyncClient)
    assert blocking == awaited
    assert {"get", "transaction", "read_columns", "lease", "flush"} <= set(blocking)
    for kind in (oncemq.Client, oncemq.AsyncClient):
        properties = {
            name
            for name, each in inspect.getmembers(kind, lambda it: isinstance(it, property))
            if not name.startswith("_")
        }
        assert properties == {"id", "unsent", "counters"}


@pytest.mark.parametrize("name", sorted(set(oncemq.__all__) - {"__version__"}))
def test_what_users_hold_shows_itself(name: str) -> None:
    kind = getattr(oncemq, name)
    if isinstance(kind, type) and not issubclass(kind, Exception):
        assert kind.__repr__ is not object.__repr__


def test_a_client_without_a_server_asks_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONCEMQ_SERVER", "elsewhere:1234,other:1")
    with oncemq.Client() as client:
        assert "tcp://elsewhere:1234" in repr(client)
    monkeypatch.delenv("ONCEMQ_SERVER")
    with oncemq.Client() as client:
        assert "tcp://127.0.0.1:5556" in repr(client)


def test_every_public_name_is_there() -> None:
    assert [name for name in oncemq.__all__ if not hasattr(oncemq, name)] == []


def test_the_package_carries_its_types() -> None:
    assert resources.files("oncemq").joinpath("py.typed").is_file()


def test_the_version_has_one_source() -> None:
    project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text("utf-8"))
    assert oncemq.__version__ == metadata.version("oncemq") == project["project"]["version"]
    assert oncemq.__version__ in once("--version")


@pytest.mark.parametrize("command", COMMANDS)
def test_the_command_line_has(command: str, listed_commands: list[str]) -> None:
    assert command in listed_commands
