"""What the broker owes becomes batches cut from the log: in order, verified, within limits."""

# pyright: reportArgumentType=false
# Names and numbers are written plainly here.

import msgspec
import pytest

from oncemq.errors import Corrupt
from oncemq.protocol.names import ClientId, Epoch, Micros, Offset, SubscriptionId, TopicId
from oncemq.protocol.names import Sequence as Number
from oncemq.protocol.records import MessagesStored, Run
from oncemq.protocol.replies import Messages
from oncemq.protocol.requests import Read, Settled, Start, Subscribe, Unsubscribe
from oncemq.protocol.step import Deliver, Span
from oncemq.server.reader import BODIES_MAX, READ_FACTOR, Reader, cut_runs
from oncemq.storage.log.log import LogOptions
from oncemq.wire import batch
from tests.harness.server import GUEST

A, B = b"a" * 16, b"b" * 16


# ------------------------------------------------------------------ from a real log


def test_a_get_goes_across_batches_up_to_its_limit(host) -> None:
    host.subscribe("orders")
    host.put("orders", b"a", b"b")
    host.put("orders", b"c", b"d")
    assert host.get("orders", limit=3) == ["orders@0=a", "orders@1=b", "orders@2=c"]


def test_a_get_brings_no_more_bytes_than_asked_but_one_message_at_least(host) -> None:
    host.subscribe("orders")
    host.put("orders", b"aaaa", b"bbbb", b"cccc")
    assert host.get("orders", bytes_max=8) == ["orders@0=aaaa", "orders@1=bbbb"]
    for little in (3, 1, 0, -1):
        assert host.get("orders", bytes_max=little) == ["orders@0=aaaa"]


def test_the_bytes_of_a_get_are_those_of_all_its_batches(host) -> None:
    host.subscribe("orders")
    for number in range(8):
        host.put("orders", b"%d" % number * 100)
    for most in (250, 399, 400, 600):
        _, bodies = host.ask_all(host.getting("orders", bytes_max=most))
        assert 0 < sum(map(len, bodies)) <= most


def test_a_get_from_within_a_batch_is_a_slice_with_a_checksum_of_its_own(host) -> None:
    subscription = host.subscribe("orders").subscription_id
    host.put("orders", b"a", b"b", b"c", b"d")
    settled = (Settled("orders", subscription, Offset(1)),)
    reply, bodies = host.ask_all(host.getting("orders", settled=settled, limit=2))
    (head,) = reply.batches
    assert (head.first_offset, head.count, head.runs[0].first_sequence) == (1, 2, 2)
    assert batch.payloads_of(bodies[0], 2, 0) == [b"b", b"c"]
    assert reply.more


def test_more_is_said_exactly_when_there_is_more(host) -> None:
    host.subscribe("orders")
    host.put("orders", b"a", b"b", b"c")
    for limit, more in ((2, True), (3, False), (4, False)):
        assert host.ask(host.getting("orders", limit=limit)).more is more


def test_of_several_topics_the_oldest_message_goes_first(host) -> None:
    for topic in ("one", "two", "three"):
        host.subscribe(topic)
    for topic, payload in (("two", b"1"), ("one", b"2"), ("two", b"3"), ("three", b"4")):
        host.put(topic, payload)
    host.put("one", b"5", b"6")
    everything = ["two@0=1", "one@0=2", "two@1=3", "three@0=4", "one@1=5", "one@2=6"]
    assert host.get() == everything
    for limit in range(1, 7):
        assert host.get(limit=limit) == everything[:limit]


def test_of_several_topics_the_oldest_goes_first_also_within_merged_batches(make_host) -> None:
    host = make_host(LogOptions(segment_bytes=1500, allocate_bytes=700, reserve_bytes=100))
    for topic in ("one", "two"):
        host.subscribe(topic)
    for number in range(20):
        host.put("one" if number % 3 else "two", b"%d" % number)
    before = host.get()
    assert host.compact() > 0
    assert host.get() == before
    assert [each.split("=")[1] for each in before] == [str(number) for number in range(20)]
    for limit in (1, 2, 5, 7):
        assert host.get(limit=limit) == before[:limit]


def bytes_read_by(host, **how: int) -> tuple[list[str], int]:
    """What a get of any topic gives, and how many bytes of bodies were read for it."""
    sizes: list[int] = []
    read_many = host.log.read_many

    def counted(*places: int, **limits: int) -> list:
        found = read_many(*places, **limits)
        sizes.extend(len(each.body) for each in found)
        return found

    host.log.read_many = counted
    try:
        return host.get(**how), sum(sizes)
    finally:
        host.log.read_many = read_many


