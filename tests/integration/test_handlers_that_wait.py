"""Signal handlers that use the client that they interrupt, and wait for its other threads."""

import pytest

from tests.integration.lone import alone

HEAD = """
import os, signal, sys, threading
from oncemq import Client, OnceMQError

mq = Client(sys.argv[1])
mq.subscribe("orders")
mq.subscribe("bills")


def interrupted_by(handler):
    signal.signal(signal.SIGTERM, lambda *_: handler())
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGTERM)).start()
    try:
        print([message.payload for message in mq.get("orders", wait=10)])
    except OnceMQError:
        print("over")
"""

CLOSES = """
mq.put("bills", b"1", wait=False)  # so there is a thread that sees puts out, which a close ends
interrupted_by(mq.close)
print(mq)
"""

JOINS = """
def order():
    asked.wait()
    mq.put("orders", b"1")


asked, other = threading.Event(), threading.Thread(target=order)
other.start()
interrupted_by(lambda: (asked.set(), other.join()))
"""


def test_a_handler_closes_the_client_that_waits(server: str) -> None:
    over, shown = alone(HEAD + CLOSES, server)
    assert (over, shown.endswith(" closed>")) == ("over", True)


def test_a_handler_waits_for_a_thread_that_puts(server: str) -> None:
    assert alone(HEAD + JOINS, server) == ["[b'1']"]


SHOP = """
import gc, sys, threading
from oncemq import Client


class Shop:
    def __init__(self):
        self.mq = Client(sys.argv[1])
        self.itself = self

    def __del__(self):
        try:
            self.mq.close()
            closed_by.append(threading.current_thread().name)
        except RuntimeError as error:
            closed_by.append(repr(error))


closed_by = []
gc.disable()
shop = Shop()
mq = shop.mq
"""

COLLECTED = """

def collect_in_sender(frame, event, _):
    if threading.current_thread().name == "oncemq-sender":
        sys.setprofile(None)
        gc.collect()


threading.setprofile(collect_in_sender)
del shop
mq.put("orders", b"1", wait=False)
sender = next(each for each in threading.enumerate() if each.name == "oncemq-sender")
sender.join()
print(closed_by)
"""


def test_a_thread_that_sees_puts_out_may_collect_what_closes_its_client(server: str) -> None:
    assert alone(SHOP + COLLECTED, server) == ["['oncemq-sender']"]


IN_A_VERB = """
def collect(frame, event, _):
    global shop
    if shop and frame.f_code.co_name == sys.argv[2]:
        shop = None
        gc.collect()


sys.setprofile(collect)
print(mq.put("orders", b"1").stored)
sys.setprofile(None)
print(mq)
"""


@pytest.mark.parametrize("function", ["descriptors", "wait", "_send", "_read"])
def test_a_verb_that_collects_what_closes_its_client_ends(
    server: str, function: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it is about to sleep, or in the middle of a send: the close waits for the put, too."""
    monkeypatch.setenv("ONCEMQ_BUSY_MICROS", "300")  # who looks before sleeping enters `wait`
    stored, shown = alone(SHOP + IN_A_VERB, server, function)
    assert (stored, shown.endswith(" closed>")) == ("False", True)
