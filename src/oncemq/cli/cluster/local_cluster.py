"""A cluster on one machine: its processes, which are started again when they end.

How it works. A directory has a plan (`cluster.json`: how many there are, and at which ports), a
directory for each member of etcd and each server, and `logs`. A second start goes on with all of
it. Whoever watches calls `tick`; a process that ends is started again after a pause that grows
while it ends at once.

Law: one process at a time has the directory (an flock); what was started ends with it, also when it
is killed (Linux).
"""

import ctypes
import fcntl
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from oncemq.cli.cluster.etcd_program import EtcdProgram
from oncemq.cli.demo.process import environment_without_settings
from oncemq.errors import ConfigError, Locked

CLUSTER = "dev"
HOST = "127.0.0.1"
PLAN = "cluster.json"
ETCD_MEMBERS = 3
FIRST_SERVER_PORT, SERVER_PORTS = 5556, 10  # between two: their feeds have any that is free
FIRST_ETCD_PORT = 2379
STOP_SECONDS = 20.0
PAUSE_SECONDS, PAUSE_SECONDS_MAX = 0.5, 10.0
SETTLED_SECONDS = 10.0  # who lived so long did not end at once
WORDS_BYTES = 400

Tell = Callable[[str], object]


class LocalPlan(msgspec.Struct, frozen=True):
    """Where everything listens; written once."""

    servers: tuple[int, ...]
    etcd: tuple[tuple[int, int], ...]  # of each member: for clients, for its peers

    @property
    def addresses(self) -> list[str]:
        """Of the servers."""
        return [f"tcp://{HOST}:{port}" for port in self.servers]

    @property
    def etcd_addresses(self) -> list[str]:
        """Of etcd, for its clients."""
        return [f"http://{HOST}:{port}" for port, _ in self.etcd]