@pytest.mark.parametrize("compacted", [False, True])
def test_a_get_of_any_topic_reads_what_it_gives_however_many_topics_wait(
    make_host, compacted
) -> None:
    host = make_host(LogOptions(segment_bytes=60_000, allocate_bytes=10_000, reserve_bytes=100))
    topics = [f"t{number}" for number in range(40)]
    for topic in topics:
        host.subscribe(topic)
    host.subscribe("settled")
    stored: list[str] = []
    for _ in range(10):
        host.put("settled", b"y" * 30_000)
        stored += [host.put(topic, b"x" * 500) and topic for topic in topics]
    host.ask(Unsubscribe(GUEST, Epoch(0), "settled"))
    if compacted:
        assert host.compact() > 0
    batch_bytes = 10 * 520  # ten puts merged, and what comes with each
    for limit in (1, 3):
        given, size = bytes_read_by(host, limit=limit)
        assert [each.split("@")[0] for each in given] == stored[:limit]
        assert size <= limit * batch_bytes
    given, size = bytes_read_by(host, bytes_max=20_000)
    assert [each.split("@")[0] for each in given] == stored[: len(given)]
    assert given
    assert size <= READ_FACTOR * 20_000 + batch_bytes


def test_a_get_of_any_topic_asks_for_the_rest_of_a_topic_that_was_begun(make_host) -> None:
    """Cursors stand in the middle of merged batches, and the order is still the clock's."""
    host = make_host(LogOptions(segment_bytes=1500, allocate_bytes=700, reserve_bytes=100))
    subscriptions = {topic: host.subscribe(topic).subscription_id for topic in "abc"}
    order = ["abc"[number * 7 % 3] for number in range(30)]
    for number, topic in enumerate(order):
        host.put(topic, b"%d" % number)
    assert host.compact() > 0
    cursors = dict.fromkeys("abc", 0)
    given: list[str] = []
    while len(given) < len(order):
        settled = tuple(
            Settled(topic, subscriptions[topic], Offset(at)) for topic, at in cursors.items()
        )
        reply, bodies = host.ask_all(host.getting(settled=settled, limit=4))
        for head, body in zip(reply.batches, bodies, strict=True):
            given += map(bytes.decode, batch.payloads_of(body, head.count, head.columns))
            cursors[head.topic] = head.first_offset + head.count
    assert given == [str(number) for number in range(30)]


def test_a_get_that_names_a_topic_twice_is_answered_once(host) -> None:
    for topic in ("one", "two"):
        host.subscribe(topic)
        host.put(topic, b"x")
    get = msgspec.structs.replace(host.getting(), only=("one", "one", "two"))
    reply, _ = host.ask_all(get)
    assert [head.topic for head in reply.batches] == ["one", "two"]


# ------------------------------------------------------------------ from a shelf of our own


class Stored:
    """A batch as the log gives it; its seed is looked at to verify it."""

    def __init__(self, record: MessagesStored, body: bytes, seed: int) -> None:
        self.record, self.body, self.published = record, body, False
        self._seed, self.verified = seed, 0

    @property
    def seed(self) -> int:
        self.verified += 1
        return self._seed


class Shelf:
    """Batches of one topic, given one at a time unless told otherwise."""

    def __init__(self, *batches: Stored) -> None:
        self.batches = batches

    def read_many(self, topic_id, offset, *, count_max, bytes_max) -> list[Stored]:
        for each in self.batches:
            record = each.record
            if record.topic_id == topic_id and record.first_offset + record.count > offset:
                return [each]
        return []


def stored(first: int, *payloads: bytes, topic: str = "t", runs: tuple[Run, ...] = ()) -> Stored:
    body = batch.encode_payloads(payloads)
    runs = runs or (Run(len(payloads), A, 1, Number(first + 1), Micros(first)),)
    seed = batch.seed(topic, runs[0].producer, runs[0].first_sequence, len(payloads))
    checksum = batch.checksum(body, seed)
    record = MessagesStored(TopicId(1), Offset(first), len(payloads), 0, checksum, runs)
    return Stored(record, body, seed)


def read(shelf: Shelf, start: int, end: int, *, limit: int = 99) -> tuple[Messages, list]:
    span = Span("t", TopicId(1), SubscriptionId(9), Offset(start), Offset(end))
    return Reader(shelf).read(Deliver((span,), limit, 1 << 20))


def test_a_whole_batch_leaves_as_the_very_bytes_it_was_put_as() -> None:
    one = stored(0, b"a", b"b")
    reply, (body,) = read(Shelf(one), 0, 2)
    assert body is one.body
    assert reply.batches[0].checksum == one.record.checksum


def test_what_is_beyond_the_span_is_not_given() -> None:
    reply, bodies = read(Shelf(stored(0, b"a", b"b", b"c")), 1, 2)
    assert [batch.payloads_of(bodies[0], 1, 0), reply.more] == [[b"b"], False]


