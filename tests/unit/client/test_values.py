"""Messages as users hold them: what was stored is given, whatever it is."""

from struct import pack

from oncemq.cli.message import as_object
from oncemq.client.values import Message, messages_of
from oncemq.core.names import Epoch, Micros, Offset, ProducerId, Sequence, SubscriptionId, TopicId
from oncemq.core.records import Run
from oncemq.core.replies import BatchHead, Messages
from oncemq.wire import batch

PRODUCER = ProducerId(b"p" * 16)


def given(body: bytes, count: int, columns: int) -> list[Message]:
    """What a reader makes of a stored batch."""
    checksum = batch.checksum(body, batch.seed("orders", PRODUCER, 1, count))
    run = Run(count, PRODUCER, Epoch(1), Sequence(1), Micros(1))
    head = BatchHead(
        "orders", TopicId(1), SubscriptionId(2), Offset(7), count, columns, checksum, (run,)
    )
    return messages_of(Messages((head,), more=False), [body])


def test_headers_that_are_none_are_given_as_they_are_and_hide_nothing_else() -> None:
    """An older server has stored them, for a publisher of `headers={"a": 1}`."""
    odd, fine = b"\x81\xa1a\x01", b"\x81\xa1a\xa1b"
    body = pack("<III", 0, 3, 6) + pack("<III", 0, len(odd), len(odd + fine)) + b"badone"
    bad, one = given(body + odd + fine, 2, batch.HEADERS)
    assert (bad.payload, bad.key, bad.headers, bad.odd_headers) == (b"bad", None, {}, odd)
    assert (one.payload, one.headers, one.odd_headers) == (b"one", {"a": "b"}, None)
    assert as_object(bad)["odd_headers_base64"] == "gaFhAQ=="
    assert "odd_headers_base64" not in as_object(one)


def test_a_message_without_headers_has_none() -> None:
    (message,) = given(batch.encode_payloads([b"a"]), 1, 0)
    assert (message.headers, message.odd_headers) == ({}, None)
