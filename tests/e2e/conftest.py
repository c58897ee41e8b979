"""A real server for the session, and `once` as a shell would run it."""

import os
import selectors
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

DEADLINE_SECONDS = 30
ONCE = [sys.executable, "-m", "oncemq"]
COMPILED = tempfile.TemporaryDirectory()  # so that hundreds of starts compile once


@dataclass(frozen=True)
class Ran:
    """What came of a command."""

    code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        return self.out.decode()


@dataclass
class Serving:
    """A server process, its address and its data directory."""

    process: subprocess.Popen[bytes]
    address: str
    data: Path
    ready_line: str


def clean_environment(home: Path, **more: str) -> dict[str, str]:
    """The environment of a user without settings, whose home is `home`."""
    dropped = ("ONCEMQ_", "XDG_", "NO_COLOR", "PYTHONDONTWRITEBYTECODE")
    kept = {name: text for name, text in os.environ.items() if not name.startswith(dropped)}
    return kept | {"HOME": str(home), "USER": "ada", "PYTHONPYCACHEPREFIX": COMPILED.name, **more}


def first_line(process: subprocess.Popen[bytes]) -> str:
    """The first line on stdout, or a failure that shows stderr."""
    assert process.stdout is not None
    assert process.stderr is not None
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        if selector.select(DEADLINE_SECONDS) and (line := process.stdout.readline()):
            return line.decode().rstrip("\n")
    process.kill()
    pytest.fail(f"no line came: {process.stderr.read().decode()}")


def start_server(directory: Path, *options: str, data: Path | None = None) -> Serving:
    """`once serve` on a free port, ready."""
    data = data or directory / "data"
    process = subprocess.Popen(
        [*ONCE, "serve", "--data", str(data), "--bind", "tcp://127.0.0.1:*", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=clean_environment(directory),
        cwd=directory,
    )
    line = first_line(process)
    address = line.partition("ready at ")[2].partition(",")[0]
    assert address.startswith("tcp://127.0.0.1:"), line
    return Serving(process, address, data, line)


def stop_server(serving: Serving) -> int:
    """SIGTERM, and the exit code."""
    serving.process.send_signal(signal.SIGTERM)
    serving.process.communicate(timeout=DEADLINE_SECONDS)
    return serving.process.returncode


@pytest.fixture(scope="session")
def once_server() -> Iterator[Serving]:
    """One server for every test that does not hurt it; tests use topics of their own."""
    with tempfile.TemporaryDirectory() as directory:
        serving = start_server(Path(directory))
        yield serving
        assert stop_server(serving) == 0


Once = Callable[..., Ran]


@pytest.fixture
def once(once_server: Serving, tmp_path: Path) -> Once:
    """Run `once` against the server, as a user with an empty home."""

    def run(*arguments: str | bytes, stdin: bytes = b"", **environ: str) -> Ran:
        settings = {"ONCEMQ_SERVER": once_server.address, **environ}
        done = subprocess.run(
            [*ONCE, *arguments],
            input=stdin,
            capture_output=True,
            env=clean_environment(tmp_path, **settings),
            cwd=tmp_path,
            timeout=DEADLINE_SECONDS,
            check=False,
        )
        return Ran(done.returncode, done.stdout, done.stderr.decode())

    return run


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic that no other test uses."""
    return request.node.name.removeprefix("test_")
