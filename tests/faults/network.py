"""A network of this machine's own: hosts with addresses and network stacks apart, cut as one likes.

Each host is a network namespace with one address, on a bridge that the tests' own process is on,
too. A cut is of one direction: the host that sends is told a hardware address for the receiver that
nobody has, so its packets leave and reach nobody. Neither end is told, as with a broken switch.

Law: what was made goes with the block, also when this process dies without a word.
"""

import ctypes
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import product
from pathlib import Path

HERE = "here"  # the host of the tests' own process; it is never cut
NOBODY = "02:00:00:00:00:00"
CLONE_NEWNET = 0x40000000
NETWORKS = 250  # at a time, on one machine

# The links first: a namespace that is deleted is gone a moment later, with its links.
_WARDEN = """trap "" INT TERM; read -r _
for each in $1; do ip link del "$each"; done
for each in $2; do ip netns del "$each"; done"""


class Network:
    """Hosts that reach each other, but for what was cut."""

    def __init__(self, hosts: Sequence[str]) -> None:
        self.hosts = tuple(hosts)
        self._number = _bridged()
        self._bridge = _name(self._number)
        links = [self._bridge, *map(self._end, hosts)]
        spaces = map(self.namespace, hosts)
        self._warden = subprocess.Popen(
            ["sh", "-c", _WARDEN, "warden", " ".join(links), " ".join(spaces)],
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        _ip(
            f"address add {self.address(HERE)}/24 dev {self._bridge}",
            f"link set {self._bridge} up",
            *(each for host in hosts for each in self._joining(host)),
        )
        for host in hosts:
            _ip(
                f"address add {self.address(host)}/24 dev wire",
                "link set wire up",
                "link set lo up",
                namespace=self.namespace(host),
            )

    def address(self, host: str) -> str:
        """Where the others reach it."""
        place = 1 if host == HERE else 10 + self.hosts.index(host)
        return f"198.18.{self._number}.{place}"

    def namespace(self, host: str) -> str:
        """The name of its network namespace."""
        return f"{self._bridge}-{host}"

    def cut(self, senders: Sequence[str], receivers: Sequence[str]) -> None:
        """What these send does not reach those any more; the other direction goes on."""
        for sender, receiver in product(senders, receivers):
            if sender != receiver:
                _ip(
                    f"neighbor replace {self.address(receiver)} lladdr {NOBODY} nud permanent "
                    "dev wire",
                    namespace=self.namespace(sender),
                )

    def slow(self, host: str, megabits: int) -> None:
        """What this host sends leaves at this speed from now on."""
        rate = ["rate", f"{megabits}mbit", "burst", "128kb", "latency", "50ms"]
        space = ["-n", self.namespace(host)]
        subprocess.run(
            ["tc", *space, "qdisc", "replace", "dev", "wire", "root", "tbf", *rate], check=True
        )

    def part(self, one: str, others: Sequence[str] = ()) -> None:
        """Cut in both directions; from everybody, if from nobody in particular."""
        others = others or self.hosts
        self.cut([one], others)
        self.cut(others, [one])

    def heal(self) -> None:
        """Everybody reaches everybody."""
        for host in self.hosts:
            _ip("neighbor flush all nud permanent dev wire", namespace=self.namespace(host))

    def close(self) -> None:
        """Nothing of it is left; connections that still use it end."""
        self._warden.communicate()

    def _joining(self, host: str) -> list[str]:
        space, end = self.namespace(host), self._end(host)
        return [
            f"netns add {space}",
            f"link add {end} type veth peer name wire netns {space}",
            f"link set {end} master {self._bridge} up",
        ]

    def _end(self, host: str) -> str:
        return f"{self._bridge}.{self.hosts.index(host)}"


@contextmanager
def network(*hosts: str) -> Iterator[Network]:
    """One for a while."""
    made = Network(hosts)
    try:
        yield made
    finally:
        made.close()


def enter(namespace: str) -> None:
    """This process is on that host from now on; before it has threads or sockets."""
    with (Path("/run/netns") / namespace).open() as opened:
        if ctypes.CDLL(None, use_errno=True).setns(opened.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"no way into the namespace {namespace}")


@cache
def why_no_network() -> str | None:
    """Why there can be no such network here; None when there can. It tries."""
    if sys.platform != "linux":
        return f"needs Linux, this is {sys.platform}"
    if os.geteuid() != 0:
        return "needs root, to make network namespaces"
    if shutil.which("ip") is None or shutil.which("nsenter") is None:
        return "ip or nsenter is not installed (iproute2, util-linux)"
    try:
        with network("one", "two") as made:
            made.cut(["one"], ["two"])
            made.heal()
    except subprocess.CalledProcessError as error:
        return f"ip failed: {error.stderr.strip()}"
    return None


def _bridged() -> int:
    """The number of a network that nobody else has: two processes may look at one moment."""
    for number in range(1, NETWORKS):
        try:
            _ip(f"link add {_name(number)} type bridge")
        except subprocess.CalledProcessError as error:
            if "exists" not in error.stderr:
                raise
        else:
            return number
    raise AssertionError(f"all of {NETWORKS} networks are taken: see `ip link`")


def _name(number: int) -> str:
    return f"once{number}"


def _ip(*commands: str, namespace: str = "") -> None:
    inside = ["-n", namespace] if namespace else []
    subprocess.run(
        ["ip", *inside, "-batch", "-"],
        input="\n".join(commands),
        capture_output=True,
        text=True,
        check=True,
    )
