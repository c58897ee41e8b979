"""The sockets of a server: limits that its machine and its largest batch allow, and where it is."""

import logging
import resource
from typing import Any

import pytest

from oncemq.errors import PortInUse, TooManyFiles
from oncemq.protocol.limits import ServerLimits
from oncemq.server import sockets
from oncemq.server.sockets import ServerSockets, warn_of_others
from oncemq.transport.serving.limits import ConnectionLimits

KEPT = 48
BATCH = 1_000


class Opened:
    """A socket that only notes where it is, and whether it is closed."""

    taken: frozenset[str] = frozenset()

    def __init__(self, address: str, *_: object, **__: object) -> None:
        if address in self.taken:
            raise PortInUse(address)
        self.address = address
        self.closed = False

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def opening(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Sockets opened with so many files, these limits of peers, and these addresses taken."""

    def opened(
        bind: str = "tcp://127.0.0.1:5556",
        feed: str = "none",
        *,
        files: int = resource.RLIM_INFINITY,
        peers: ConnectionLimits | None = None,
        taken: tuple[str, ...] = (),
    ) -> ServerSockets:
        monkeypatch.setattr(Opened, "taken", frozenset(taken))
        monkeypatch.setattr(sockets, "FeedPublisher", Opened)
        monkeypatch.setattr(resource, "getrlimit", lambda _: (files, files))
        rules = ServerLimits(batch_bytes_max=BATCH)
        door: Any = Opened
        return ServerSockets(bind, feed, rules=rules, peers=peers, files_kept=KEPT, door=door)

    return opened


@pytest.mark.parametrize(
    ("files", "asked", "most"),
    [
        (KEPT + 1, 10, 1),
        (KEPT + 10, 10, 10),
        (KEPT + 11, 10, 10),
        (resource.RLIM_INFINITY, 10, 10),
    ],
)
def test_there_are_no_more_connections_than_files_for_them(
    opening: Any, files: int, asked: int, most: int
) -> None:
    here = opening(files=files, peers=ConnectionLimits(connections_max=asked))
    assert here.connections.limits.connections_max == most


@pytest.mark.parametrize("files", [KEPT, KEPT - 1, 1])
def test_without_a_file_for_a_connection_there_is_no_server(opening: Any, files: int) -> None:
    with pytest.raises(TooManyFiles, match=f"may have {files}"):
        opening(files=files)


def test_a_batch_of_the_largest_size_and_its_refusal_are_always_possible(opening: Any) -> None:
    small = ConnectionLimits(unfinished_bytes_max=1, owed_bytes_max=1, owed_total_max=1)
    limits = opening(peers=small).connections.limits
    assert (limits.unfinished_bytes_max, limits.owed_bytes_max) == (4 * BATCH, 4 * BATCH)
    assert limits.owed_total_max == 8 * BATCH
    large = ConnectionLimits()
    assert opening(peers=large).connections.limits == large


@pytest.mark.parametrize(
    ("bind", "feed", "taken", "place"),
    [
        ("tcp://127.0.0.1:5556", "none", (), ""),
        ("tcp://127.0.0.1:5556", "tcp://127.0.0.1:9", (), "tcp://127.0.0.1:9"),
        ("tcp://127.0.0.1:5556", "auto", (), "tcp://127.0.0.1:5557"),
        ("tcp://[::1]:65534", "auto", (), "tcp://[::1]:65535"),
        ("tcp://[::1]:65535", "auto", (), "tcp://[::1]:*"),
        ("tcp://127.0.0.1:*", "auto", (), "tcp://127.0.0.1:*"),
        ("tcp://127.0.0.1:5556", "auto", ("tcp://127.0.0.1:5557",), "tcp://127.0.0.1:*"),
        ("ipc:///run/once", "auto", (), "ipc:///run/once.feed"),
    ],
)
def test_the_feed_is_where_it_was_asked_for_or_beside_the_requests(
    opening: Any, bind: str, feed: str, taken: tuple[str, ...], place: str
) -> None:
    here = opening(bind, feed, taken=taken)
    assert (here.address, here.feed_address) == (bind, place)
    here.close()
    assert [each.closed for each in (here.requests, here.feed) if each is not None].count(
        False
    ) == 0


def test_where_no_feed_can_be_no_socket_stays_open(opening: Any, monkeypatch: Any) -> None:
    made: list[Opened] = []
    note = Opened.__init__

    def noted(self: Opened, *args: object, **named: object) -> None:
        note(self, *args, **named)  # type: ignore[arg-type]
        made.append(self)

    monkeypatch.setattr(Opened, "__init__", noted)
    with pytest.raises(PortInUse):
        opening(feed="tcp://127.0.0.1:9", taken=("tcp://127.0.0.1:9",))
    assert [each.closed for each in made] == [True]


@pytest.mark.parametrize(
    ("address", "is_open"),
    [
        ("tcp://127.0.0.1:5556", False),
        ("tcp://[::1]:5556", False),
        ("ipc:///run/once", False),
        ("tcp://0.0.0.0:5556", True),
        ("tcp://192.0.2.7:5556", True),
    ],
)
def test_who_listens_beyond_the_machine_is_told(
    caplog: pytest.LogCaptureFixture, address: str, is_open: bool
) -> None:
    caplog.set_level(logging.WARNING, "oncemq.server")
    warn_of_others(address)
    assert ("no authentication" in caplog.text) is is_open


def test_who_else_may_write_is_told(caplog: pytest.LogCaptureFixture, tmp_path: Any) -> None:
    caplog.set_level(logging.WARNING, "oncemq.server")
    for mode, told in ((0o700, ""), (0o770, f"path={tmp_path}")):
        tmp_path.chmod(mode)
        sockets.warn_of_writers(tmp_path)
        assert told in caplog.text
        assert bool(caplog.text) is bool(told)
