"""Processes that tests start and kill: handles on the roles of `roles.py`, and a wire to cut.

Nothing here sleeps to wait for a state: `until` looks again until a deadline.
"""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from tests.e2e.roles import TORN

ROLES = Path(__file__).with_name("roles.py")
DEADLINE_SECONDS = 30.0

T = TypeVar("T")


def until(found: Callable[[], T], seconds: float = DEADLINE_SECONDS, *, what: str = "") -> T:
    """The first true value of `found`; fails after the deadline."""
    deadline = time.monotonic() + seconds
    while not (value := found()):
        assert time.monotonic() < deadline, f"did not come to be within {seconds} s: {what}"
        select.select((), (), (), 0.002)
    return value


def until_it_rests(
    look: Callable[[], T], done: Callable[[T], bool], seconds: float = DEADLINE_SECONDS,
    *, what: str = "",
) -> None:  # fmt: skip
    """Wait until it is done, as long as what one sees goes on changing; fails when it rests."""
    seen, deadline = look(), time.monotonic() + seconds
    while not done(seen):
        assert time.monotonic() < deadline, f"rests at {seen} for {seconds} s: {what}"
        select.select((), (), (), 0.01)
        if (now := look()) != seen:
            seen, deadline = now, time.monotonic() + seconds


def free_port() -> int:
    """A port nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Process:
    """One started role."""

    def __init__(self, nursery: "Nursery", pid: int, name: str, notes: Path, errors: Path) -> None:
        self._nursery = nursery
        self._notes = notes
        self._errors = errors
        self.pid = pid
        self.name = name

    @property
    def notes(self) -> list[list[Any]]:
        """What it (and its earlier lives under this name) noted."""
        return read_notes(self._notes)

    @property
    def errors(self) -> str:
        """What it wrote to stderr."""
        return self._errors.read_text() if self._errors.exists() else ""

    def noted(self, *start: Any) -> list[Any]:
        """Wait for a note that begins so."""

        def found() -> list[Any] | None:
            matching = [note for note in self.notes if tuple(note[: len(start)]) == start]
            return matching[-1] if matching else None

        return until(found, what=f"{self.name} notes {start}; {self.errors}")  # type: ignore[return-value]

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self._nursery.kill(self)

    def terminate(self) -> int:
        """SIGTERM, and the exit code."""
        return self._nursery.ask(do="signal", signal=signal.SIGTERM, pids=[self.pid])[0]

    def wait(self, seconds: float = DEADLINE_SECONDS) -> int:
        """The exit code, once it has ended by itself."""
        code = self._nursery.ask(do="wait", pids=[self.pid], seconds=seconds)
        assert code is not None, f"{self.name} has not ended after {seconds} s: {self.errors}"
        return code


class Nursery:
    """The parent of all roles: starts them in a directory, kills them, sees who died alone."""

    def __init__(self) -> None:
        self._parent = subprocess.Popen(
            [sys.executable, str(ROLES)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._started = 0

    def ask(self, **command: Any) -> Any:
        assert self._parent.stdin is not None
        assert self._parent.stdout is not None
        self._parent.stdin.write(json.dumps(command).encode() + b"\n")
        self._parent.stdin.flush()
        return json.loads(self._parent.stdout.readline())

    def start(self, role: str, name: str, directory: Path, **options: Any) -> Process:
        """A process that plays `role`; its notes go to `<name>.notes`."""
        notes, errors = directory / f"{name}.notes", directory / f"{name}.errors"
        options["notes"] = str(notes)
        pid = self.ask(do="start", role=role, options=options, errors=str(errors))
        return Process(self, pid, name, notes, errors)

    def kill(self, *processes: Process) -> None:
        """SIGKILL, all at once; it is a failure when one had ended before."""
        pids = [each.pid for each in processes]
        codes = self.ask(do="signal", signal=signal.SIGKILL, pids=pids)
        for process, code in zip(processes, codes, strict=True):
            assert code == -signal.SIGKILL, f"{process.name} ended alone: {process.errors}"

    def alone(self, processes: Sequence[Process]) -> list[Process]:
        """Those that ended without being killed."""
        codes = self.ask(do="poll", pids=[each.pid for each in processes])
        return [each for each, code in zip(processes, codes, strict=True) if code is not None]

    def close(self) -> None:
        self._parent.communicate(timeout=DEADLINE_SECONDS)


@contextmanager
def running_nursery() -> Iterator[Nursery]:
    """A nursery whose children end with the block."""
    nursery = Nursery()
    try:
        yield nursery
    finally:
        nursery.close()


class Serving:
    """A server process on one data directory and one port, started as often as it is killed."""

    def __init__(self, nursery: Nursery, directory: Path, **options: Any) -> None:
        self._nursery = nursery
        self._directory = directory
        self._options = options
        self._lives = 0
        self.address = f"tcp://127.0.0.1:{free_port()}"
        self.process: Process

    def begin(self) -> Process:
        """Start it; it may not be ready yet."""
        self._lives += 1
        self.process = self._nursery.start(
            "serve",
            f"server-{self._lives}",
            self._directory,
            bind=self.address,
            data=str(self._directory / "data"),
            **self._options,
        )
        return self.process

    def start(self) -> str:
        """Start it and wait until it listens; its address."""
        self.begin().noted("ready")
        return self.address

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()

    def stop(self) -> None:
        """SIGTERM: it ends what it accepted."""
        assert self.process.terminate() == 0, self.process.errors


class Relay:
    """A wire between clients and a server that can withhold the server's answers, or be cut."""

    def __init__(self, server: str) -> None:
        host, _, port = server.removeprefix("tcp://").rpartition(":")
        self._server = (host, int(port))
        self._door = socket.create_server(("127.0.0.1", 0))
        self.address = f"tcp://127.0.0.1:{self._door.getsockname()[1]}"
        self._pairs: dict[socket.socket, socket.socket] = {}
        self._near: set[socket.socket] = set()  # ends toward clients
        self._holding = False
        self._marker = b""
        self._refusing = False
        self._cutting = threading.Event()
        self._ended = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def hold_answers(self) -> None:
        """From now on answers do not come through; requests do."""
        self._holding = True

    def hold_answers_after(self, marker: bytes) -> None:
        """From the moment a request with these bytes goes through."""
        self._marker = marker

    def refuse(self) -> None:
        """Every connection ends, and no new one comes about until the next cut."""
        self._refusing = True
        self._drop_now()

    def cut(self) -> None:
        """Every connection ends, with what was withheld; new ones work again."""
        self._refusing = False
        self._drop_now()

    def _drop_now(self) -> None:
        self._cutting.set()
        until(lambda: not self._cutting.is_set(), what="the wire is cut")

    def close(self) -> None:
        self._ended = True
        self._thread.join()

    def _run(self) -> None:
        while not self._ended:
            readable, _, _ = select.select([self._door, *self._pairs], (), (), 0.005)
            if self._cutting.is_set():
                self._drop_all()
                self._holding, self._marker = False, b""
                self._cutting.clear()
                continue
            for each in readable:
                if each is self._door:
                    self._open(self._door.accept()[0])
                elif each in self._pairs:
                    self._pass_on(each)
        self._drop_all()
        self._door.close()

    def _open(self, near: socket.socket) -> None:
        if self._refusing:
            near.close()
            return
        try:
            far = socket.create_connection(self._server)
        except OSError:
            near.close()
            return
        self._pairs |= {near: far, far: near}
        self._near.add(near)

    def _pass_on(self, source: socket.socket) -> None:
        data = b""
        with suppress(OSError):
            data = source.recv(1 << 16)
        if not data:
            self._drop(source, self._pairs[source])
            return
        request = source in self._near
        if request and self._marker and self._marker in data:
            self._holding = True
        if request or not self._holding:
            with suppress(OSError):
                self._pairs[source].sendall(data)

    def _drop(self, *ends: socket.socket) -> None:
        for each in ends:
            del self._pairs[each]
            self._near.discard(each)
            each.close()

    def _drop_all(self) -> None:
        self._drop(*self._pairs)


@contextmanager
def relay(server: str) -> Iterator[Relay]:
    """A wire to a server."""
    wire = Relay(server)
    try:
        yield wire
    finally:
        wire.close()


def read_notes(path: Path) -> list[list[Any]]:
    """The facts in a file of notes, but for what a kill tore; none when there is no file yet."""
    if not path.exists():
        return []
    lines = path.read_text().split("\n")[:-1]
    return [json.loads(line) for line in lines if not line.endswith(TORN)]


def environment(home: Path) -> dict[str, str]:
    """Of a user without settings, for commands."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("ONCEMQ_")}
    return {**kept, "HOME": str(home)}
