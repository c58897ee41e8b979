"""Sockets that nobody reads while their peers go, in a process of its own: libzmq may end it.

    python -m tests.unit.transport.stalled ear|link|door

Each is filled until libzmq stops reading from the connection; then the peer goes, and comes back.
"""

import sys
import time
from collections.abc import Callable

from oncemq.transport.dealer import DealerSocket
from oncemq.transport.feed_publisher import FeedPublisher
from oncemq.transport.feed_subscriber import FeedSubscriber
from oncemq.transport.router import RouterSocket
from tests.harness.served import until_served
from tests.harness.waiting import until

SUBJECT = b"\0" * 8
TIMERS = 12.0  # seconds: two heartbeats; the first is answered by a reset, the second was the end
MANY = 4_000


def everything(receive: Callable[[], object | None]) -> int:
    """Receive until nothing more comes for a moment."""
    count, quiet = 0, time.monotonic() + 0.3
    while time.monotonic() < quiet:
        if receive() is None:
            time.sleep(0.001)
        else:
            count, quiet = count + 1, time.monotonic() + 0.3
    return count


def fill(send: Callable[[], object]) -> None:
    """Send slowly enough for everything to arrive, and more than any queue has room for."""
    for _ in range(MANY // 50):
        for _ in range(50):
            send()
        time.sleep(0.005)


def ear() -> None:
    feed, listener = FeedPublisher("tcp://127.0.0.1:*"), FeedSubscriber()
    address = feed.address
    listener.tune({SUBJECT})
    listener.connect(address)
    assert until_served(feed, listener.news) is True
    until(feed.change)
    fill(lambda: feed.send([SUBJECT, bytes(20_000)]))
    feed.close()
    time.sleep(TIMERS)
    feed = FeedPublisher(address)
    everything(listener.receive)
    assert until_served(feed, listener.news) is False
    assert until_served(feed, listener.news) is True
    until(feed.change)
    feed.send([SUBJECT, b"again"])
    assert until_served(feed, listener.receive) == [SUBJECT, b"again"]


def link() -> None:
    door, client = RouterSocket("tcp://127.0.0.1:*", frame_bytes_max=1 << 20), DealerSocket()
    address = door.address
    client.connect(address)
    assert until_served(door, client.news) is True
    assert client.send([b"hello"])
    route, _ = until(door.receive)
    fill(lambda: door.send(route, [bytes(20_000)]))
    door.close()
    time.sleep(TIMERS)
    door = RouterSocket(address, frame_bytes_max=1 << 20)
    everything(client.receive)
    assert until_served(door, client.news) is False
    assert until_served(door, client.news) is True
    assert client.send([b"again"])
    assert bytes(until(door.receive)[1][0]) == b"again"


def door() -> None:
    server, client = RouterSocket("tcp://127.0.0.1:*", frame_bytes_max=1 << 20), DealerSocket()
    client.connect(server.address)
    assert until_served(server, client.news) is True
    fill(lambda: client.send([bytes(20_000)]))
    client.close()
    time.sleep(TIMERS)
    assert everything(server.receive) > 0
    client = DealerSocket()
    client.connect(server.address)
    assert until_served(server, client.news) is True
    assert client.send([b"again"])
    assert bytes(until(server.receive)[1][0]) == b"again"


if __name__ == "__main__":
    {"ear": ear, "link": link, "door": door}[sys.argv[1]]()
    print("alive")
