"""Three servers of a cluster as processes, and one etcd that they agree through.

One member of etcd is enough here: no message goes through it, and two processors are few.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from benchmarks.lab import Lab
from oncemq import Client
from oncemq.cli.demo.process import ServerChild
from oncemq.errors import OnceMQError

ROOT = Path(__file__).resolve().parents[2]
SERVERS = ("a", "b", "c")
PATIENCE = 90.0


class Missing(Exception):
    """Something to measure beside is not here; the words say how to have it."""


def etcd_program() -> str:
    """The one that `make etcd` built, or the machine's."""
    built = ROOT / "build" / "etcd" / "etcd"
    places = [each for each in os.get_exec_path() if Path(each) != Path(sys.executable).parent]
    found = str(built) if built.exists() else shutil.which("etcd", path=os.pathsep.join(places))
    if found is None:
        raise Missing("no cluster: `make etcd` builds an etcd, or put one on PATH")
    return found


def free_port() -> int:
    """One that nobody listens on just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def until(is_so: Callable[[], Any], what: str, seconds: float = PATIENCE) -> Any:
    """Wait for it; an error when it does not come."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := is_so():
            return found
        time.sleep(0.02)
    raise Missing(f"it took more than {seconds:g} s until {what}")


def answers(port: int) -> bool:
    """Whether somebody listens there."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def process(command: list[str], log: Path) -> Generator["subprocess.Popen[bytes]"]:
    """A program until the block ends."""
    with log.open("ab") as words:
        running = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=words, stderr=words)
    try:
        yield running
    finally:
        running.kill()
        running.wait()


@contextmanager
def etcd(directory: Path) -> Generator[str]:
    """A member; its address."""
    port, peer = free_port(), f"http://127.0.0.1:{free_port()}"
    address = f"http://127.0.0.1:{port}"
    command = [
        *(etcd_program(), "--name", "m", "--log-level", "warn", "--data-dir", str(directory / "m")),
        *("--listen-client-urls", address, "--advertise-client-urls", address),
        *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
        *("--initial-cluster", f"m={peer}"),
    ]
    with process(command, directory / "etcd.log"):
        until(lambda: answers(port), "etcd answers")
        yield address


class ClusterServers:
    """All of them, while the block lasts."""

    def __init__(self, directory: Path, etcd_address: str, options: tuple[str, ...]) -> None:
        more = ("--sync", "always", "--cluster", "bench", "--etcd", etcd_address, *options)
        self.servers = {
            name: ServerChild(directory / name, "--server-id", name, *more) for name in SERVERS
        }

    @property
    def addresses(self) -> list[str]:
        """What a client is given."""
        return [server.address for server in self.servers.values()]

    def facts(self, name: str) -> dict[str, Any]:
        """What a server says of itself; nothing, if it does not answer."""
        with suppress(OnceMQError), Client(self.servers[name].address, timeout=1.0) as client:
            return dict(client.status())
        return {}

    def leader(self) -> str | None:
        """Who serves."""
        alive = [name for name in SERVERS if self.servers[name].running]
        leads = [name for name in alive if self.facts(name).get("cluster_role") == "leads"]
        return leads[0] if leads else None

    def until_in_sync(self) -> str:
        """Everybody is; who leads."""

        def are() -> str | None:
            leader = self.leader()
            facts = {} if leader is None else self.facts(leader)
            others = [name for name in SERVERS if name != leader]
            return leader if all(facts.get(f"member.{each}.in_sync") for each in others) else None

        return str(until(are, "all servers are in sync"))

    def cpu_seconds(self, leader: str) -> tuple[float, float]:
        """Of the leader, and of a follower at the mean."""
        others = [each.cpu_seconds for name, each in self.servers.items() if name != leader]
        return self.servers[leader].cpu_seconds, sum(others) / len(others)

    def pause(self, name: str, *, on: bool) -> None:
        """Freeze a server, or let it go on."""
        os.kill(self.servers[name].pid, signal.SIGSTOP if on else signal.SIGCONT)


@contextmanager
def cluster(lab: Lab, *options: str) -> Iterator[ClusterServers]:
    """Three servers, all in sync."""
    with ExitStack() as stack:
        directory = stack.enter_context(lab.scratch())
        address = stack.enter_context(etcd(directory))
        servers = ClusterServers(directory, address, options)
        for server in servers.servers.values():
            stack.callback(server.kill)
            server.start()
        for server in servers.servers.values():
            server.ready()
        servers.until_in_sync()
        yield servers
