"""Apps and listeners whose server went back in time: they stop in words, and go on when told to."""

import secrets
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from oncemq import App, Client, HistoryLost, testing
from oncemq.storage.disk import LocalDisk
from oncemq.storage.segments.layout import raise_generation
from tests.harness.waiting import until_true

TOPIC, READER = "orders", "shop.orders"


class Site:
    """A server on one data directory that is put back to where it was."""

    def __init__(self, home: Path) -> None:
        self.data, self.backup = home / "data", home / "backup"
        self.state = home / "state"

    def back_up(self) -> None:
        shutil.copytree(self.data, self.backup)

    def go_back(self) -> None:
        """A restore: the log goes on from the backup, under another generation."""
        shutil.rmtree(self.data)
        shutil.copytree(self.backup, self.data)
        raise_generation(LocalDisk(), str(self.data), secrets.token_bytes)

    def cursor(self, address: str) -> int:
        """Where the server has the reader."""
        with Client(address, timeout=20) as client:
            (found,) = client.subscriptions(TOPIC, READER)
            return found.cursor


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def put(address: str, *payloads: bytes) -> None:
    with Client(address, timeout=20) as client:
        assert client.put_many(TOPIC, list(payloads))[0].stored


def obey(error: HistoryLost) -> None:
    """Run the command that the error ends with."""
    _, _, command = error.detail.partition(" and run: ")
    once, *arguments = shlex.split(command)
    assert once == "once"
    done = subprocess.run(
        [sys.executable, "-m", "oncemq", *arguments, "--yes"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "2 messages taken at 2 to 3 are lost; it goes on from 2" in done.stdout


class Shop:
    """An app that notes what it handles."""

    def __init__(self, site: Site) -> None:
        self.app, self.handled = App(id="shop", state=site.state), list[bytes]()

        @self.app.handler(TOPIC)
        def take(order: bytes) -> None:
            self.handled.append(order)

    def handle(self, address: str, *payloads: bytes) -> None:
        wanted = len(self.handled) + len(payloads)
        with self.app.running(server=address):
            put(address, *payloads)
            until_true(lambda: len(self.handled) == wanted, f"{wanted} orders")


def test_an_app_stops_with_the_command_settles_nothing_and_goes_on_once_told_to(
    site: Site,
) -> None:
    shop = Shop(site)
    with testing.server(data=site.data) as address:
        shop.handle(address, b"1", b"2")
    site.back_up()
    with testing.server(data=site.data) as address:
        shop.handle(address, b"3", b"4")
    site.go_back()
    with testing.server(data=site.data) as address:
        put(address, b"5", b"6", b"7")
        told = pytest.raises(HistoryLost, match="orders@2 to orders@3")
        with told as lost, shop.app.running(server=address):
            pytest.fail("it must not begin")
        assert (shop.handled, site.cursor(address)) == ([b"1", b"2", b"3", b"4"], 2)
        obey(lost.value)
        with shop.app.running(server=address):
            until_true(lambda: len(shop.handled) >= 7, "seven orders")
        assert shop.handled == [b"%d" % number for number in range(1, 8)]
        assert site.cursor(address) == 5


def test_a_listener_stops_likewise(site: Site) -> None:
    def listen(address: str, count: int) -> list[bytes]:
        found: list[bytes] = []
        with Client(address, id=READER, state=site.state / READER, timeout=20) as client:
            client.subscribe(TOPIC)
            if not count:
                return found
            for message in client.listen(TOPIC):
                found.append(message.payload)
                if len(found) == count:
                    # Asked for the next, a listener settles this one: it ends here instead.
                    break
            client.get(TOPIC, limit=1)  # what was not settled by the end of the listening
        return found

    with testing.server(data=site.data) as address:
        listen(address, 0)
        put(address, b"1", b"2")
        assert listen(address, 2) == [b"1", b"2"]
    site.back_up()
    with testing.server(data=site.data) as address:
        put(address, b"3", b"4")
        assert listen(address, 2) == [b"3", b"4"]
    site.go_back()
    with testing.server(data=site.data) as address:
        put(address, b"5", b"6", b"7")
        with pytest.raises(HistoryLost, match="orders@2 to orders@3") as lost:
            listen(address, 1)
        assert site.cursor(address) == 2
        obey(lost.value)
        assert listen(address, 3) == [b"5", b"6", b"7"]
