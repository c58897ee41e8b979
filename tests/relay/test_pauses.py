"""Who cannot go on waits before the next try, longer each time, and not for ever."""

from types import SimpleNamespace
from typing import Any

import pytest

from oncemq.errors import StaleState
from oncemq.relay.relay import FIRST_PAUSE, LONGEST_PAUSE, Relay
from oncemq.relay.session import AGAIN_FIRST, AGAIN_LONGEST, RelaySession


class Stopping:
    """Notes the pauses, and ends the relay after so many."""

    def __init__(self, most: int) -> None:
        self.pauses: list[float] = []
        self.most = most

    def is_set(self) -> bool:
        return len(self.pauses) >= self.most

    def wait(self, pause: float) -> None:
        self.pauses.append(pause)


def test_a_relay_that_is_overtaken_again_and_again_pauses_longer_each_time() -> None:
    relay: Any = object.__new__(Relay)
    stays: list[int] = []

    def stay() -> None:
        stays.append(1)
        assert len(stays) < 30, "it does not pause"
        raise StaleState("another relay was here")

    relay._stay, relay._stopping = stay, Stopping(12)
    relay.run()
    pauses = relay._stopping.pauses
    assert len(stays) == 12
    assert pauses[0] == 2 * FIRST_PAUSE
    assert pauses == sorted(pauses)
    assert pauses[-1] == LONGEST_PAUSE


def test_what_was_put_off_is_tried_after_waits_that_grow() -> None:
    session: Any = object.__new__(RelaySession)
    off = SimpleNamespace(put_off=True, put_offs=1)
    fine = SimpleNamespace(put_off=False, put_offs=0)
    session._errands, session._again_at = {"off": off, "fine": fine}, {}
    session._try_again(100.0)
    assert session._again_at == {"off": 100.0 + AGAIN_FIRST}
    session._try_again(100.0 + AGAIN_FIRST / 2)
    assert (off.put_off, session._again_at) == (True, {"off": 100.0 + AGAIN_FIRST})
    session._try_again(100.0 + AGAIN_FIRST)
    assert (off.put_off, session._again_at) == (False, {})
    for put_offs, pause in ((2, 2 * AGAIN_FIRST), (3, 4 * AGAIN_FIRST), (500, AGAIN_LONGEST)):
        off.put_off, off.put_offs = True, put_offs
        session._again_at.clear()
        session._try_again(0.0)
        assert session._again_at == {"off": pytest.approx(pause)}
