"""What a full socket is owed, against the plain bytes that it stands for."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from oncemq.transport.connecting.owed_bytes import BUFFERS_AT_ONCE, OwedBytes
from oncemq.zmtp.messages import Frame

PIECES = st.lists(st.binary(max_size=6), max_size=4)


def bytes_of(buffers: Sequence[Frame]) -> bytes:
    return b"".join(map(bytes, buffers))


@given(st.lists(st.tuples(PIECES, st.integers(0, 30), st.integers(0, 30))))
def test_every_byte_leaves_once_and_in_order(turns: list[tuple[list[bytes], int, int]]) -> None:
    owed = OwedBytes()
    expected = b""
    for pieces, sent_at_once, sent_later in turns:
        sent_at_once = min(sent_at_once, len(bytes_of(pieces)))
        owed.add(pieces, sent=sent_at_once)
        expected += bytes_of(pieces)[sent_at_once:]
        assert owed.size == len(expected)
        assert bytes_of(owed.first()) == expected
        owed.sent(min(sent_later, len(expected)))
        expected = expected[sent_later:]
        assert (owed.size, bytes_of(owed.first())) == (len(expected), expected)


def test_no_more_buffers_are_sent_at_once_than_the_system_takes() -> None:
    owed = OwedBytes()
    owed.add([b"%03d" % number for number in range(BUFFERS_AT_ONCE + 1)])
    assert bytes_of(owed.first()) == b"".join(b"%03d" % each for each in range(BUFFERS_AT_ONCE))
    owed.sent(3 * BUFFERS_AT_ONCE)
    assert bytes_of(owed.first()) == b"%03d" % BUFFERS_AT_ONCE


def test_a_connection_that_is_gone_is_owed_nothing() -> None:
    owed = OwedBytes()
    owed.add([bytes(10 << 20)])
    assert owed.is_full
    owed.clear()
    assert (owed.size, owed.is_full, owed.first()) == (0, False, [])
