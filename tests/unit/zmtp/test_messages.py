"""Messages: frames as bytes to send, and what the peer's bytes say when the connection is open."""

import pytest

from oncemq.zmtp.connection import Phase
from oncemq.zmtp.messages import JOINED_BYTES_MAX, encode
from tests.harness.zmtp import SMALL, frame, long_head, opened, ping, told


def joined(*frames: bytes) -> bytes:
    return b"".join(bytes(each) for each in encode(frames))


# ------------------------------------------------------------------ to send


@pytest.mark.parametrize(
    ("frames", "expected"),
    [
        ([b""], b"\x00\x00"),
        ([b"a"], b"\x00\x01a"),
        ([b"", b""], b"\x01\x00\x00\x00"),
        ([b"a", b"bc"], b"\x01\x01a\x00\x02bc"),
        ([b"x" * 255], b"\x00\xff" + b"x" * 255),
        ([b"x" * 256], b"\x02" + b"\0\0\0\0\0\0\x01\x00" + b"x" * 256),
        ([b"x" * 256, b""], b"\x03" + b"\0\0\0\0\0\0\x01\x00" + b"x" * 256 + b"\x00\x00"),
    ],
)
def test_a_message_is_its_frames_with_their_heads(frames: list[bytes], expected: bytes) -> None:
    assert joined(*frames) == expected


def test_small_frames_leave_in_one_piece() -> None:
    assert encode([b"a", b"b", b"c"]) == [b"\x01\x01a\x01\x01b\x00\x01c"]
    assert len(encode([b"a" * 300, b"b" * JOINED_BYTES_MAX])) == 1


def test_a_large_frame_is_not_copied() -> None:
    body = bytes(JOINED_BYTES_MAX + 1)
    head, sent, rest = encode([b"a", body, b"c"])
    assert head == b"\x01\x01a" + long_head(len(body), more=True)
    assert sent is body
    assert rest == b"\x00\x01c"


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_every_kind_of_bytes_is_a_frame(kind) -> None:
    for size in (0, 1, 255, 256, JOINED_BYTES_MAX, JOINED_BYTES_MAX + 1):
        body = bytes(size)
        assert joined(kind(body)) == joined(body)
        assert joined(kind(body), kind(body)) == joined(body, body)


# ------------------------------------------------------------------ received


@pytest.mark.parametrize(
    "frames",
    [
        [b""],
        [b"", b""],
        [b"a"],
        [b"", b"request"],  # a REQ's
        [b"x" * 255],
        [b"x" * 256],
        [b"head", b"x" * 5_000],
        [b"x" * 70_000, b"y" * 70_000, b"z"],
        [b"x" * 300_000],
    ],
)
def test_what_was_encoded_is_heard(frames: list[bytes]) -> None:
    connection = opened()
    assert told(connection, [joined(*frames)]) == ([frames], "")
    assert not connection.is_partial
    assert connection.held_bytes == 0


def test_messages_in_one_piece_come_one_after_the_other() -> None:
    data = joined(b"a") + joined(b"b", b"c") + joined(b"d")
    assert told(opened(), [data]) == ([[b"a"], [b"b", b"c"], [b"d"]], "")


def test_a_message_comes_when_it_is_whole() -> None:
    data = joined(b"head", b"x" * 400)
    connection = opened()
    assert told(connection, [data[:-1]]) == ([], "")
    assert connection.is_partial
    assert told(connection, [data[-1:]]) == ([[b"head", b"x" * 400]], "")
    assert not connection.is_partial


def test_a_short_frame_may_have_a_long_head() -> None:
    assert told(opened(), [long_head(3) + b"abc"]) == ([[b"abc"]], "")


@pytest.mark.parametrize("flags", [5, 7, 8, 9, 16, 0x80, 0xFF])
def test_flags_that_zmtp_does_not_have_end_it(flags: int) -> None:
    connection = opened()
    why = f"a frame begins with {flags:#04x}, which is no ZMTP"
    assert told(connection, [joined(b"a") + bytes((flags, 0))]) == ([[b"a"]], why)
    assert connection.phase is Phase.ENDED


def test_after_the_end_nothing_is_heard() -> None:
    connection = opened()
    told(connection, [b"\xff\xff"])
    assert told(connection, [joined(b"a")]) == ([], "")
    assert (connection.is_partial, connection.held_bytes) == (False, 0)


# ------------------------------------------------------------------ limits


def test_a_frame_over_its_limit_is_refused_at_its_head() -> None:
    most = SMALL.frame_bytes_max
    assert told(opened(), [long_head(most)]) == ([], "")
    why = f"a frame of {most + 1} bytes, over the limit of {most}"
    assert told(opened(), [long_head(most + 1)]) == ([], why)


@pytest.mark.parametrize("size", [2**31, 2**63 - 1, 2**63, 2**64 - 1])
def test_absurd_sizes_are_refused(size: int) -> None:
    for more in (False, True):
        _, why = told(opened(), [long_head(size, more=more) + b"x" * 100])
        assert why == f"a frame of {size} bytes, over the limit of {SMALL.frame_bytes_max}"


def test_the_head_is_judged_when_it_is_whole() -> None:
    connection = opened()
    head = long_head(2**63)
    assert told(connection, [head[:-1]]) == ([], "")
    assert told(connection, [head[-1:]])[1]


def test_a_message_over_its_limit_is_refused_at_the_head_that_goes_over() -> None:
    most = SMALL.message_bytes_max
    first = frame(b"x" * 200_000, more=True)
    fits = frame(b"y" * (most - 200_000))
    assert told(opened(), [first + fits])[1] == ""
    why = f"a message over the limit of {most} bytes"
    assert told(opened(), [first + long_head(most - 200_000 + 1)]) == ([], why)


def test_a_message_has_so_many_frames_at_most() -> None:
    most = SMALL.message_frames_max
    whole = [b"f"] * most
    assert told(opened(), [joined(*whole)]) == ([whole], "")
    why = f"a message over the limit of {most} frames"
    assert told(opened(), [joined(*whole, b"")]) == ([], why)


def test_frames_without_end_are_refused_also_when_each_is_empty() -> None:
    why = f"a message over the limit of {SMALL.message_frames_max} frames"
    assert told(opened(), [b"\x01\x00" * 1_000]) == ([], why)


def test_limits_are_of_one_message_and_begin_anew_with_the_next() -> None:
    message = [b"x" * 250_000, b"y" * 100_000]
    assert told(opened(), [joined(*message) * 3]) == ([message] * 3, "")


# ------------------------------------------------------------------ between a message's frames


def test_a_ping_between_two_frames_is_answered_and_is_no_part_of_them() -> None:
    # libzmq sends commands between messages only; RFC 37 forbids it nowhere.
    connection = opened()
    events, why = told(connection, [frame(b"a", more=True) + ping() + frame(b"b")])
    assert why == ""
    assert events[-1] == [b"a", b"b"]
    assert connection.has_output
