"""What is read from the log for answers: never for who does not read them, never much at a time."""

from oncemq.protocol.names import Offset
from oncemq.protocol.replies import Messages
from oncemq.protocol.requests import Read
from oncemq.server.driver import READ_BYTES
from tests.harness.server import Host


def test_nothing_is_read_for_who_does_not_read_its_answers(host: Host) -> None:
    host.subscribe("orders")
    host.put("orders", b"one")
    read: list[int] = []
    inner = host.driver.reader.read
    host.driver.reader.read = lambda deliver: (read.append(1), inner(deliver))[1]  # type: ignore[method-assign]
    host.driver.takes = lambda route: route != b"route"
    token = host.send(Read("orders", Offset(0), 10, 1 << 20))
    assert token not in host.replies()
    assert read == []
    host.driver.takes = lambda _: True
    reply = host.ask(Read("orders", Offset(0), 10, 1 << 20))
    assert isinstance(reply, Messages)
    assert read == [1]


def test_what_was_read_leaves_before_much_more_is(host: Host) -> None:
    host.subscribe("orders")
    host.put("orders", bytes(500_000))
    left: list[int] = []

    def hand_over() -> None:
        left.append(sum(sum(map(len, frames)) for _, frames in host.driver.outgoing))
        host.driver.outgoing.clear()

    host.driver.hand_over = hand_over
    for _ in range(100):
        host.send(Read("orders", Offset(0), 10, 1 << 20))
    assert len(left) == 100 * 500_000 // (READ_BYTES + 500_000)
    assert max(left) < READ_BYTES + 600_000
