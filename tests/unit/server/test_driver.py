"""Between the frames and the disk: nothing is answered that is not durable, and all is answered."""

# pyright: reportArgumentType=false
# Names and numbers are written plainly here.

import errno
import struct

import msgspec
import pytest

from oncemq.protocol.limits import ServerLimits
from oncemq.protocol.names import ClientId, Epoch, Micros, Offset, TopicId, key_producer
from oncemq.protocol.names import Sequence as Number
from oncemq.protocol.records import Retention
from oncemq.protocol.replies import (
    Done,
    Messages,
    PutAccepted,
    RefusedReply,
    StatusReport,
    Subscribed,
    TopicShown,
    Welcome,
)
from oncemq.protocol.requests import (
    CommitRequest,
    CreateTopic,
    DeleteTopic,
    Hello,
    Input,
    Piece,
    Put,
    Read,
    Resume,
    Settle,
    Settled,
    ShowTopic,
    Start,
    StatusRequest,
    Subscribe,
    Unsubscribe,
    WatchEnds,
)
from oncemq.server.admission import LISTS, PIECE_BYTES
from oncemq.server.driver import GATHER_BYTES, LAZY_MICROS
from oncemq.storage.log.log import LogOptions
from oncemq.wire import batch, codec

PRODUCER = b"p" * 16
NOTHING = Messages((), False)


# ------------------------------------------------------------------ answers wait for the disk


def test_a_receipt_leaves_only_when_the_put_is_committed(host) -> None:
    host.subscribe("orders")
    token = host.send(*host.putting("orders", b"a"))
    assert host.replies() == {}
    group = host.driver.commit(Micros(host.now))
    assert host.replies() == {}
    host.log.write(group)
    assert host.replies() == {}
    host.driver.written(group, Micros(host.now))
    reply, _ = host.replies()[token]
    assert isinstance(reply, PutAccepted)
    assert (reply.first_offset, reply.stored) == (0, True)


def test_a_repeat_waits_for_the_put_it_repeats(host) -> None:
    host.subscribe("orders")
    put, body = host.putting("orders", b"a")
    host.send(put, body)
    group = host.driver.commit(Micros(host.now))
    again = host.send(put, body)  # while the first is on its way to the disk
    assert host.replies() == {}
    host.log.write(group)
    host.driver.written(group, Micros(host.now))
    assert host.replies()[again][0].duplicate is True


def test_a_failed_write_sends_nothing_ever(host, monkeypatch) -> None:
    host.subscribe("orders")
    host.send(*host.putting("orders", b"a"))
    group = host.driver.commit(Micros(host.now))

    def broken(_group: object) -> None:
        raise OSError(errno.EIO, "the disk is gone")

    monkeypatch.setattr(host.log, "write", broken)
    with pytest.raises(OSError, match="the disk is gone"):
        host.log.write(group)
    host.driver.tick(Micros(host.now + 10**9))
    assert host.replies() == {}


def test_messages_are_given_out_only_after_the_commit(host) -> None:
    host.subscribe("orders")
    host.send(*host.putting("orders", b"a"))
    token = host.send(host.getting("orders"))
    assert host.replies() == {token: (NOTHING, [])}
    host.commit()
    assert host.get("orders") == ["orders@0=a"]


def test_replies_leave_in_the_order_of_the_requests(host) -> None:
    host.subscribe("orders")
    tokens = [host.send(*host.putting("orders", b"x", first=n)) for n in (1, 2, 3)]
    host.commit()
    assert list(host.replies()) == tokens


def test_a_question_about_durable_facts_is_answered_at_once(host) -> None:
    host.subscribe("orders")
    token = host.send(ShowTopic("orders"))
    assert isinstance(host.replies()[token][0], TopicShown)


def test_a_put_is_there_after_a_restart_with_its_receipt(host) -> None:
    host.subscribe("orders")
    put, body = host.putting("orders", b"a", b"b")
    first = host.ask(put, body)
    host.restart()
    assert host.ask(put, body) == msgspec.structs.replace(first, duplicate=True)
    assert host.get("orders") == ["orders@0=a", "orders@1=b"]


def test_what_was_not_committed_is_not_there_after_a_restart(host) -> None:
    host.subscribe("orders")
    host.send(*host.putting("orders", b"a"))
    host.restart()
    assert host.get("orders") == []
    assert host.put("orders", b"a").duplicate is False


