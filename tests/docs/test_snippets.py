"""What the documents show runs as it stands: their programs, and the commands of `once`.

The Python blocks of a document are one program, in their order; a block that begins with a file's
name is that file. Only the server's address is another. Spark's lines are run by `tests/spark`.
"""

import ast
import os
import re
import shlex
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import click
import pytest

from oncemq import Client
from oncemq.cli.main import cli
from oncemq.cli.terminal.command import GLOBAL
from tests.e2e.processes import environment, until

pytestmark = pytest.mark.slow  # each program and each command is a process

HOME = Path(__file__).parent.parent.parent
ADDRESS = "tcp://127.0.0.1:5556"
PAST = "ANCESTRY.md"  # names commands that there were
DOCUMENTS = [
    "README.md",
    *(f"docs/{each.name}" for each in sorted((HOME / "docs").glob("*.md")) if each.name != PAST),
]


def blocks(document: str, language: str) -> list[str]:
    """The fenced blocks of a document."""
    text = (HOME / document).read_text("utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


def unpack(document: str, server: str, directory: Path) -> Path:
    """Write what a document shows: its files, and the program that the other blocks make."""
    program: list[str] = []
    for block in blocks(document, "python"):
        block = block.replace(ADDRESS, server)
        ast.parse(block)
        named = re.match(r"# (\w+\.py)\n", block)
        if named:
            (directory / named[1]).write_text(block, "utf-8")
        elif "oncemq.spark" not in block:
            program.append(block)
    path = directory / "program.py"
    path.write_text("\n".join(program), "utf-8")
    return path


def python(*arguments: str | Path, directory: Path) -> str:
    ran = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, cwd=directory,
        env=environment(directory), timeout=120, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@contextmanager
def running(
    *arguments: str, directory: Path, env: dict[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    """A process that goes on until it is stopped, which it takes well."""
    with subprocess.Popen(
        [sys.executable, *arguments], stdout=subprocess.PIPE, text=True, cwd=directory,
        env=env or environment(directory), preexec_fn=os.setpgrp,
    ) as process:  # fmt: skip
        try:
            yield process
        finally:
            process.send_signal(signal.SIGINT)
        process.wait(60)


def rows(directory: Path, sql: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(directory / "shop.db", timeout=30)) as database:
        try:
            return database.execute(sql).fetchall()
        except sqlite3.OperationalError:
            return []  # the table is not there yet


def test_the_readme_is_a_program(oncemq_server: str, tmp_path: Path) -> None:
    said = python(unpack("README.md", oncemq_server, tmp_path), directory=tmp_path)
    assert said.splitlines()[:2] == ["orders@0 False", "orders@0 b'one espresso'"]
    assert said.splitlines()[-1] == "shops.7.orders@0"
    assert rows(tmp_path, "SELECT payload FROM bills") == [(b"one cake",)]
    with (
        running("-m", "oncemq", "relay", "shop.db", "--server", oncemq_server, directory=tmp_path),
        Client(oncemq_server, id="biller", state=tmp_path / ".local/state/oncemq/biller") as mq,
    ):
        got = [message.payload for message in mq.get("orders", limit=9, wait=30)]
        assert got[-1] == b"7: two teas"
        assert [each.payload for each in mq.get("bills", wait=5)] == [b"a bill for one soda"]


@pytest.mark.parametrize("document", ["README.md", "docs/APPS.md"])
def test_the_app_of_a_document_runs(document: str, oncemq_server: str, tmp_path: Path) -> None:
    unpack(document, oncemq_server, tmp_path)
    with (
        running("-m", "oncemq", "run", "shop:app", directory=tmp_path) as app,
        Client(oncemq_server) as mq,
    ):
        assert app.stdout is not None
        assert app.stdout.readline() == "once run: shop is ready; handlers: shop.orders\n"
        mq.put("orders", b'{"id": 1, "cups": 2}', required=True)
        until(lambda: len(rows(tmp_path, "SELECT * FROM orders")) == 1, what="it took effect")


@pytest.mark.parametrize("document", ["docs/TRANSACTIONS.md", "docs/OUTBOX.md"])
def test_a_document_is_a_program(document: str, oncemq_server: str, tmp_path: Path) -> None:
    with Client(oncemq_server) as mq:
        mq.subscribe("orders")
        python(unpack(document, oncemq_server, tmp_path), directory=tmp_path)
        assert mq.get("orders", wait=30)


def test_the_inbox_of_its_document_runs(oncemq_server: str, tmp_path: Path) -> None:
    program = unpack("docs/EFFECT_ONCE.md", oncemq_server, tmp_path)
    with Client(oncemq_server) as mq, running(str(program), directory=tmp_path):
        until(lambda: bool(mq.topics()) and mq.topics()[0].subscriptions == 1, what="it is there")
        mq.put("orders", b"one cake", required=True)
        until(lambda: rows(tmp_path, "SELECT * FROM bills") == [("orders@0", b"one cake")])


def test_the_tests_of_their_document_pass(oncemq_server: str, tmp_path: Path) -> None:
    unpack("docs/APPS.md", oncemq_server, tmp_path)
    program = unpack("docs/TESTING_YOUR_CODE.md", oncemq_server, tmp_path)
    program.rename(tmp_path / "test_shop.py")
    said = python("-m", "pytest", "-q", "-p", "no:cacheprovider", ".", directory=tmp_path)
    assert "3 passed" in said


@pytest.mark.timeout(500)  # a benchmark is among them
def test_the_commands_of_the_readme_run(tmp_path: Path) -> None:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{found.getsockname()[1]}"
    env = environment(tmp_path) | {"ONCEMQ_SERVER": address, "ONCEMQ_BIND": address}
    once = f"{shlex.quote(sys.executable)} -m oncemq"
    (_, console) = blocks("README.md", "console")
    lines = [line[2:].partition("  #")[0] for line in console.splitlines() if line.startswith("$ ")]
    assert lines[0] == "once serve &"
    with running("-m", "oncemq", "serve", directory=tmp_path, env=env) as server:
        assert server.stdout is not None
        assert server.stdout.readline().startswith("once serve: ready at ")
        for line in lines[1:]:
            command = re.sub(r"\bonce\b", once, line)
            if line.startswith("once listen"):
                words = shlex.split(line)[1:]
                with running("-m", "oncemq", *words, directory=tmp_path, env=env) as listening:
                    assert listening.stdout is not None
                    assert listening.stdout.readline() == "one latte\n"
                continue
            ran = subprocess.run(
                ["bash", "-c", f"set -e -o pipefail; {command}"], cwd=tmp_path, env=env,
                capture_output=True, text=True, timeout=400, check=False,
            )  # fmt: skip
            assert ran.returncode == 0, f"{line}: {ran.stdout}{ran.stderr}"


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_command_that_a_document_names_is_there(document: str) -> None:
    text = (HOME / document).read_text("utf-8")
    told = re.findall(r"(?:`|\$ )once ([a-z][^`\n;&]*)", text)
    missing = [words for words in told if not _is_there(words)]
    assert missing == []


def _is_there(words: str) -> bool:
    """Whether `once` has the command, and the command its options."""
    words = words.partition("  #")[0].replace("…", " ")
    names, *rest = words.split()
    group: click.Command = cli
    for word in [names, *rest]:
        if not isinstance(group, click.Group):
            break
        several = [group.get_command(click.Context(group), each) for each in word.split("|")]
        if None in several:
            return group.name == "relay"  # a database, which is run
        group = next(each for each in several if each is not None)
    options = re.findall(r"(?<!\S)(--[a-z-]+)", words)
    known = {name for each in (*group.params, *GLOBAL) for name in each.opts}
    if group.name == "relay":
        assert isinstance(group, click.Group)
        run = group.get_command(click.Context(group), "run")
        known |= {name for each in run.params for name in each.opts} if run else set()
    return all(option in known for option in options)
