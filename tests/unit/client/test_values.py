"""Messages as users hold them: what was stored is given, whatever it is."""

from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from struct import pack
from typing import Any

import pytest

from oncemq.cli.terminal.message import as_object
from oncemq.client.bodies import items_of, largest
from oncemq.client.checks import size_of
from oncemq.client.state.paths import directory_name, pipeline_directory, state_directory
from oncemq.client.values import Message, Receipt, Receipts, messages_of, must_be_of
from oncemq.client.verbs.messages import start_of
from oncemq.errors import Corrupt, HistoryLost, InvalidRequest
from oncemq.protocol.names import (
    Epoch,
    Generation,
    Micros,
    Offset,
    ProducerId,
    Sequence,
    SubscriptionId,
    TopicId,
)
from oncemq.protocol.records import Run
from oncemq.protocol.replies import BatchHead, Messages
from oncemq.protocol.requests import START_OFFSET, START_TIME, Start
from oncemq.session.handshake import NO_LOG
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


def test_messages_are_the_same_when_all_of_them_is() -> None:
    (one,), (same,), (other,) = (
        given(batch.encode_payloads([payload]), 1, 0) for payload in (b"a", b"a", b"b")
    )
    assert len({one, same, other}) == 2
    assert one != "orders@7"


@pytest.mark.parametrize(
    ("keys", "headers", "size"),
    [
        (None, None, 5),
        ([b"key", None], None, 6),
        (None, [{"a": "bcd"}, None], 3 + 4),
        ([b"key", None], [{"a": "bcd"}, None], 6 + 4),
    ],
)
def test_the_largest_message_is_looked_for_with_all_it_has(
    keys: list[bytes | None] | None, headers: list[dict[str, str] | None] | None, size: int
) -> None:
    def found(over: int) -> int:
        return largest([b"abc", b"abcde"], keys, headers, over=over, body=b"x" * 100)

    most = max(map(size_of, items_of([b"abc", b"abcde"], keys, headers)))
    assert (found(99), found(100)) == (most, 0)
    assert most >= size


def test_a_message_without_headers_has_none() -> None:
    (message,) = given(batch.encode_payloads([b"a"]), 1, 0)
    assert (message.headers, message.odd_headers) == ({}, None)


def test_messages_are_the_same_when_topic_offset_and_payload_are() -> None:
    one, other = given(batch.encode_payloads([b"a", b"b"]), 2, 0)
    (again,) = given(batch.encode_payloads([b"a"]), 1, 0)
    assert one == again
    assert hash(one) == hash(again)
    assert one != other
    assert one != "orders@7"


def test_each_message_is_of_its_run_and_numbered_in_it() -> None:
    runs = (
        Run(2, PRODUCER, Epoch(1), Sequence(5), Micros(1_000_000)),
        Run(1, ProducerId(b"q" * 16), Epoch(1), Sequence(9), Micros(2_000_000)),
        Run(2, PRODUCER, Epoch(1), Sequence(7), Micros(3_000_000)),
    )
    body = batch.encode_payloads([b"a", b"b", b"c", b"d", b"e"])
    checksum = batch.checksum(body, batch.seed("orders", PRODUCER, 5, 5))
    head = BatchHead("orders", TopicId(1), SubscriptionId(2), Offset(7), 5, 0, checksum, runs)
    messages = messages_of(Messages((head,), more=False), [body])
    assert [each.sequence for each in messages] == [5, 6, 9, 7, 8]
    assert [each.timestamp.timestamp() for each in messages] == [1, 1, 2, 3, 3]
    mine, others = PRODUCER.hex(), (b"q" * 16).hex()
    assert [each.producer for each in messages] == [mine, mine, others, mine, mine]


@pytest.mark.parametrize(
    ("count", "columns", "runs"), [(1, 0, ()), (-1, 0, (1,)), (1, 3, (1,)), (99, 0, (1,))]
)
def test_a_batch_whose_head_leads_out_of_its_body_is_corrupt(
    count: int, columns: int, runs: tuple[int, ...]
) -> None:
    """Though its checksum is right: who sends a lie can count."""
    run = Run(1, PRODUCER, Epoch(1), Sequence(5), Micros(1_000_000))
    body = batch.encode_payloads([b"a"])
    checksum = batch.checksum(body, batch.seed("orders", PRODUCER, 5, count))
    about = "orders", TopicId(1), SubscriptionId(2), Offset(7)
    head = BatchHead(*about, count, columns, checksum, (run,) * len(runs))
    with pytest.raises(Corrupt, match="orders@7"):
        messages_of(Messages((head,), more=False), [body])


def test_receipts_are_looked_at_like_a_list() -> None:
    first = Receipt("orders", Offset(7), stored=True, duplicate=False)
    receipts = Receipts(first, 3)
    assert [each.offset for each in receipts] == [7, 8, 9]
    assert (receipts[0].offset, receipts[2].offset, receipts[-3].offset) == (7, 9, 7)
    assert [each.offset for each in receipts[1:]] == [8, 9]
    assert [each.offset for each in receipts.part(1, 2)] == [8, 9]
    assert len(receipts.part(1, 0)) == 0
    for index in (3, -4):
        with pytest.raises(IndexError, match=f"receipt {index} of 3"):
            receipts[index]


@pytest.mark.parametrize(
    ("where", "start"),
    [
        ("new", Start("new")),
        ("earliest", Start("earliest")),
        (0, Start(START_OFFSET, 0)),
        (7, Start(START_OFFSET, 7)),
        (datetime.fromtimestamp(2.5, UTC), Start(START_TIME, 2_500_000)),
    ],
)
def test_a_subscription_starts_where_it_is_told_to(where: Any, start: Start) -> None:
    assert start_of(where) == start


@pytest.mark.parametrize("where", ["", "newest", -1, None, 2.5])
def test_no_other_word_is_a_start(where: Any) -> None:
    with pytest.raises(InvalidRequest):
        start_of(where)


def test_what_came_before_the_log_went_back_is_not_settled() -> None:
    messages = given(batch.encode_payloads([b"a"]), 1, 0)
    must_be_of(messages, NO_LOG.generation)
    must_be_of([], Generation(2))
    with pytest.raises(HistoryLost, match="generation 2, before"):
        must_be_of(messages, Generation(2))


def test_a_state_is_in_a_directory_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert state_directory("shop", None) == tmp_path / "oncemq" / "shop"
    assert state_directory("shop", "here") == Path("here")
    assert pipeline_directory("shop") == tmp_path / "oncemq-pipelines" / "shop"
    monkeypatch.setenv("XDG_STATE_HOME", "")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert state_directory("shop", None) == tmp_path / ".local" / "state" / "oncemq" / "shop"


def test_ids_that_are_no_file_names_get_a_digest_and_stay_apart() -> None:
    long = directory_name("/" * 60)
    assert (long[:41], len(long)) == ("_" * 40 + "~", 40 + 1 + 16)
    assert directory_name("a/b") == "a_b~" + blake2b(b"a/b", digest_size=8).hexdigest()
    assert len({directory_name(each) for each in ("a/b", "a_b", "a?b", "..", ".", "A/b")}) == 6