# ------------------------------------------------------------------ when to commit


def test_there_is_nothing_to_commit_when_nothing_was_written(host) -> None:
    assert host.driver.commit(Micros(1 << 62)) is None
    assert host.driver.next_deadline() is host.driver.next_commit() is None


def test_what_someone_waits_for_is_committed_at_once(host) -> None:
    host.subscribe("orders")
    host.send(*host.putting("orders", b"a"))
    assert host.driver.commit(Micros(host.now)) is not None


def test_a_cursor_nobody_waits_for_gathers_for_a_moment(host) -> None:
    subscription = host.subscribe("orders").subscription_id
    host.put("orders", b"a")
    settled = (Settled("orders", subscription, Offset(1)),)
    host.send(host.getting("orders", settled=settled))
    assert host.driver.next_commit() == host.now + LAZY_MICROS
    assert host.driver.commit(Micros(host.now + LAZY_MICROS - 1)) is None
    assert host.driver.commit(Micros(host.now + LAZY_MICROS)) is not None


def test_a_cursor_is_committed_in_time_though_others_go_on_moving(host) -> None:
    subscription = host.subscribe("orders").subscription_id
    host.put("orders", b"a", b"b")
    since = host.now
    for cursor in (1, 2):
        settled = (Settled("orders", subscription, Offset(cursor)),)
        host.send(host.getting("orders", settled=settled))
        host.now += LAZY_MICROS - 1
    assert host.driver.next_commit() == since + LAZY_MICROS
    assert host.driver.commit(Micros(since + LAZY_MICROS)) is not None


def test_so_much_is_committed_though_nobody_waits(host) -> None:
    host.subscribe("orders")
    host.driver._held.waiting.clear()
    host.send(*host.putting("orders", b"x" * GATHER_BYTES))
    host.driver._held.waiting.clear()
    assert host.driver.commit(Micros(host.now)) is not None


def test_with_an_interval_no_receipt_is_older_than_that_and_not_synced(make_host) -> None:
    host = make_host(LogOptions(sync_ms=300))
    host.subscribe("orders")
    told: list[tuple[int, int]] = []  # when a put was acknowledged, and its serial
    syncs = 0
    for _ in range(5_000):  # one busy publisher, a put each millisecond
        host.now += 1_000
        host.send(*host.putting("orders", b"a"))
        host.sequences["orders", PRODUCER] = host.sequences.get(("orders", PRODUCER), 0) + 1
        group = host.driver.commit(Micros(host.now))
        host.log.write(group)
        syncs += group.sync
        host.driver.written(group, Micros(host.now))
        told.append((host.now, host.log.last_serial))
        durable = host.log.durable_serial
        at_risk = [now for now, serial in told[-400:] if serial > durable]
        assert not at_risk or host.now - at_risk[0] < 300_000
    assert len(host.replies()) == 5_000
    assert 16 <= syncs <= 34  # one in 150 to 300 ms: an interval is there to save syncs


def test_with_an_interval_the_last_receipt_is_synced_when_nothing_follows(make_host) -> None:
    host = make_host(LogOptions(sync_ms=300))
    host.subscribe("orders")
    assert host.log.durable_serial < host.log.last_serial
    due = host.driver.next_commit()
    assert due is not None
    assert due - host.now < 300_000
    assert host.driver.commit(Micros(due - 1)) is None
    group = host.driver.commit(due)
    host.log.write(group)
    host.driver.written(group, due)
    assert host.log.durable_serial == host.log.last_serial
    assert host.driver.next_commit() is None


def test_the_next_deadline_is_that_of_a_waiting_get_too(host) -> None:
    host.subscribe("orders")
    host.send(host.getting("orders", wait_ms=3))
    assert host.driver.next_deadline() == host.now + 3_000
    host.driver.tick(Micros(host.now + 3_000))
    assert [reply for reply, _ in host.replies().values()] == [NOTHING]


def test_a_waiting_get_is_answered_by_the_commit_that_brings_its_message(host) -> None:
    host.subscribe("orders")
    token = host.send(host.getting("orders", wait_ms=5_000))
    host.commit()
    assert token not in host.replies()
    host.send(*host.putting("orders", b"a"))
    assert host.replies() == {}
    host.commit()
    assert host.replies()[token][0].batches[0].count == 1


