"""The sockets behind one descriptor: ready together, closed together, none kept that failed."""

import errno
import select
import socket
from collections.abc import Iterator

import pytest

from oncemq.errors import TooManyFiles
from oncemq.transport.connecting.watched_sockets import (
    READ,
    WRITE,
    WatchedSockets,
    no_descriptors_in_words,
)

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def watched() -> Iterator[WatchedSockets]:
    watched = WatchedSockets()
    yield watched
    watched.close()


@pytest.fixture
def pair() -> Iterator[Pair]:
    pair = socket.socketpair()
    yield pair
    for each in pair:
        each.close()


def is_ready(watched: WatchedSockets) -> bool:
    return bool(select.select([watched.descriptor], [], [], 0)[0])


def test_the_descriptor_is_readable_when_a_socket_is_ready_for_what_it_is_watched_for(
    watched: WatchedSockets, pair: Pair
) -> None:
    mine, other = pair
    descriptor = watched.descriptor
    watched.watch(mine, READ)
    assert not is_ready(watched)
    watched.change(mine, READ | WRITE)
    assert is_ready(watched)
    watched.change(mine, READ)
    assert not is_ready(watched)
    other.send(b"x")
    assert is_ready(watched)
    watched.forget(mine)
    assert not is_ready(watched)
    watched.watch(mine, READ)
    assert is_ready(watched)
    watched.drop(mine)
    assert mine.fileno() == -1
    assert not is_ready(watched)
    assert watched.descriptor == descriptor


def test_what_is_watched_is_closed_with_it_and_once(watched: WatchedSockets, pair: Pair) -> None:
    assert watched.descriptor >= 0
    for each in pair:
        watched.watch(each, READ)
    watched.forget(pair[0])
    watched.close()
    assert [each.fileno() for each in pair] == [-1, -1]
    watched.close()


@pytest.mark.parametrize("before", [False, True])
def test_a_socket_that_cannot_be_watched_is_closed_and_not_kept(
    watched: WatchedSockets, pair: Pair, monkeypatch: pytest.MonkeyPatch, before: bool
) -> None:
    mine, _ = pair
    assert watched.descriptor >= 0
    if before:
        watched.watch(mine, READ)
        watched.forget(mine)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "the system watches as many as it may")

    monkeypatch.setattr(watched._selector, "register", full)
    with pytest.raises(OSError, match="as many as it may"):
        watched.watch(mine, READ)
    assert mine.fileno() == -1
    assert watched._open == []


@pytest.mark.parametrize(
    ("number", "kind"),
    [(errno.EMFILE, TooManyFiles), (errno.ENFILE, TooManyFiles), (errno.ENOSPC, OSError)],
)
def test_that_no_file_is_left_is_said_in_words_and_nothing_else(
    number: int, kind: type[Exception]
) -> None:
    with pytest.raises(kind) as raised, no_descriptors_in_words():
        raise OSError(number, "the system's words")
    assert type(raised.value) is kind
