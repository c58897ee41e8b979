"""The plugin in a project of somebody else: found, cheap, each test with a server of its own."""

import os
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from textwrap import dedent

import pytest

from oncemq import AsyncClient, Client
from oncemq.testing.chaos import Chaos
from oncemq.testing.embedded import chaotic_server

ROOT = Path(__file__).parents[2]
PLUGIN = "oncemq.testing.plugin"


def pytest_in(directory: Path, source: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run a test file in a directory that knows nothing of this repository."""
    (directory / "test_theirs.py").write_text(dedent(source))
    (directory / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", PLUGIN, "-p", "no:cacheprovider"]
    return subprocess.run(
        [*command, *options],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
        env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
    )


def test_pytest_finds_it_by_its_entry_point() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["entry-points"]["pytest11"] == {PLUGIN: PLUGIN}


def test_a_test_run_that_does_not_use_it_does_not_pay_for_it() -> None:
    shown = "import sys, oncemq.testing.plugin; print(*sys.modules)"
    command = [sys.executable, "-c", shown]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert PLUGIN in loaded
    assert {"zmq", "msgspec", "sqlite3", "oncemq.assembly"}.isdisjoint(loaded)


def test_the_server_is_ready_in_under_300_ms(tmp_path: Path) -> None:
    quickest = 1.0
    for attempt in range(5):  # the machine may be busy with something else
        begun = time.monotonic()
        with chaotic_server(tmp_path / str(attempt), Chaos()) as address, Client(address) as mq:
            mq.status()
            quickest = min(quickest, time.monotonic() - begun)
    assert quickest < 0.3


def test_a_client_with_an_id_leaves_nothing_in_the_users_home(
    oncemq_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with Client(oncemq_server, id="billing") as mq:
        mq.subscribe("orders")
    assert list(tmp_path.iterdir()) == []


async def test_it_serves_asyncio_tests(oncemq_server: str) -> None:
    async with AsyncClient(oncemq_server) as mq:
        await mq.subscribe("orders")
        await mq.put("orders", b"tea")
        assert [each.payload for each in await mq.get("orders", wait=10)] == [b"tea"]


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_failed_test_says_what_was_injected_and_how_to_have_it_again(tmp_path: Path) -> None:
    ran = pytest_in(
        tmp_path,
        """
        from oncemq import Client

        def test_that_fails(oncemq_server, oncemq_chaos):
            oncemq_chaos.duplicate_requests(times=1)
            with Client(oncemq_server) as mq:
                mq.subscribe("orders")
            assert oncemq_chaos.seed == 1
        """,
        "--oncemq-seed",
        "42",
    )
    assert ran.returncode == 1
    assert "duplicate request 1; the same again: --oncemq-seed 42" in ran.stdout.replace(">", "")


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_it_works_with_xdist_and_asyncio(tmp_path: Path) -> None:
    ran = pytest_in(
        tmp_path,
        """
        import pytest
        from oncemq import AsyncClient, Client

        @pytest.mark.parametrize("n", range(4))
        def test_alone(oncemq_client, oncemq_chaos, n):
            oncemq_chaos.crash_after_sync()
            mq = oncemq_client(id="billing")
            assert mq.subscribe("orders"), "another test has been here"
            assert mq.put("orders", b"tea").offset == 0
            assert oncemq_chaos.injected["crash after sync"] == 1

        @pytest.mark.asyncio
        async def test_together(oncemq_server):
            async with AsyncClient(oncemq_server, id="billing") as mq:
                assert await mq.subscribe("orders")
                assert (await mq.put("orders", b"tea")).offset == 0
        """,
        "-n",
        "2",
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "5 passed" in ran.stdout