# ------------------------------------------------------------------ frames of every kind


def head(opcode: int, fields: bytes = b"\x90", version: int = 1) -> bytes:
    return struct.pack(">2sBBQ", b"OQ", version, opcode, 42) + fields


BAD_FRAMES = [
    ([], 0, "malformed"),
    ([b""], 0, "malformed"),
    ([b"GET / HTTP/1.1\r\n\r\n"], 0, "malformed"),
    ([head(14, version=9)], 42, "version"),
    ([head(99)], 42, "opcode"),
    ([head(3), b"body"], 42, "malformed"),
    ([head(14), b"body"], 42, "malformed"),
    ([head(12, b"\x91\xa1\xff")], 42, "malformed"),
    ([head(14, b"\x91" * 200_000)], 42, "malformed"),
]


@pytest.mark.parametrize(("frames", "token", "code"), BAD_FRAMES)
def test_frames_that_are_no_request_get_a_refusal_and_change_nothing(
    host, frames, token, code
) -> None:
    host.driver.receive(b"route", frames, Micros(host.now))
    ((found, (reply, _)),) = host.replies().items()
    assert (found, reply.code) == (token, code)
    assert host.log.last_serial == 0


def test_a_reply_goes_back_where_the_request_came_from(host) -> None:
    host.driver.receive(b"elsewhere", codec.encode_request(7, StatusRequest()), Micros(host.now))
    ((route, frames),) = host.driver.outgoing
    assert (route, codec.decode_reply(frames)[0]) == (b"elsewhere", 7)


def test_a_hello_is_answered_with_the_limits_of_this_server(make_host) -> None:
    host = make_host(rules=ServerLimits(message_bytes_max=5, batch_bytes_max=50))
    reply = host.ask(Hello(ClientId("me"), Epoch(0), 1))
    assert isinstance(reply, Welcome)
    assert (reply.limits.message_bytes, reply.limits.batch_bytes) == (5, 50)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"checksum": 1}, "checksum"),
        ({"count": 2}, "malformed"),
        ({"count": 0}, "malformed"),
        ({"count": -1}, "malformed"),
        ({"count": 2**63}, "too_large"),
        ({"columns": 3}, "malformed"),
        ({"columns": 64}, "malformed"),
        ({"first_sequence": 2}, "checksum"),
        ({"topic": "other"}, "checksum"),
        ({"producer": b"q" * 16}, "checksum"),
    ],
)
def test_a_put_that_is_not_what_it_says_is_refused(host, change, code) -> None:
    host.subscribe("orders")
    put, body = host.putting("orders", b"a")
    reply = host.ask(msgspec.structs.replace(put, **change), body)
    assert (type(reply), reply.code) == (RefusedReply, code)
    assert host.get("orders") == []


def test_a_flipped_byte_in_the_body_is_refused(host) -> None:
    host.subscribe("orders")
    put, body = host.putting("orders", b"abc")
    assert host.ask(put, body[:-1] + b"X").code == "checksum"


def test_what_is_over_a_limit_is_refused_and_names_it(make_host) -> None:
    rules = ServerLimits(message_bytes_max=10, batch_bytes_max=60, batch_messages_max=4)
    host = make_host(rules=rules)
    host.subscribe("orders")
    assert host.put("orders", b"x" * 10).stored
    for payloads in ([b"x" * 11], [b"x" * 9] * 5, [b""] * 5):
        reply = host.ask(*host.putting("orders", *payloads))
        assert (reply.code, "over the" in reply.detail) == ("too_large", True)


# ------------------------------------------------------------------ starts by time


def test_a_subscription_may_begin_at_a_time(host) -> None:
    host.ask(CreateTopic("orders", Retention(forever=True)))
    times = []
    for payload in (b"a", b"b", b"c"):
        host.now += 1_000_000
        host.put("orders", payload)
        times.append(host.now)
    reply = host.subscribe("orders", Start("time", times[1]))
    assert isinstance(reply, Subscribed)
    assert reply.cursor == 1
    assert host.get("orders") == ["orders@1=b", "orders@2=c"]