class LocalProcess:
    """One of them, in all its lives."""

    def __init__(self, name: str, arguments: Sequence[str], log: Path, pause: float) -> None:
        self.name, self.log, self._pause_min = name, log, pause
        self._arguments = list(arguments)
        self._process: subprocess.Popen[bytes] | None = None
        self._began, self._pause = 0.0, 0.0
        self.starts_at: float | None = None  # it ended, and is started again then

    @property
    def pid(self) -> int:
        """Its number; of its last life."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Begin a life."""
        self.starts_at, self._began = None, time.monotonic()
        with open(self.log, "ab") as log:
            self._process = subprocess.Popen(
                self._arguments,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment_without_settings(),
                start_new_session=True,  # Ctrl-C is for who watches: servers end before etcd
                preexec_fn=_end_with_parent,
            )

    def ended(self, now: float) -> str | None:
        """How it ended, once for each life; it is to be started again at `starts_at`."""
        process = self._process
        if process is None or self.starts_at is not None or process.poll() is None:
            return None
        lived = now - self._began
        settled = lived > SETTLED_SECONDS or not self._pause
        self._pause = self._pause_min if settled else min(self._pause * 2, PAUSE_SECONDS_MAX)
        self.starts_at = now + self._pause
        code = process.returncode
        if code < 0:
            return signal.Signals(-code).name
        return f"exit code {code}: {self.last_words()}"

    def last_words(self) -> str:
        """The last line that it logged."""
        with open(self.log, "rb") as stream:
            stream.seek(max(0, stream.seek(0, os.SEEK_END) - WORDS_BYTES))
            lines = stream.read().decode("utf-8", "replace").splitlines()
        return lines[-1].strip() if lines else "nothing"

    def signal(self, number: signal.Signals) -> None:
        """To who still runs."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def wait(self, seconds: float) -> bool:
        """Whether it has ended within so long."""
        if self._process is not None:
            try:
                self._process.wait(max(0.0, seconds))
            except subprocess.TimeoutExpired:
                return False
        return True


class LocalCluster:
    """All processes of a directory, from their start to their end."""

    def __init__(
        self,
        directory: Path,
        servers: int,
        etcd: EtcdProgram,
        tell: Tell,
        *,
        pause: float = PAUSE_SECONDS,
    ) -> None:
        self.directory, self._tell, self._pause = directory, tell, pause
        (directory / "logs").mkdir(parents=True, exist_ok=True)
        (directory / "settings.toml").touch()  # so that no file of the user's is read
        self._lock = _locked(directory)
        self.plan, self.is_new = _planned(directory, servers)
        self.etcd = [self._member(number, etcd) for number in range(1, len(self.plan.etcd) + 1)]
        self.servers = [self._server(number) for number in range(1, len(self.plan.servers) + 1)]

    @property
    def processes(self) -> list[LocalProcess]:
        """All of them, in the order that they are started in."""
        return [*self.etcd, *self.servers]

    def tick(self) -> None:
        """Who ended is started again, and that is said."""
        now = time.monotonic()
        for each in self.processes:
            if (how := each.ended(now)) is not None:
                self._tell(f"once: {each.name} ended ({how}), and is started again")
            elif each.starts_at is not None and now >= each.starts_at:
                each.start()

    def stop(self) -> None:
        """Servers first, so that a leader can give the lead away; then etcd."""
        for group in (self.servers, self.etcd):
            for each in group:
                each.signal(signal.SIGTERM)
            deadline = time.monotonic() + STOP_SECONDS
            for each in group:
                if not each.wait(deadline - time.monotonic()):
                    self._tell(f"once: {each.name} does not end, and is killed")
                    each.signal(signal.SIGKILL)
                    each.wait(STOP_SECONDS)
        os.close(self._lock)

    def _member(self, number: int, etcd: EtcdProgram) -> LocalProcess:
        name = f"etcd-{number}"
        clients, peers = self.plan.etcd[number - 1]
        everybody = ",".join(
            f"etcd-{each}=http://{HOST}:{port}" for each, (_, port) in enumerate(self.plan.etcd, 1)
        )
        here = f"http://{HOST}:{clients}", f"http://{HOST}:{peers}"
        arguments = [
            *(etcd.path, "--name", name, "--data-dir", str(self.directory / name)),
            *("--listen-client-urls", here[0], "--advertise-client-urls", here[0]),
            *("--listen-peer-urls", here[1], "--initial-advertise-peer-urls", here[1]),
            *("--initial-cluster", everybody, "--log-level", "warn"),
            *("--auto-compaction-mode", "periodic", "--auto-compaction-retention", "1h"),
        ]
        return LocalProcess(name, arguments, self._log(name), self._pause)

    def _server(self, number: int) -> LocalProcess:
        name = f"s{number}"
        arguments = [
            *(sys.executable, "-m", "oncemq", "serve"),
            *("--config", str(self.directory / "settings.toml")),
            *("--data", str(self.directory / name), "--bind", self.plan.addresses[number - 1]),
            *("--cluster", CLUSTER, "--server-id", name),
            *("--etcd", ",".join(self.plan.etcd_addresses)),
        ]
        return LocalProcess(name, arguments, self._log(name), self._pause)

    def _log(self, name: str) -> Path:
        return self.directory / "logs" / f"{name}.log"


def _locked(directory: Path) -> int:
    lock = os.open(directory / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise Locked(
            f"another `once cluster dev` has {directory} open: use that one, or give this one a "
            "directory of its own with --dir"
        ) from None
    return lock


def _planned(directory: Path, servers: int) -> tuple[LocalPlan, bool]:
    """Where all of it listens, and whether that is new; ConfigError: not here, and why."""
    path = directory / PLAN
    if path.exists():
        plan = msgspec.json.decode(path.read_bytes(), type=LocalPlan)
        if len(plan.servers) != servers:
            raise ConfigError(
                f"the cluster in {directory} has {len(plan.servers)} servers: say --servers "
                f"{len(plan.servers)}, or give this one a directory of its own with --dir"
            )
        _must_be_free([*plan.servers, *(port for pair in plan.etcd for port in pair)], directory)
        return plan, False
    taken: set[int] = set()
    plan = LocalPlan(
        tuple(_port(FIRST_SERVER_PORT + SERVER_PORTS * i, taken) for i in range(servers)),
        tuple(
            (_port(at, taken), _port(at + 1, taken))
            for at in range(FIRST_ETCD_PORT, FIRST_ETCD_PORT + 10 * ETCD_MEMBERS, 10)
        ),
    )
    path.write_bytes(msgspec.json.format(msgspec.json.encode(plan)) + b"\n")
    return plan, True


def _must_be_free(ports: Sequence[int], directory: Path) -> None:
    if busy := [port for port in ports if not _is_free(port)]:
        raise ConfigError(
            f"another process listens on {', '.join(map(str, busy))}, which the cluster in "
            f"{directory} has used since it was made: stop that process, or use another --dir"
        )


def _port(usual: int, taken: set[int]) -> int:
    """The usual port, or another that is free."""
    found = usual
    while found in taken or not _is_free(found):
        with socket.socket() as probe:
            probe.bind((HOST, 0))
            found = probe.getsockname()[1]
    taken.add(found)
    return found


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except (OSError, OverflowError):
            return False
    return True


def _end_with_parent() -> None:
    """Where the system knows how: nobody is left behind by a parent that is killed."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, int(signal.SIGTERM))
