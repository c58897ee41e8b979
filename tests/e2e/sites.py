"""A server on one data directory that copies are put back to, and clients with state."""

import secrets
import shutil
import subprocess
from pathlib import Path

from oncemq import Client
from oncemq.client.admin.accepting import ClientFiles
from oncemq.storage.disk import LocalDisk
from oncemq.storage.segments.layout import raise_generation
from tests.e2e.conftest import (
    DEADLINE_SECONDS,
    ONCE,
    Ran,
    Serving,
    clean_environment,
    start_server,
    stop_server,
)


class Site:
    """A server that is stopped and started on one data directory, and clients with state."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.data = home / "data"
        self.serving: Serving | None = None
        self.start()

    def start(self, port: str = "") -> None:
        bind = ("--bind", f"tcp://127.0.0.1:{port}") if port else ()
        self.serving = start_server(self.home, *bind, data=self.data)

    def keep(self, name: str) -> None:
        """A copy of the data directory under this name; the server is stopped for it."""
        self.stop()
        shutil.rmtree(self.home / name, ignore_errors=True)
        shutil.copytree(self.data, self.home / name)

    def serve(self, name: str) -> None:
        """Go on with that copy, as a person who moves directories does."""
        self.stop()
        shutil.rmtree(self.data)
        shutil.copytree(self.home / name, self.data)
        self.start()

    def stop(self) -> None:
        if self.serving is not None:
            assert stop_server(self.serving) == 0
        self.serving = None

    @property
    def address(self) -> str:
        assert self.serving is not None
        return self.serving.address

    def client(self, name: str) -> Client:
        return Client(self.address, id=name, state=self.home / name, timeout=DEADLINE_SECONDS)

    def put(self, count: int, text: str, client: str = "shop") -> None:
        with self.client(client) as shop:
            shop.put("t", f"{text} 0".encode())
            shop.put_many("t", [f"{text} {number}".encode() for number in range(1, count)])

    def take(self, client: str = "reader") -> list[str]:
        with self.client(client) as reader:
            messages = []
            while got := reader.get("t", limit=1000):
                messages += got
        return [message.payload.decode() for message in messages]

    def once(self, *arguments: str) -> Ran:
        command = [*ONCE, *arguments]
        done = subprocess.run(
            command,
            capture_output=True,
            env=clean_environment(self.home),
            cwd=self.home,
            timeout=DEADLINE_SECONDS,
            check=False,
        )
        return Ran(done.returncode, done.stdout, done.stderr.decode())

    def move(self, *clients: str) -> None:
        """What `once client accept --yes` does, without a process for it."""
        for client in clients:
            with ClientFiles(client, self.home / client, secrets.token_bytes) as files:
                loss = files.look(self.address, DEADLINE_SECONDS)
                assert not loss.is_nothing
                files.accept(loss)

    def accept(self, client: str, *more: str) -> Ran:
        where = "--id", client, "--state", str(self.home / client), "--server", self.address
        return self.once("client", "accept", *where, *more)


def restore(site: Site, name: int = 7) -> None:
    """What a documented restore does: an older copy, with the generation raised."""
    site.stop()
    shutil.rmtree(site.data)
    shutil.copytree(site.home / "copy", site.data)
    raise_generation(LocalDisk(), str(site.data), lambda count: name.to_bytes(count, "little"))
    site.start()


def put_back(site: Site) -> None:
    """An older copy put back by hand, without a word to anybody."""
    site.serve("copy")
