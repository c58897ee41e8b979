"""Which of the threads that share a client gets."""

import threading

from oncemq.client.blocking.getting import Getting
from tests.harness.waiting import until_true


def test_who_has_waited_for_a_turn_leaves_nothing_behind() -> None:
    getting = Getting(lambda: None, lambda feeds: None)

    def get() -> None:
        with getting.block("orders"):
            pass

    thread = threading.Thread(target=get)
    with getting.block("orders"):
        thread.start()
        until_true(lambda: getting._waiting, "another thread waits")
    thread.join()
    assert getting._waiting == []
