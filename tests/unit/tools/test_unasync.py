"""The blocking shells are the asyncio ones without their waiting, and say who wrote them."""

from pathlib import Path

import pytest

from tools import unasync

SOURCE = '''"""The asyncio shop; `async with` opens it."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable

from oncemq.shop.aio.tills import AsyncTill
from oncemq.shop.doors import awaited


class AsyncShop:
    """Sells."""

    async def __aenter__(self) -> "AsyncShop":
        return self

    async def sell(self, till: AsyncTill, ask: Callable[[int], Awaitable[int]]) -> int:
        """What `await ask(1)` says."""
        async with till.open() as drawer:  # and waits
            drawer.total = await ask(1)
        return await awaited(till.close(drawer))

    async def all(self) -> AsyncGenerator[asyncio.Future[int]]:
        async for each in self.kept():
            yield each
'''
TARGET = '''# Generated from shop/aio/shop.py by tools/unasync.py; do not edit.
"""The blocking shop; `with` opens it."""

from collections.abc import Callable, Generator

from oncemq.shop.blocking.tills import Till


class Shop:
    """Sells."""

    def __enter__(self) -> "Shop":
        return self

    def sell(self, till: Till, ask: Callable[[int], int]) -> int:
        """What `ask(1)` says."""
        with till.open() as drawer:  # and waits
            drawer.total = ask(1)
        return till.close(drawer)

    def all(self) -> Generator[Pending[int]]:
        yield from self.kept()
'''


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of one pair; the file that is generated in it."""
    package = tmp_path / unasync.PACKAGE / "shop"
    for shell in ("aio", "blocking"):
        (package / shell).mkdir(parents=True)
    (package / "aio/shop.py").write_text(SOURCE, "utf-8")
    monkeypatch.setattr(unasync, "ROOT", tmp_path)
    monkeypatch.setattr(unasync, "PAIRS", {"shop/aio/shop.py": "shop/blocking/shop.py"})
    return package / "blocking/shop.py"


def test_the_waiting_goes_and_the_names_follow_in_code_and_words(shop: Path) -> None:
    assert unasync.main([]) == 0
    assert shop.read_text("utf-8") == TARGET


def test_a_check_complains_of_a_file_that_is_not_in_step_and_writes_nothing(
    shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert unasync.main(["--check"]) == 1
    assert not shop.exists()
    shop.write_text(TARGET.replace("Sells.", "Sells a lot."), "utf-8")
    assert unasync.main(["--check"]) == 1
    said = capsys.readouterr().out
    assert "shop/blocking/shop.py is not in step with shop/aio/shop.py: run 'make format'" in said
    assert '-    """Sells a lot."""' in said
    shop.write_text(TARGET, "utf-8")
    assert unasync.main(["--check"]) == 0


def test_the_shells_of_this_package_are_in_step(capsys: pytest.CaptureFixture[str]) -> None:
    assert unasync.main(["--check"]) == 0, capsys.readouterr().out


@pytest.mark.parametrize("source", unasync.PAIRS)
def test_what_is_written_keeps_the_limits_that_what_is_generated_need_not(source: str) -> None:
    assert len((unasync.ROOT / unasync.PACKAGE / source).read_text("utf-8").splitlines()) <= 400
