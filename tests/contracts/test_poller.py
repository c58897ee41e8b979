"""What happened on which descriptor, told by epoll and by poll alike."""

import select
import socket
from collections.abc import Iterator

import pytest

from oncemq.transport.serving.poller import (
    READABLE,
    WRITABLE,
    EpollPoller,
    Poller,
    PollPoller,
    new_poller,
)

KINDS: dict[str, type[EpollPoller] | type[PollPoller]] = {"poll": PollPoller}
if hasattr(select, "epoll"):
    KINDS["epoll"] = EpollPoller


@pytest.fixture(params=KINDS)
def poller(request: pytest.FixtureRequest) -> Iterator[Poller]:
    made = KINDS[request.param]()
    yield made
    made.close()


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    near, far = socket.socketpair()
    with near, far:
        yield near, far


def test_nothing_is_told_while_nothing_happened(poller: Poller, ends) -> None:
    near, _ = ends
    poller.register(near.fileno(), READABLE)
    assert list(poller.wait(0)) == []


def test_what_was_not_taken_is_told_again(poller: Poller, ends) -> None:
    near, far = ends
    poller.register(near.fileno(), READABLE)
    far.send(b"x")
    for _ in range(2):
        assert list(poller.wait(1_000)) == [(near.fileno(), READABLE)]
    near.recv(1)
    assert list(poller.wait(0)) == []


def test_only_what_is_of_interest_is_told(poller: Poller, ends) -> None:
    near, far = ends
    poller.register(near.fileno(), READABLE)
    far.send(b"x")
    poller.modify(near.fileno(), WRITABLE)
    assert list(poller.wait(1_000)) == [(near.fileno(), WRITABLE)]
    poller.modify(near.fileno(), READABLE | WRITABLE)
    assert list(poller.wait(1_000)) == [(near.fileno(), READABLE | WRITABLE)]


def test_what_is_unregistered_is_not_told(poller: Poller, ends) -> None:
    near, far = ends
    poller.register(near.fileno(), READABLE)
    far.send(b"x")
    poller.unregister(near.fileno())
    assert list(poller.wait(0)) == []


def test_an_end_that_is_gone_is_told(poller: Poller, ends) -> None:
    near, far = ends
    poller.register(near.fileno(), READABLE)
    far.close()
    ((descriptor, happened),) = poller.wait(1_000)
    assert descriptor == near.fileno()
    assert happened & READABLE


def test_a_system_with_epoll_uses_it() -> None:
    made = new_poller()
    made.close()
    assert isinstance(made, EpollPoller if hasattr(select, "epoll") else PollPoller)
