"""What every line does, and every server's end: ZeroMQ, the tests' doors, and the simulator's wire.

What the simulator does beyond this (late leftovers, copies, silence) are faults that a schedule
asks for; a wire that is kinder than ZeroMQ would hide what the client has to stand.
"""

from collections.abc import Callable, Iterator

import pytest

from oncemq.client.engine.line import ServerConnection
from tests.contracts.wires import ChaoticWire, DirectWire, RealWire, SimulatedWire, Wire

WIRES: dict[str, Callable[[], Wire]] = {
    "zeromq": RealWire,
    "chaotic": ChaoticWire,
    "direct": DirectWire,
    "simulated": lambda: SimulatedWire(1),
    "simulated otherwise": lambda: SimulatedWire(2),
}


@pytest.fixture(params=list(WIRES))
def wire(request: pytest.FixtureRequest) -> Iterator[Wire]:
    wire = WIRES[request.param]()
    wire.up()
    yield wire
    wire.end()


def connected(wire: Wire) -> ServerConnection:
    line = wire.line()
    line.connect(wire.address)
    assert wire.until(line.news) is True
    return line


def known(wire: Wire, line: ServerConnection) -> bytes:
    """The route back to a line."""
    assert line.send([b"hello"])
    route, frames = wire.until(wire.request)
    assert frames == [b"hello"]
    return route


def test_before_it_connects_there_is_nothing(wire: Wire) -> None:
    line = wire.line()
    assert (line.descriptors, line.news(), line.receive()) == ((), None, None)
    assert line.send([b"head"]) is False


def test_while_nobody_is_there_nothing_is_sent_and_then_it_connects_by_itself(wire: Wire) -> None:
    wire.down()
    line = wire.line()
    line.connect(wire.address)
    assert (line.news(), line.send([b"too early"]), line.receive()) == (None, False, None)
    wire.up()
    assert wire.until(line.news) is True
    assert line.send([b"now"])
    assert wire.until(wire.request)[1] == [b"now"]


def test_who_is_told_of_a_connection_can_send_at_once(wire: Wire) -> None:
    line = wire.line()
    for _ in range(20):
        line.connect(wire.address)
        line.send([b"too early, mostly"])
        assert wire.until(line.news) is True
        assert line.send([b"at once"])


def test_requests_and_replies_come_whole_and_in_order(wire: Wire) -> None:
    line = connected(wire)
    sent = [[b"head %d" % number, b"", bytes(number)] for number in range(50)]
    assert all(line.send(frames) for frames in sent)
    received = [wire.until(wire.request) for _ in sent]
    assert [frames for _, frames in received] == sent
    (route,) = {route for route, _ in received}
    for frames in sent:
        wire.reply(route, frames)
    assert [wire.until(line.receive) for _ in sent] == sent
    assert (wire.request(), line.receive(), line.news()) == (None, None, None)


def test_what_is_sent_may_be_of_any_kind_of_bytes(wire: Wire) -> None:
    line = connected(wire)
    assert line.send([b"head", bytearray(b"body"), memoryview(b"a view")[2:]])
    assert wire.until(wire.request)[1] == [b"head", b"body", b"view"]


def test_each_line_gets_its_own_answers(wire: Wire) -> None:
    lines = [connected(wire) for _ in range(3)]
    routes = [known(wire, line) for line in lines]
    assert len(set(routes)) == 3
    for route in routes:
        wire.reply(route, [b"for " + route])
    assert [wire.until(line.receive) for line in lines] == [[b"for " + each] for each in routes]


def test_a_server_that_goes_and_comes_back_is_news_and_another_connection(wire: Wire) -> None:
    line = connected(wire)
    before = known(wire, line)
    wire.down()
    assert wire.until(line.news) is False
    wire.until(lambda: not line.send([b"to nobody"]) or None)
    wire.up()
    assert wire.until(line.news) is True
    assert known(wire, line) != before  # nothing of what was sent before comes first, or at all
    assert not wire.reaches(before)


def test_what_a_server_had_not_read_is_gone_with_it(wire: Wire) -> None:
    line = connected(wire)
    wire.stop_reading()
    assert line.send([b"never read"])
    wire.down()
    assert wire.until(line.news) is False
    wire.read_again()
    wire.up()
    assert wire.until(line.news) is True
    known(wire, line)


def test_a_line_that_connects_anew_has_left_the_connection_before(wire: Wire) -> None:
    line = connected(wire)
    before = known(wire, line)
    wire.reply(before, [b"an answer"])
    assert wire.until(line.receive) == [b"an answer"]
    line.connect(wire.nowhere)
    assert (line.news(), line.receive(), line.send([b"too early"])) == (None, None, False)
    line.connect(wire.address)
    assert wire.until(line.news) is True
    assert known(wire, line) != before
    wire.until(lambda: not wire.reaches(before) or None)


def test_news_of_a_connection_that_was_left_are_no_news(wire: Wire) -> None:
    line = wire.line()
    line.connect(wire.address)
    wire.until(lambda: line.send([b"hello"]) or None)  # it is connected, and was not asked
    line.connect(wire.nowhere)
    assert line.news() is None
    line.connect(wire.address)
    assert wire.until(line.news) is True
    assert line.news() is None


def test_a_line_that_is_closed_says_and_brings_nothing_more(wire: Wire) -> None:
    line = wire.line()
    line.connect(wire.address)
    wire.until(lambda: line.send([b"hello"]) or None)
    route, _ = wire.until(wire.request)
    other = connected(wire)
    wire.reply(route, [b"unread"])
    wire.reply(known(wire, other), [b"read"])
    assert wire.until(other.receive) == [b"read"]
    line.close()
    assert (line.news(), line.receive(), line.send([b"x"])) == (None, None, False)
    assert line.descriptors == ()
    wire.until(lambda: not wire.reaches(route) or None)


def test_who_was_never_there_is_not_reached(wire: Wire) -> None:
    wire.reply(b"nobody", [b"into the void"])
    assert not wire.reaches(b"nobody")


def test_a_peer_that_is_there_is_reached(wire: Wire) -> None:
    line = connected(wire)
    assert wire.reaches(known(wire, line))
    assert wire.until(line.receive) == [b"are you there?"]


def test_a_line_that_is_not_read_is_full_in_the_end_and_loses_nothing_it_took(wire: Wire) -> None:
    line = connected(wire)
    wire.stop_reading()
    taken = 0
    while line.send([b"%d" % taken, bytes(4_096)]):
        taken += 1
        assert taken < 100_000, "it takes without end"
    assert taken >= 1_000
    wire.read_again()
    for number in range(taken):
        assert wire.until(wire.request)[1][0] == b"%d" % number
    wire.until(lambda: line.send([b"again"]) or None)
