"""A bell that wakes a loop."""

import select

from oncemq.transport.wakeup import Wakeup


def rings(bell: Wakeup) -> bool:
    return bool(select.select([bell.descriptor], [], [], 0)[0])


def test_it_rings_until_it_is_silenced() -> None:
    bell = Wakeup()
    bell.ring()
    bell.ring()
    assert rings(bell)
    bell.silence()
    assert not rings(bell)
    bell.close()


def test_one_that_was_put_away_may_be_rung() -> None:
    """A server that is asked to stop may have ended before the bell is rung for it."""
    bell = Wakeup()
    bell.close()
    bell.ring()