@pytest.mark.parametrize(("seconds", "cursor"), [(-100, 0), (100, 2)])
def test_a_time_before_everything_is_earliest_and_one_after_is_new(host, seconds, cursor) -> None:
    host.ask(CreateTopic("orders", Retention(forever=True)))
    host.put("orders", b"a", b"b")
    start = Start("time", host.now + seconds * 1_000_000)
    assert host.subscribe("orders", start).cursor == cursor


def test_a_time_on_a_topic_that_is_not_there_is_new(host) -> None:
    assert host.subscribe("orders", Start("time", 5)).cursor == 0


def test_a_time_before_what_is_kept_begins_with_what_is_kept(host) -> None:
    subscription = host.subscribe("orders").subscription_id
    host.put("orders", b"a", b"b")
    settled = (Settled("orders", subscription, Offset(1)),)
    host.ask(Settle(ClientId("_anonymous-1"), Epoch(0), settled))
    late = Subscribe(ClientId("_anonymous-9"), Epoch(0), "orders", Start("time", 0))
    assert host.ask(late).cursor == 1


# ------------------------------------------------------------------ what is shown


def test_the_status_says_what_the_disk_promises(host) -> None:
    host.subscribe("orders")
    report = host.ask(StatusRequest())
    assert isinstance(report, StatusReport)
    assert report.facts["sync"] == "always"
    assert report.facts["sync_gives_up"] == "nothing: every acknowledged put is synced"
    assert report.facts["durable_serial"] == report.facts["last_serial"] == 2
    assert int(report.facts["disk_bytes"]) > 0


def test_the_status_says_what_an_interval_gives_up(make_host) -> None:
    facts = make_host(LogOptions(sync_ms=50)).ask(StatusRequest()).facts
    assert facts["sync"] == "interval 50 ms"
    assert "50 ms" in facts["sync_gives_up"]


def test_a_topic_is_shown_with_its_bytes_on_disk(host) -> None:
    host.subscribe("orders")
    host.put("orders", b"x" * 1000)
    assert host.ask(ShowTopic("orders")).topic.stored_bytes >= 1000


def test_delivered_messages_are_counted(host) -> None:
    host.subscribe("orders")
    host.put("orders", b"a", b"b", b"c")
    host.get("orders", limit=2)
    assert host.ask(StatusRequest()).facts["sent"] == 2


# ------------------------------------------------------------------ what a request may cost


def test_settled_entries_that_fit_nothing_take_no_room(host, monkeypatch) -> None:
    host.subscribe("orders")
    asked: list[int] = []
    room = host.log.has_room

    def has_room(size: int, **how) -> bool:
        asked.append(size)
        return room(size, **how)

    monkeypatch.setattr(host.log, "has_room", has_room)
    unknown = tuple(Settled("orders", number, Offset(1)) for number in range(1, 10_000))
    host.ask(host.getting("orders", settled=unknown))
    host.ask(Settle(ClientId("_anonymous-1"), Epoch(0), unknown))
    assert max(asked) < 10_000


@pytest.mark.parametrize("kind", [kind for kind, names in LISTS.items() if names])
def test_every_list_of_a_request_has_a_limit(make_host, kind) -> None:
    host = make_host(rules=ServerLimits(request_entries_max=3))
    known = {"client": "_anonymous-1", "client_epoch": 0, "topic": "orders"}
    entries = {
        "settled": Settled("orders", 1, 1), "only": "orders", "topics": "orders",
        "pieces": Piece("orders", b"s" * 16, 0, 1), "inputs": Input("orders", 1, 0, 1),
    }  # fmt: skip
    for name in LISTS[kind]:
        if name not in entries:
            continue
        entry = ("orders", 0) if kind is WatchEnds else entries[name]
        fields = {field.name for field in msgspec.structs.fields(kind)}
        values = {key: value for key, value in known.items() if key in fields}
        if kind is CommitRequest:
            values |= {"owner": "o", "number": 1, "lasting": False}
        reply = host.ask(kind(**values, **{name: (entry,) * 4}))
        assert reply.code == "too_large"
        assert f"{name} of {kind.__name__} has 4 entries, over the limit of 3" in reply.detail


# ------------------------------------------------------------------ marks


