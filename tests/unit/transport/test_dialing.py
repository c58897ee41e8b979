"""When which endpoint of a server is tried: one after the other, then a wait that grows."""

import errno
import socket
from typing import Any

import pytest

from oncemq.transport.connecting import dialing
from oncemq.transport.connecting.addresses import Endpoint, ServerAddress
from oncemq.transport.connecting.dialing import Dialing
from oncemq.transport.connecting.waits import ReconnectWaits
from oncemq.transport.connecting.watched_sockets import WatchedSockets

WAITS = (20_000, 40_000, 80_000)
ONE, TWO = (Endpoint(socket.AF_INET, ("127.0.0.1", port)) for port in (1, 2))


class Dialed:
    """A server of two endpoints, and what became of each attempt."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.dialing = Dialing(WatchedSockets())
        self.dialing.waits = ReconnectWaits(lambda: 0.0)
        self.tried: list[Endpoint] = []
        self.trouble: OSError | None = None
        monkeypatch.setattr(dialing, "connecting", self._connecting)
        self.dialing.begin(ServerAddress("tcp://two", (ONE, TWO)))

    def _connecting(self, endpoint: Endpoint) -> Any:
        self.tried.append(endpoint)
        if self.trouble is not None:
            raise self.trouble
        return endpoint


@pytest.fixture
def dialed(monkeypatch: pytest.MonkeyPatch) -> Dialed:
    return Dialed(monkeypatch)


def test_each_endpoint_is_tried_at_once_then_after_a_wait_that_grows(dialed: Dialed) -> None:
    now, line = 5, dialed.dialing
    assert line.due == 0
    for wait in WAITS:
        for endpoint, due in ((ONE, 0), (TWO, wait)):
            assert line.next_socket(now) == endpoint
            assert line.due is None
            assert line.next_socket(now) is None  # it is under way
            line.failed(now)
            assert line.due == now + due
        assert line.is_in_vain
        assert line.next_socket(now + wait - 1) is None
        now += wait
    assert dialed.tried == [ONE, TWO] * len(WAITS)


def test_after_a_connection_that_broke_a_new_round_begins_after_a_wait(dialed: Dialed) -> None:
    line = dialed.dialing
    for now, wait in zip((5, 1_000_000, 2_000_000), WAITS, strict=True):
        assert line.next_socket(now) == ONE
        line.succeeded()
        line.broke(now)
        assert (line.due, line.is_in_vain) == (now + wait, False)


def test_where_every_endpoint_is_refused_at_once_the_wait_comes_at_once(dialed: Dialed) -> None:
    line, dialed.trouble = dialed.dialing, OSError(errno.ENETUNREACH, "no way there")
    assert line.next_socket(5) is None
    assert (dialed.tried, line.due, line.reason) == ([ONE, TWO], 5 + WAITS[0], "no way there")
    assert line.is_in_vain


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_that_no_file_is_left_says_nothing_of_an_endpoint(dialed: Dialed, number: int) -> None:
    dialed.trouble = OSError(number, "no file")
    with pytest.raises(OSError, match="no file"):
        dialed.dialing.next_socket(5)
    assert dialed.tried == [ONE]
    assert not dialed.dialing.is_in_vain


def test_who_is_dialed_anew_is_tried_at_once_with_short_waits(dialed: Dialed) -> None:
    line = dialed.dialing
    for now in (5, 5, 100_000, 100_000):
        assert line.next_socket(now) is not None
        line.failed(now)
    assert line.is_in_vain
    line.begin(ServerAddress("tcp://one", (ONE,)))
    assert (line.due, line.is_in_vain) == (0, False)
    assert line.next_socket(7) == ONE
    line.failed(7)
    assert line.due == 7 + WAITS[0]
    line.leave()
    assert line.due is None
    assert line.next_socket(10**9) is None
