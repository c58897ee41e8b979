"""One verb for both clients: scenarios are written once and run with each."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from oncemq import AsyncClient, Client, testing
from tests.e2e.processes import Nursery, Serving, running_nursery


class OnALoop:
    """An AsyncClient driven from a test without `await`: each verb runs on a loop of its own."""

    def __init__(self, server: str, **options: Any) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        try:
            self._client = self._run(self._open(server, options))
        except BaseException:
            self._end()
            raise

    def __getattr__(self, verb: str) -> Any:
        if verb.startswith("_"):
            raise AttributeError(verb)
        found = getattr(self._client, verb)
        if not callable(found):
            return found
        return lambda *args, **options: self._run(found(*args, **options))

    @contextmanager
    def consume(self, *args: Any, **options: Any) -> Iterator[Any]:
        block = self._client.consume(*args, **options)
        messages = self._run(block.__aenter__())
        try:
            yield messages
        except BaseException as error:
            self._run(block.__aexit__(type(error), error, None))
            raise
        self._run(block.__aexit__(None, None, None))

    def listen(self, *args: Any, **options: Any) -> Iterator[Any]:
        return self._each(self._client.listen(*args, **options))

    def close(self) -> None:
        self.__exit__(None)

    def __enter__(self) -> "OnALoop":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if not self._loop.is_closed():
            try:
                self._run(self._client.__aexit__(kind, None, None))
            finally:
                self._end()

    @staticmethod
    async def _open(server: str, options: dict[str, Any]) -> AsyncClient:
        return await AsyncClient(server, **options).__aenter__()

    def _each(self, things: AsyncGenerator[Any]) -> Iterator[Any]:
        nothing = object()

        async def following() -> Any:
            return await anext(things, nothing)

        try:
            while (each := self._run(following())) is not nothing:
                yield each
        finally:
            self._run(things.aclose())

    def _run(self, awaitable: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(awaitable, self._loop).result()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


Connect = Callable[..., Any]


@pytest.fixture(params=["blocking", "asyncio"])
def kind(request: pytest.FixtureRequest) -> str:
    """Which of the two clients."""
    return request.param


@pytest.fixture
def connect(kind: str, tmp_path: Path) -> Iterator[Connect]:
    """`connect(address, "ada")`: a client of this kind with state, or without a name without."""
    opened: list[Any] = []

    def open_client(server: str, name: str | None = None, **options: Any) -> Any:
        if name is not None:
            options = {"id": name, "state": tmp_path / f"state-{name}", **options}
        make: Callable[..., AbstractContextManager[Any]] = Client if kind == "blocking" else OnALoop
        client = make(server, timeout=options.pop("timeout", 20), **options)
        opened.append(client)
        return client

    yield open_client
    for client in reversed(opened):
        client.close()


@pytest.fixture
def server() -> Iterator[str]:
    """The embedded real server."""
    with testing.server() as address:
        yield address


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    """Where processes come from."""
    with running_nursery() as nursery:
        yield nursery


@pytest.fixture
def serving(nursery: Nursery, tmp_path: Path) -> Iterator[Serving]:
    """A server process, ready, to be killed."""
    serving = Serving(nursery, tmp_path)
    serving.start()
    yield serving
    if not nursery.alone([serving.process]):
        serving.kill()
