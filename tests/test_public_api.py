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
    assert public_exceptions(), "oncemq.errors defines no public exception"
    assert sorted(oncemq.__all__) == sorted(names)


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