def test_a_slice_of_a_damaged_batch_is_not_given_a_fresh_checksum() -> None:
    damaged = stored(0, b"a", b"b")
    damaged.body = damaged.body[:-1] + b"X"
    with pytest.raises(Corrupt, match="t@0 does not match its checksum"):
        read(Shelf(damaged), 0, 1)


def test_a_batch_taken_in_pieces_is_verified_once() -> None:
    one = stored(0, *[b"x"] * 10)
    reader = Reader(Shelf(one))
    for start in range(9):
        span = Span("t", TopicId(1), SubscriptionId(9), Offset(start), Offset(10))
        reader.read(Deliver((span,), 1, 1 << 20))
    assert one.verified == 1


def test_a_reader_of_whole_batches_gets_them_uncut_and_no_more_than_fit(host) -> None:
    host.subscribe("orders")
    for payload in (b"a" * 50_000, b"b" * 50_000, b"c" * 50_000):
        host.put("orders", payload, payload)
    sizes = [(1, [2]), (250_000, [2, 2]), (1 << 20, [2, 2, 2])]
    for bytes_max, counts in sizes:
        reply, _ = host.ask_all(Read("orders", Offset(0), 99, bytes_max, whole=True))
        assert [head.count for head in reply.batches] == counts
    reply, _ = host.ask_all(Read("orders", Offset(1), 2, 1, whole=True))
    assert [(head.first_offset, head.count) for head in reply.batches] == [(1, 1)]
    reply, _ = host.ask_all(Read("orders", Offset(1), 2, 1 << 20, whole=True))
    assert [(head.first_offset, head.count) for head in reply.batches] == [(1, 1), (2, 1)]


def test_a_missing_batch_is_said_not_skipped() -> None:
    with pytest.raises(Corrupt, match="t@0 is not in the log"):
        read(Shelf(), 0, 1)
    with pytest.raises(Corrupt, match="gap at t@0"):
        read(Shelf(stored(5, b"a")), 0, 6)


def test_a_corrupt_batch_is_refused_to_its_reader_and_nobody_else(host, monkeypatch) -> None:
    host.subscribe("orders")
    host.put("orders", b"a")

    def corrupt(*_: object, **__: object) -> None:
        raise Corrupt("orders@0 is damaged")

    monkeypatch.setattr(host.log, "read_many", corrupt)
    reply = host.ask(host.getting("orders"))
    assert (reply.code, reply.detail) == ("corrupt", "orders@0 is damaged; see once repair")
    assert host.put("orders", b"b").stored


@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), FileNotFoundError(2, "gone")])
def test_a_log_that_cannot_be_read_is_refused_to_its_reader_and_nobody_else(
    host, monkeypatch, error: OSError
) -> None:
    host.subscribe("orders")
    host.put("orders", b"a")

    def broken(*_: object, **__: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(host.log, "read_many", broken)
        patch.setattr(host.log, "offset_at", broken)
        reply = host.ask(host.getting("orders"))
        assert reply.code == "storage_unreadable"
        assert "could not read its log" in reply.detail
        since = Subscribe(ClientId("_anonymous-9"), Epoch(0), "orders", Start("time", 1))
        assert host.ask(since).code == "storage_unreadable"
        assert host.put("orders", b"b").stored
    assert host.get("orders") == ["orders@0=a", "orders@1=b"]
    assert host.ask(since).cursor == 0


def test_no_more_batches_leave_at_once_than_a_reply_may_have() -> None:
    shelf = Shelf(*(stored(n, b"x") for n in range(BODIES_MAX + 5)))
    reply, bodies = read(shelf, 0, BODIES_MAX + 5, limit=BODIES_MAX + 5)
    assert (len(bodies), reply.more) == (BODIES_MAX, True)


RUNS = (
    Run(2, A, 1, Number(1), Micros(10)),
    Run(3, B, 2, Number(7), Micros(20)),
    Run(1, A, 1, Number(3), Micros(30)),
)


@pytest.mark.parametrize(
    ("start", "stop", "kept"),
    [
        (0, 6, RUNS),
        (0, 1, (Run(1, A, 1, Number(1), Micros(10)),)),
        (1, 4, (Run(1, A, 1, Number(2), Micros(10)), Run(2, B, 2, Number(7), Micros(20)))),
        (3, 5, (Run(2, B, 2, Number(8), Micros(20)),)),
        (5, 6, (RUNS[2],)),
    ],
)
def test_a_slice_keeps_whose_messages_they_are(start, stop, kept) -> None:
    assert cut_runs(RUNS, start=start, stop=stop) == kept
