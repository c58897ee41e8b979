"""Large frames are received where they will lie, in as many pieces as they come."""

import pytest

from oncemq.zmtp.connection import GROWTH_BYTES, LANDING_BYTES
from oncemq.zmtp.limits import WireLimits
from tests.harness.zmtp import frame, give, long_head, opened, told

LARGE = WireLimits()


def test_a_frame_that_nearly_came_is_waited_for_where_it_is() -> None:
    connection = opened(limits=LARGE)
    list(give(connection, long_head(LANDING_BYTES + 10) + bytes(10)))
    assert connection.landing() is None


def test_one_that_lacks_more_is_received_where_it_will_lie() -> None:
    connection = opened(limits=LARGE)
    body = bytes(range(256)) * 300
    list(give(connection, frame(body)[:100]))
    view = connection.landing()
    assert view is not None
    assert connection.is_partial
    came = 100 - 9
    assert len(view) == GROWTH_BYTES - came
    view[:] = body[came:GROWTH_BYTES]
    view.release()
    connection.landed(GROWTH_BYTES - came)
    assert connection.next_event() is None
    rest = connection.landing()
    assert rest is not None
    assert len(rest) == len(body) - GROWTH_BYTES  # never more than the frame: the next is not eaten
    rest[:] = body[GROWTH_BYTES:]
    rest.release()
    connection.landed(len(body) - GROWTH_BYTES)
    event = connection.next_event()
    assert isinstance(event, list)
    assert [bytes(each) for each in event] == [body]
    assert isinstance(event[0], memoryview)  # of where it was received
    assert connection.landing() is None


def test_other_frames_may_stand_around_it() -> None:
    frames = [b"head", b"x" * 200_000, b"mid", b"y" * 300_000, b"tail"]
    data = b"".join(frame(each, more=True) for each in frames[:-1]) + frame(frames[-1])
    for size in (1, 9, 10, 70_000, len(data)):
        pieces = [
            data[:40],
            *(data[at : at + max(size, 1_000)] for at in range(40, len(data), max(size, 1_000))),
        ]
        assert told(opened(limits=LARGE), pieces) == ([frames], "")


def test_bytes_that_belong_there_are_not_received_elsewhere() -> None:
    connection = opened(limits=LARGE)
    list(give(connection, long_head(1 << 20)))
    with pytest.raises(AssertionError, match="belongs where"):
        connection.receive(b"x")


def test_the_limit_of_a_message_counts_what_landed() -> None:
    limits = WireLimits(frame_bytes_max=200_000, message_bytes_max=250_000)
    data = frame(bytes(200_000), more=True) + long_head(50_001)
    why = "a message over the limit of 250000 bytes"
    assert told(opened(limits=limits), [data[:50], data[50:]]) == ([], why)
