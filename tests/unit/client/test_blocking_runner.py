"""The turns of a blocking client's threads."""

import select
import threading
from types import SimpleNamespace
from typing import Any, cast

from oncemq.client.blocking.runner import Runner
from oncemq.transport.wakeup import Wakeup


def test_a_bell_that_woke_a_thread_is_silent_when_the_next_one_sleeps() -> None:
    """It would wake every sleeper at once from then on."""
    bell = Wakeup()
    turns = SimpleNamespace(
        _at_socket=False, _engine=SimpleNamespace(descriptors=()), _bell=bell, _readable=False,
        _polled=(), _until_deadline=lambda: 1.0, lock=threading.Condition(),
    )  # fmt: skip
    bell.ring()
    with turns.lock:
        Runner._wait_for_news(cast(Any, turns), 1.0)
    assert not select.select([bell.descriptor], [], [], 0)[0]
    assert not turns._at_socket
    bell.close()
