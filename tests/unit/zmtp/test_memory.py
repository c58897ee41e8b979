"""Memory: taken for what came, not for what is announced; given back when a message is whole."""

import tracemalloc
from collections.abc import Callable, Iterator

import pytest

from oncemq.zmtp.connection import (
    GROWTH_BYTES,
    LANDING_BYTES,
    PINNED_SHARE,
    Event,
    ZmtpConnection,
)
from oncemq.zmtp.limits import WireLimits
from tests.harness.zmtp import frame, give, heard, hello, long_head, opened, ping, ready

LARGE = WireLimits()
MIB = 1 << 20
JUNK = b"\x04\xff\x04JUNK" + bytes(250)  # a command that is passed over


def memory_of(act: Callable[[], object]) -> tuple[int, int]:
    """The bytes that are held after it, and at most meanwhile."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        kept = act()
        held, most = tracemalloc.get_traced_memory()
        del kept
        return held - before, most - before
    finally:
        tracemalloc.stop()


def land(connection: ZmtpConnection, count: int) -> None:
    """So many bytes arrive in a frame that is under way."""
    while count > 0:
        view = connection.landing()
        assert view is not None
        step = min(count, len(view))
        view.release()
        connection.landed(step)
        count -= step
        assert list(heard(connection)) == []


@pytest.mark.parametrize("size", [LANDING_BYTES + 20, MIB, 128 * MIB])
def test_what_is_announced_takes_no_memory(size: int) -> None:
    connection = opened(limits=LARGE)
    held, most = memory_of(lambda: list(give(connection, long_head(size) + b"x" * 10)))
    assert held <= GROWTH_BYTES + 4_096
    assert most <= GROWTH_BYTES + 8_192
    assert held <= connection.held_bytes + 4_096


@pytest.mark.parametrize("came", [100_000, MIB, 5 * MIB, 40 * MIB])
def test_an_unfinished_frame_takes_at_most_twice_what_came(came: int) -> None:
    connection = opened(limits=LARGE)

    def act() -> None:
        list(give(connection, long_head(128 * MIB) + bytes(1_000)))
        land(connection, came - 1_000)

    held, most = memory_of(act)
    assert held <= 2.3 * came + 2 * GROWTH_BYTES  # an eighth more: what a bytearray takes ahead
    assert most <= 2.3 * came + MIB + 2 * GROWTH_BYTES
    assert abs(held - connection.held_bytes) <= held // 8 + 4_096


def test_a_frame_that_is_whole_takes_its_size() -> None:
    connection = opened(limits=LARGE)
    size = 30 * MIB + 7

    def act() -> object:
        list(give(connection, long_head(size)))
        land(connection, size - 1)
        view = connection.landing()
        assert view is not None
        assert len(view) == 1
        view.release()
        connection.landed(1)
        return connection.next_event()

    held, _ = memory_of(act)
    assert held <= size * 9 // 8 + 4_096
    assert connection.held_bytes == 0


def test_a_small_frame_does_not_pin_the_piece_that_it_came_in() -> None:
    # A message of 4 KB that waits for a sync would have kept 64 KB that nobody counts.
    def act() -> list[object]:
        connection = opened(limits=LARGE)
        return [
            event
            for _ in range(50)
            for event in _raw(connection, frame(bytes(4_097)) + JUNK * 230)
            if isinstance(event, list)
        ]

    held, _ = memory_of(act)
    assert held <= 50 * 4_097 * PINNED_SHARE


def test_frames_of_an_unfinished_message_do_not_either() -> None:
    connection = opened(limits=LARGE)

    def act() -> None:
        for _ in range(50):
            _pass_over(connection, frame(bytes(4_097), more=True) + JUNK * 230)

    held, _ = memory_of(act)
    assert held <= PINNED_SHARE * connection.held_bytes
    assert connection.held_bytes >= 50 * 4_097


def test_what_was_understood_is_not_kept_for_the_sake_of_a_byte() -> None:
    connection = opened()
    held, _ = memory_of(lambda: _pass_over(connection, ping() * 7_000 + b"\x00"))
    connection.take_output()
    assert connection.held_bytes == 1
    assert held <= 100_000  # what is owed: the answers


def test_answers_take_no_more_than_the_pings_did() -> None:
    connection = opened()
    data = ping() * 7_000
    held, _ = memory_of(lambda: _pass_over(connection, data))
    assert held <= len(data) * 9 // 8 + 4_096


def test_an_idle_connection_is_a_few_fields() -> None:
    def act() -> list[ZmtpConnection]:
        connections = [opened() for _ in range(100)]
        for connection in connections:
            list(give(connection, ping() + frame(b"request")))
            connection.take_output()
        return connections

    held, _ = memory_of(act)
    assert held / 100 <= 1_000


def test_an_unfinished_handshake_takes_what_came() -> None:
    said = hello() + ready(b"DEALER")[:-1]

    def act() -> list[ZmtpConnection]:
        connections = [ZmtpConnection(b"ROUTER", LARGE) for _ in range(100)]
        for connection in connections:
            for byte in said:
                connection.receive(bytes((byte,)))
                assert connection.next_event() is None
        return connections

    held, _ = memory_of(act)
    assert held / 100 <= 1_500


def test_the_end_gives_everything_back() -> None:
    connection = opened(limits=LARGE)

    def act() -> None:
        list(give(connection, frame(bytes(50_000), more=True) + long_head(MIB) + bytes(100)))
        assert connection.held_bytes > 50_000
        connection.end()

    held, _ = memory_of(act)
    assert held <= 4_096
    assert (connection.held_bytes, connection.is_partial) == (0, False)


def _pass_over(connection: ZmtpConnection, data: bytes) -> None:
    for _ in _raw(connection, data):
        pass


def _raw(connection: ZmtpConnection, data: bytes) -> Iterator[Event]:
    """Its events with their frames as they are."""
    connection.receive(data)
    while (event := connection.next_event()) is not None:
        yield event