def test_what_is_durable_is_marked_so_once_nothing_else_comes(host) -> None:
    """Else damage to the last records could be taken for a write that was cut off."""
    host.ask(CreateTopic("orders"))
    assert host.log.last_serial == 1
    for last in (2, 2):  # the mark itself needs none
        host.driver.upkeep(Micros(host.now))
        host.commit()
        assert host.log.last_serial == last


# ------------------------------------------------------------------ a full disk


@pytest.fixture
def full(make_host):
    """A server whose disk takes no more puts; `acked` were stored."""
    options = LogOptions(
        segment_bytes=1 << 16, allocate_bytes=1 << 14, reserve_bytes=1 << 15,
        disk_bytes_max=200_000, checkpoint_records=1,
    )  # fmt: skip
    host = make_host(options)
    host.subscription = host.subscribe("orders").subscription_id
    host.acked = 0
    while isinstance(reply := host.put("orders", b"x" * 4000), PutAccepted):
        host.acked += 1
    assert reply.code == "storage_full"
    host.sequences["orders", b"p" * 16] = host.acked
    return host


def test_a_full_disk_refuses_puts_and_stores_nothing_of_them(full) -> None:
    assert 10 < full.acked < 50
    before = full.log.last_serial
    reply = full.ask(*full.putting("orders", b"x" * 4000))
    assert (reply.code, "goes on by itself" in reply.detail) == ("storage_full", True)
    assert full.log.last_serial == before
    assert full.log.bytes_used <= 200_000


def test_with_a_full_disk_gets_and_settling_go_on(full) -> None:
    taken = full.get("orders", limit=full.acked)
    assert len(taken) == full.acked
    settled = (Settled("orders", full.subscription, Offset(full.acked)),)
    assert full.ask(Settle(ClientId("_anonymous-1"), Epoch(0), settled)) == Done(True)
    assert full.get("orders") == []


def test_a_put_refused_by_a_full_disk_is_new_once_there_is_room(full) -> None:
    _free(full)
    full.now += 2_000_000
    reply = full.ask(*full.putting("orders", b"x" * 4000))
    assert isinstance(reply, PutAccepted)
    assert (reply.first_offset, reply.duplicate) == (full.acked, False)


def test_that_the_disk_is_full_and_then_is_not_is_noted_once_each(full) -> None:
    full.ask(*full.putting("orders", b"x" * 4000))  # refused again
    counts = full.driver.events.counts
    assert (counts["disk_full"], counts["disk_has_room_again"]) == (1, 0)
    _free(full)
    full.now += 2_000_000
    for first in range(full.acked + 1, full.acked + 4):
        assert isinstance(full.ask(*full.putting("orders", b"x", first=first)), PutAccepted)
    assert (counts["disk_full"], counts["disk_has_room_again"]) == (1, 1)


def test_a_repeat_of_a_stored_put_needs_no_room(full) -> None:
    """It writes nothing, and its publisher waits for the receipt to free its own disk."""
    again = full.ask(*full.putting("orders", b"x" * 4000, first=full.acked))
    assert isinstance(again, PutAccepted)
    assert (again.first_offset, again.duplicate) == (full.acked - 1, True)


def test_when_even_the_reserve_is_used_only_what_writes_nothing_goes_on(full, monkeypatch) -> None:
    monkeypatch.setattr(full.log, "has_room", lambda size, *, now_ms, fact=False: False)
    settled = (Settled("orders", full.subscription, Offset(3)),)
    guest = ClientId("_anonymous-1")
    for request in (
        Hello(ClientId("me"), Epoch(0), 1),
        Settle(guest, Epoch(0), settled),
        Subscribe(guest, Epoch(0), "other"),
        Unsubscribe(guest, Epoch(0), "orders"),
        CreateTopic("other"),
        DeleteTopic("orders"),
        full.getting("orders", settled=settled),  # nobody may think that it was noted
    ):
        assert full.ask(request).code == "storage_full"
    reply, _ = full.ask_all(full.getting("orders", limit=2))
    assert reply.batches[0].first_offset == 0  # the cursor did not move, gets go on
    for request in (
        StatusRequest(),
        ShowTopic("orders"),
        Read("orders", Offset(0)),
        WatchEnds((("orders", Offset(0)),)),
        Resume(guest, Epoch(0), "orders", b"p" * 16, 1),
    ):
        assert not isinstance(full.ask(request), RefusedReply)
    full.driver.upkeep(Micros(full.now))
    assert full.driver.commit(Micros(1 << 62)) is None


