"""The real server, embedded: `with oncemq.testing.server() as address:`."""

import tempfile
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from oncemq.assembly import Server
from oncemq.errors import PortInUse, StorageRefused
from oncemq.protocol.limits import ServerLimits
from oncemq.storage.log.log import LogOptions
from oncemq.testing.chaos import Chaos
from oncemq.testing.chaotic_disk import ChaoticDisk, Crashed
from oncemq.testing.chaotic_router import ChaoticRouter

ANY_PORT = "tcp://127.0.0.1:*"
PORT_SECONDS = 10.0  # how long a port of ours may take to be free again


@contextmanager
def server(
    data: Path | None = None,
    *,
    bind: str = ANY_PORT,
    rules: ServerLimits | None = None,
    options: LogOptions | None = None,
) -> Generator[str]:
    """Run a server on a thread of this process; its address. Drains and stops at the end.

    Without `data` it works in a directory of its own, which goes with it.
    """
    with tempfile.TemporaryDirectory(prefix="oncemq-") as scratch:
        embedded = Server(
            data or Path(scratch),
            bind,
            rules=rules or ServerLimits(),
            options=options or LogOptions(),
        )
        thread = threading.Thread(target=embedded.run, name="oncemq-server", daemon=True)
        thread.start()
        try:
            yield embedded.address
        finally:
            embedded.stop()
            thread.join()


@contextmanager
def chaotic_server(data: Path, chaos: Chaos) -> Generator[str]:
    """The same, at the mercy of `chaos`; it comes back by itself when it is made to crash."""
    embedded = _Phoenix(data, chaos)
    chaos.crash_now = embedded.crash
    thread = threading.Thread(target=embedded.run, name="oncemq-server", daemon=True)
    thread.start()
    try:
        yield embedded.address
    finally:
        embedded.stop()
        thread.join()
    if embedded.failure is not None:
        raise embedded.failure


class _Phoenix:
    """One server after the other, on the same address and data, until `stop`."""

    def __init__(self, data: Path, chaos: Chaos) -> None:
        self._data = data
        self._chaos = chaos
        self._lock = threading.Lock()
        self._stopped = False
        self.failure: Exception | None = None
        self._disk, self._server = self._start(ANY_PORT)
        self.address = self._server.address

    def run(self) -> None:
        """Serve, die, come back; what the chaos did not do is a failure of the server's own."""
        try:
            while not self._live():
                self._rise()
        except Exception as error:
            self.failure = error

    def stop(self) -> None:
        """Drain and end."""
        with self._lock:
            self._stopped = True
            self._server.stop()

    def crash(self) -> None:
        """Dead from here on; the next one rises by itself."""
        with self._lock:
            self._disk.crashed = True
            self._server.stop()

    def _live(self) -> bool:
        """One life; whether it was the last."""
        try:
            self._server.run()
        except (Crashed, StorageRefused):
            if not self._disk.crashed:
                raise
        finally:
            self._disk.bury()
        return self._stopped or not self._disk.crashed

    def _rise(self) -> None:
        deadline = time.monotonic() + PORT_SECONDS
        while True:
            with suppress(PortInUse):
                disk, server = self._start(self.address)
                break
            if time.monotonic() > deadline:
                raise PortInUse(f"{self.address} was not free again after a crash")
            time.sleep(0.01)
        with self._lock:
            self._disk, self._server = disk, server
            if self._stopped:
                server.stop()

    def _start(self, bind: str) -> tuple[ChaoticDisk, Server]:
        disk = ChaoticDisk(self._chaos)
        door = partial(ChaoticRouter, chaos=self._chaos, is_dead=lambda: disk.crashed)
        try:
            server = Server(
                self._data, bind, rules=ServerLimits(), options=LogOptions(), disk=disk, door=door
            )
        except BaseException:
            disk.bury()
            raise
        disk.armed = True
        return disk, server
