"""A server process under attack, with an honest client beside it, and what must hold meanwhile."""

import os
import select
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from oncemq import Client
from oncemq.protocol.replies import StatusReport
from oncemq.protocol.requests import Request, StatusRequest
from oncemq.wire import codec
from tests.e2e.conftest import Serving, start_server, stop_server
from tests.e2e.peer import peer
from tests.e2e.processes import free_port
from tests.harness.waiting import until_true
from tests.harness.zmtp import frame, hello, ready

MIB = 1 << 20
HONEST_TIMEOUT = 30.0  # far above what an attack may cost, far below "for good"


class HonestClient:
    """Puts and gets, one after the other, until it is told to stop."""

    def __init__(self, address: str, state: Path) -> None:
        self.rounds = 0
        self.fault: str = ""
        self._going = True
        self._address = address
        self._state = state
        self._thread = threading.Thread(target=self._run, name="honest", daemon=True)
        self._thread.start()

    def goes_on(self) -> None:
        """It gets through more rounds, without an error."""
        want = self.rounds + 3
        until_true(lambda: self.rounds >= want or self.fault, "the honest client goes on")
        assert not self.fault, self.fault

    def stop(self) -> None:
        self._going = False
        self._thread.join(HONEST_TIMEOUT + 10)
        assert not self.fault, self.fault

    def _run(self) -> None:
        try:
            with Client(
                self._address, id="honest", state=self._state, timeout=HONEST_TIMEOUT
            ) as mq:
                mq.subscribe("honest")
                while self._going:
                    payload = b"round %d" % self.rounds
                    mq.put("honest", payload)
                    got = [message.payload for message in mq.get("honest", limit=10, wait=5)]
                    assert got == [payload], got
                    self.rounds += 1
                    time.sleep(0.005)  # leave the attacker, in this process too, its turn
        except BaseException as error:
            self.fault = f"{type(error).__name__}: {error}"


class Ground:
    """One server process, an honest client, and the raw connections of an attacker."""

    def __init__(self, directory: Path, *options: str) -> None:
        self.feed_port = free_port()
        feed = f"tcp://127.0.0.1:{self.feed_port}"
        self.serving: Serving = start_server(directory, "--feed", feed, *options)
        self.pid = self.serving.process.pid
        self.host, port = self.serving.address.removeprefix("tcp://").rsplit(":", 1)
        self.port = int(port)
        self.honest = HonestClient(self.serving.address, directory / "state")
        self._raw: list[socket.socket] = []
        self.honest.goes_on()

    def close(self) -> None:
        """The honest client had no error, and the server ends as it is asked to."""
        self.hang_up()
        try:
            self.honest.stop()
        finally:
            assert stop_server(self.serving) == 0

    # what must hold

    @contextmanager
    def under_attack(self, *, memory: int, disk: int = 48 * MIB) -> Iterator[None]:
        """During the block and after it the server lives, serves, and takes no more than this."""
        self.honest.goes_on()
        resident, stored = self._memory("VmRSS"), self._disk()
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")  # the peak begins anew
        try:
            yield
            self.assert_serves()
            peak = self._memory("VmHWM")
        finally:
            self.hang_up()
        self.assert_serves()
        assert peak - resident <= memory, f"{peak >> 20} MiB at most, {resident >> 20} before"
        assert self._disk() - stored <= disk

    def assert_serves(self) -> None:
        """It lives; a stranger is answered, and the honest client goes on."""
        assert self.serving.process.poll() is None, self._last_words()
        with peer(self.serving.address) as stranger:
            assert isinstance(stranger.ask(StatusRequest()), StatusReport)
        self.honest.goes_on()

    def _last_words(self) -> str:
        assert self.serving.process.stderr is not None
        code = self.serving.process.returncode
        return f"the server ended with {code}: {self.serving.process.stderr.read()[-2000:]!r}"

    def _memory(self, field: str) -> int:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(field + ":"):
                return int(line.split()[1]) << 10
        raise AssertionError(field)

    def _disk(self) -> int:
        total = 0
        for path in self.serving.data.rglob("*"):
            with suppress(FileNotFoundError):  # a file that was just replaced
                total += path.stat().st_blocks * 512
        return total

    # the attacker

    def connect(self, port: int | None = None) -> socket.socket:
        """A bare connection; it hangs up when the attack is over."""
        link = socket.create_connection((self.host, port or self.port), timeout=10)
        self._raw.append(link)
        return link

    def join(
        self, kind: bytes = b"DEALER", port: int | None = None, *, identity: bytes | None = None
    ) -> socket.socket:
        """A raw ZMTP peer past its handshake."""
        link = self.connect(port)
        named = {} if identity is None else {b"Identity": identity}
        link.sendall(hello() + ready(kind, named))
        got = b""
        while len(got) < 64 + 2 + 20:
            piece = link.recv(4_096)
            assert piece, "closed in the handshake"
            got += piece
        return link

    def listen(self) -> socket.socket:
        """A raw SUB on the feed."""
        return self.join(b"SUB", self.feed_port)

    def hang_up(self) -> None:
        while self._raw:
            self._raw.pop().close()


def request(what: Request, body: bytes | None = None, token: int = 1) -> bytes:
    """A request as bytes on the wire."""
    *heads, last = [bytes(each) for each in codec.encode_request(token, what, body)]
    return b"".join(frame(each, more=True) for each in heads) + frame(last)


def request_of(opcode: int, fields: bytes, token: int = 1) -> bytes:
    """A request whose fields nobody encoded."""
    return frame(b"OQ\x01" + bytes((opcode,)) + struct.pack(">Q", token) + fields)


def pour(links: list[socket.socket], block: bytes, *, seconds: float, reading: bool = False) -> int:
    """Send it again and again, as fast as it is taken; how many bytes were."""
    sent, end = 0, time.monotonic() + seconds
    open_links = list(links)
    for link in open_links:
        link.setblocking(False)
    places = dict.fromkeys(open_links, 0)
    while open_links and time.monotonic() < end:
        readable, writable, _ = select.select(open_links if reading else (), open_links, (), 0.05)
        for link in readable:
            with suppress(OSError):
                link.recv(1 << 20)
        for link in writable:
            try:
                count = link.send(memoryview(block)[places[link] :])
            except BlockingIOError:
                continue
            except OSError:
                open_links.remove(link)  # it was hung up on: an answer too
                continue
            sent += count
            places[link] = (places[link] + count) % len(block)
    return sent


def reset(link: socket.socket) -> None:
    """Close with a reset."""
    link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    link.close()


def hung_up(link: socket.socket, seconds: float = 10.0) -> bool:
    """Whether the server closes it within that time."""
    link.settimeout(seconds)
    try:
        while link.recv(65_536):
            pass
    except TimeoutError:
        return False
    except OSError:
        pass
    return True


def random_bytes(count: int) -> bytes:
    """Some."""
    return os.urandom(count)