def _free(host) -> None:
    """Everything is settled; checkpoints and compaction let it go."""
    settled = (Settled("orders", host.subscription, Offset(host.acked)),)
    host.ask(Settle(ClientId("_anonymous-1"), Epoch(0), settled))
    assert host.compact() > 0


# ------------------------------------------------------------------ upkeep


def test_retention_lets_go_of_what_is_too_old(host) -> None:
    host.ask(CreateTopic("orders", Retention(keep_ms=1000)))
    host.put("orders", b"a", b"b")
    host.driver.upkeep(Micros(host.now))
    host.commit()
    assert host.broker.shard.by_name["orders"].low == 0
    host.now += 1_000_000
    host.driver.upkeep(Micros(host.now))
    host.commit()
    assert host.broker.shard.by_name["orders"].low == 2
    assert host.ask(Read("orders", Offset(0))).code == "offset_out_of_range"


def test_a_log_at_rest_is_marked_once(host) -> None:
    host.subscribe("orders")
    host.driver.upkeep(Micros(host.now))
    host.commit()
    marked = host.log.last_serial
    host.driver.upkeep(Micros(host.now))
    assert (marked, host.log.last_serial) == (3, 3)


def test_keyed_messages_are_read_again_after_a_restart_and_after_compaction(make_host) -> None:
    host = make_host(LogOptions(segment_bytes=2048, allocate_bytes=1024, reserve_bytes=256))
    host.ask(CreateTopic("orders", Retention(forever=True)))
    host.subscribe("settled")
    for number in range(6):
        body = batch.encode_payloads([b"%d" % number])
        key = f"k-{number}"
        producer = key_producer(key)
        checksum = batch.checksum(body, batch.seed("orders", producer, 1, 1))
        put = Put(
            ClientId("_anonymous-1"), Epoch(0), "orders", TopicId(0), producer, False, Number(1),
            1, 0, checksum, idempotency_key=key,
        )  # fmt: skip
        assert host.ask(put, body).first_offset == number
        host.put("elsewhere", b"x" * 900)
        host.put("settled", b"x" * 900)
    host.restart()
    assert host.read("orders") == [b"%d" % number for number in range(6)]
    host.ask(DeleteTopic("settled"))
    host.compact()
    host.restart()
    assert host.read("orders") == [b"%d" % number for number in range(6)]
    assert host.ask(put, body).duplicate


def test_what_patterns_make_of_a_request_has_to_have_room_as_well(host, monkeypatch) -> None:
    asked: list[int] = []

    def has_room(size: int, *, now_ms: int, fact: bool = False) -> bool:
        asked.append(size)
        return True

    monkeypatch.setattr(host.log, "has_room", has_room)
    put, body = host.putting("orders.1", b"x")
    host.send(put, body)
    alone = asked.pop()
    for number in range(3):
        host.ask(Subscribe(ClientId(f"_anonymous-{number}"), Epoch(0), "orders.*"))
    put, body = host.putting("orders.2", b"x")
    asked.clear()
    host.send(put, body)
    assert asked[0] == alone + 3 * PIECE_BYTES
    host.send(*host.putting("orders.2", b"x", producer=b"q" * 16))  # the topic is there now
    assert asked[1] == alone


def test_a_commit_has_to_have_room_for_all_that_it_names(host, monkeypatch) -> None:
    asked: list[int] = []

    def has_room(size: int, *, now_ms: int, fact: bool = False) -> bool:
        asked.append(size)
        return True

    monkeypatch.setattr(host.log, "has_room", has_room)
    pieces = tuple(Piece("orders", b"s" * 16, Offset(at), 1) for at in range(2))
    inputs = tuple(Input("orders", 1, Offset(at), Offset(at + 1)) for at in range(3))
    for each in (((), ()), (pieces, ()), ((), inputs), (pieces, inputs)):
        owner = {"client": ClientId("_anonymous-1"), "client_epoch": Epoch(0), "owner": "o"}
        host.send(CommitRequest(**owner, number=1, pieces=each[0], inputs=each[1], lasting=False))
    assert [size - asked[0] for size in asked] == [each * PIECE_BYTES for each in (0, 2, 3, 5)]
