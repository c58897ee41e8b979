"""Whatever comes through the port: one refusal that says what is wrong, and no harm done.

Every test ends with the same look around: the server answers, a bystander's messages come and go,
and nothing of what was refused is stored.
"""

import os
import random
import signal
import socket
import struct
import subprocess
import sys
import threading
import unicodedata
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import pytest

from oncemq import Client, Locked, Message, PortInUse, testing
from oncemq.assembly import Server
from oncemq.errors import StorageRefused
from oncemq.protocol.limits import ServerLimits
from oncemq.protocol.names import ClientId, Epoch, Offset, SubscriptionId
from oncemq.protocol.replies import (
    Messages,
    PutAccepted,
    RefusedReply,
    Reply,
    StatusReport,
    Subscribed,
    Welcome,
)
from oncemq.protocol.requests import (
    REQUESTS,
    CreateTopic,
    DeleteTopic,
    Get,
    Hello,
    ListSubscriptions,
    Read,
    Request,
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
from oncemq.storage.log.log import LogOptions
from oncemq.wire import batch, codec
from tests.e2e.peer import ANYONE, PRODUCER, Peer, peer, put_of
from tests.e2e.processes import environment

GUEST = ClientId(ANYONE)
NONE = Epoch(0)
RULES = ServerLimits(message_bytes_max=1000, batch_bytes_max=4000, batch_messages_max=50)


class Ground:
    """A server with one topic, one message in it, and a bystander who minds his own business."""

    def __init__(self, address: str, raw: Peer, bystander: Client) -> None:
        self.address = address
        self.raw = raw
        self._bystander = bystander
        self._puts = 1
        bystander.subscribe("orders")
        bystander.put("orders", b"before")
        assert len(bystander.get("orders")) == 1

    def heard(self, count: int) -> list[Message]:
        """So many messages were rightly put by the raw connection: here they are."""
        self._puts += count
        messages = self._bystander.get("orders", limit=count + 1, wait=5)
        assert len(messages) == count
        return messages

    def look_around(self) -> None:
        mq = self._bystander
        assert [topic.name for topic in mq.topics()] == ["orders"], "a refused request made a topic"
        assert mq.topic("orders").topic.end == self._puts, "a refused request was stored"
        assert mq.put("orders", b"after").stored
        assert mq.get("orders", limit=10)[-1].payload == b"after"


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    with (
        testing.server(rules=RULES) as address,
        Client(address, id="bystander", state=tmp_path / "bystander", timeout=20) as bystander,
        peer(address) as raw,
    ):
        ground = Ground(address, raw, bystander)
        yield ground
        ground.look_around()


def head(*, magic: bytes = b"OQ", version: int = 1, opcode: int = 14, token: int = 7) -> bytes:
    return struct.pack(">2sBBQ", magic, version, opcode, token)


def refused(reply: Reply, code: str, *words: str) -> RefusedReply:
    """The reply is a refusal with this code, and its detail says these words."""
    assert isinstance(reply, RefusedReply), reply
    assert reply.code == code, reply
    for word in words:
        assert word in reply.detail, f"{word!r} is not in {reply.detail!r}"
    return reply


# ------------------------------------------------------------------ frames


@pytest.mark.parametrize("opcode", [0, 19, 63, 64, 67, 255])
def test_an_unknown_opcode_is_refused_with_those_that_are_known(
    ground: Ground, opcode: int
) -> None:
    reply = ground.raw.say(head(opcode=opcode) + msgspec.msgpack.encode([]))
    refused(reply, "opcode", str(opcode), "known: 1, 2, 3")


@pytest.mark.parametrize("version", [0, 2, 255])
def test_another_version_is_refused_with_the_one_spoken(ground: Ground, version: int) -> None:
    ground.raw.send(head(version=version) + msgspec.msgpack.encode([]))
    token, reply = ground.raw.hear()
    assert token == 7  # the asker knows which of its requests it was
    refused(reply, "version", f"version {version} ", "only 1")


def test_another_protocol_is_refused(ground: Ground) -> None:
    refused(ground.raw.say(head(magic=b"MQ") + b"\x90"), "malformed", "OnceMQ's protocol")


def test_an_empty_message_asks_nothing_and_is_passed_over(ground: Ground) -> None:
    ground.raw.send(b"")  # as a ZeroMQ socket says that it is there (ZMQ_PROBE_ROUTER)
    assert isinstance(ground.raw.ask(StatusRequest()), StatusReport)
    assert ground.raw.silent()


@pytest.mark.parametrize("size", range(1, 12))
def test_a_truncated_head_is_refused(ground: Ground, size: int) -> None:
    refused(ground.raw.say(head()[:size]), "malformed", "12 bytes", f"got {size}")


@pytest.mark.parametrize("frames", [2, 3, 1000])
def test_surplus_frames_are_refused(ground: Ground, frames: int) -> None:
    status = bytes(codec.encode_request(7, StatusRequest())[0])
    reply = ground.raw.say(status, *[b"surplus"] * (frames - 1))
    refused(reply, "malformed", "StatusRequest has 1 frames", f"got {frames}")


def test_a_put_without_its_body_or_with_two_is_refused(ground: Ground) -> None:
    put, body = put_of(b"one")
    frame = bytes(codec.encode_request(7, put)[0])
    refused(ground.raw.say(frame), "malformed", "Put has 2 frames", "got 1")
    refused(ground.raw.say(frame, body, body), "malformed", "Put has 2 frames", "got 3")


FIELDS = {
    "c1": b"\xc1",  # the one byte msgpack never uses
    "huge-array": b"\xdd\xff\xff\xff\xff",  # four milliards of things, and none of them there
    "huge-text": b"\xdb\xff\xff\xff\xff",
    "map": b"\x81\xa1a\xa1b",
    "garbage": b"\xff\xfe\xfd",
    "text": msgspec.msgpack.encode("text"),
    "deep": b"\x91" * 5000,  # arrays in arrays in arrays
    "wrong-types": msgspec.msgpack.encode([[], {}, None, 1.5, b"", "", [], {}]),
}
# A request without fields takes any array: a later version may send more.
FITTING = {(StatusRequest.opcode, "deep"), (StatusRequest.opcode, "wrong-types")}


@pytest.mark.parametrize(
    ("opcode", "fields"),
    [each for each in product(sorted(REQUESTS), FIELDS) if each not in FITTING],
)
def test_fields_that_are_not_the_requests_are_refused(
    ground: Ground, opcode: int, fields: str
) -> None:
    refused(ground.raw.say(head(opcode=opcode) + FIELDS[fields], b"body"), "malformed")


def test_missing_fields_are_refused_by_name_of_the_request(ground: Ground) -> None:
    fields = msgspec.msgpack.encode(["client", 0])
    refused(ground.raw.say(head(opcode=Get.opcode) + fields), "malformed", "Get")


@pytest.mark.parametrize("number", [-1, 1 << 63, (1 << 64) - 1])
def test_numbers_at_the_edge_are_answered(ground: Ground, number: int) -> None:
    """Refused or granted, but answered, and nothing breaks."""
    subscribed = ground.raw.ask(Subscribe(GUEST, NONE, "orders"))
    assert isinstance(subscribed, Subscribed)
    questions: list[tuple[Request, bytes | None]] = [
        (Get(GUEST, Epoch(number), "orders"), None),
        (Get(GUEST, NONE, "orders", start=number), None),
        (Get(GUEST, NONE, "orders", limit=number), None),
        (Get(GUEST, NONE, "orders", bytes_max=number), None),
        (Read("orders", Offset(number)), None),
        (Read("orders", Offset(0), limit=number, bytes_max=number), None),
        (WatchEnds((("orders", Offset(number)),)), None),
        (Hello(ClientId("edge"), Epoch(number), number), None),
        (Subscribe(GUEST, NONE, "orders", Start("offset", number)), None),
        (Settle(GUEST, NONE, (Settled("orders", SubscriptionId(number), Offset(0)),)), None),
        (ListSubscriptions(limit=number), None),
        put_of(b"x", first_sequence=number),
        put_of(b"x", topic_id=number),
        put_of(b"x", columns=number),
        put_of(b"x", count=number),
        put_of(b"x", checksum=number),
        put_of(b"x", client="edge", client_epoch=number),
    ]
    for request, body in questions:
        reply = ground.raw.ask(request, body)
        assert not isinstance(reply, PutAccepted), request
    ground.raw.ask(Unsubscribe(GUEST, NONE, "orders"))


# ------------------------------------------------------------------ batches


def test_a_batch_over_the_limits_is_refused_with_the_limit(ground: Ground) -> None:
    raw = ground.raw
    refused(raw.ask(*put_of(*[b"x" * 900] * 5)), "too_large", "4000", "smaller")
    refused(raw.ask(*put_of(b"x" * 1001)), "too_large", "1001", "1000")
    refused(raw.ask(*put_of(*[b""] * 51)), "too_large", "51", "50")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"count": 0}, "at least one"),
        ({"count": -1}, "at least one"),
        ({"count": 2}, ""),
        ({"count": 40}, "40 messages"),
        ({"columns": 4}, "not known"),
        ({"columns": -1}, "not known"),
        ({"columns": batch.KEYS}, ""),
        ({"columns": batch.HEADERS}, ""),
        ({"columns": batch.KEYS | batch.HEADERS}, ""),
        ({"body": b""}, "only 0 bytes"),
        ({"body": struct.pack("<II", 3, 0)}, "backwards"),
        ({"body": struct.pack("<II", 0, 9) + b"short"}, "end at byte 17"),
        ({"body": struct.pack("<II", 0, 1) + b"long"}, "end at byte 9"),
        ({"body": struct.pack("<II", 0, 0xFFFFFFFF) + b"x"}, "end at byte"),
    ],
)
def test_a_batch_that_lies_about_itself_is_refused(
    ground: Ground, changes: dict[str, Any], words: str
) -> None:
    refused(ground.raw.ask(*put_of(b"one", **changes)), "malformed", words)


@pytest.mark.parametrize("packed", [b"\xc1", b"\x93\x01\x02\x03", b"\x81\x01\x02", b"\x81\xa1a"])
def test_headers_that_are_none_are_refused(ground: Ground, packed: bytes) -> None:
    fine = msgspec.msgpack.encode({"colour": "blue"})
    tables = struct.pack("<III", 0, 3, 6) + struct.pack(
        "<III", 0, len(fine), len(packed) + len(fine)
    )
    body = tables + b"onebad" + fine + packed
    put = put_of(b"one", b"bad", columns=batch.HEADERS, body=body, count=2)
    refused(ground.raw.ask(*put), "malformed", "the headers of message 1 of the batch")


def test_a_batch_whose_checksum_is_wrong_is_refused(ground: Ground) -> None:
    put, body = put_of(b"one")
    other = msgspec.structs.replace(put, checksum=put.checksum ^ 1)
    refused(ground.raw.ask(other, body), "checksum", "again")
    refused(ground.raw.ask(put, body[:-1] + b"X"), "checksum", "again")
    moved = msgspec.structs.replace(put, topic="elsewhere")
    refused(ground.raw.ask(moved, body), "checksum", "again")


# ------------------------------------------------------------------ names


BAD_NAMES = {
    "empty": ("", "empty"),
    "256 bytes": ("x" * 256, "255 at most"),
    "256 bytes in 128 letters": ("é" * 128, "255 at most"),
    "newline": ("a\nb", "control"),
    "nul": ("a\0b", "control"),
    "escape": ("\x1b[31mred", "control"),
    "delete": ("a\x7f", "control"),
    "not NFC": (unicodedata.normalize("NFD", "é"), "NFC"),
    "leading underscore": ("_mine", "system"),
}


@pytest.mark.parametrize(("name", "word"), BAD_NAMES.values(), ids=BAD_NAMES)
def test_a_name_outside_the_rules_is_refused_wherever_it_is_used(
    ground: Ground, name: str, word: str
) -> None:
    raw = ground.raw
    refused(raw.ask(*put_of(b"one", topic=name)), "name_invalid", word)
    refused(raw.ask(Subscribe(GUEST, NONE, name)), "name_invalid", word)
    refused(raw.ask(CreateTopic(name)), "name_invalid", word)
    refused(raw.ask(Hello(ClientId(name), NONE, 7)), "name_invalid", word)


def test_a_name_that_is_not_utf_8_is_refused(ground: Ground) -> None:
    fields = msgspec.msgpack.encode(["X" * 4, []]).replace(b"XXXX", b"\xff\xfe\xff\xfe")
    refused(ground.raw.say(head(opcode=CreateTopic.opcode) + fields), "malformed", "CreateTopic")


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "/etc/passwd", "..", "a/b", "C:\\x", "CON", "lock", "%2e%2e", "~"]
)
def test_a_name_that_looks_like_a_path_is_a_name(tmp_path: Path, name: str) -> None:
    data = tmp_path / "data"

    def files() -> set[str]:
        return {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")}

    with testing.server(data) as address:
        before = files()
        with Client(address) as mq:
            mq.subscribe(name)
            mq.put(name, b"content")
            assert [(m.topic, m.payload) for m in mq.get(name)] == [(name, b"content")]
        assert files() == before


@pytest.mark.parametrize(
    "name", ["../../outside", "/tmp/outside", "..", "a/b", ".hidden", "ü~x", "a" * 255]
)
def test_a_client_id_that_looks_like_a_path_keeps_its_state_in_its_place(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home" / "state"))
    with testing.server() as address, Client(address, id=name) as mq:
        mq.put("t", b"x")
    assert [path.name for path in tmp_path.iterdir()] == ["home"]
    (place,) = (tmp_path / "home" / "state" / "oncemq").iterdir()
    assert (place / "state.db").exists()


# ------------------------------------------------------------------ cursors, sequences, epochs


def test_a_cursor_beyond_the_end_is_refused_and_moves_nothing(ground: Ground) -> None:
    raw = ground.raw
    subscribed = raw.ask(Subscribe(GUEST, NONE, "orders", Start("earliest")))
    assert isinstance(subscribed, Subscribed)
    settled = (Settled("orders", subscribed.subscription_id, Offset(2)),)
    refused(raw.ask(Settle(GUEST, NONE, settled)), "cursor_beyond_end", "@2", "@1")
    refused(raw.ask(Get(GUEST, NONE, "orders", settled)), "cursor_beyond_end", "@2", "@1")
    shown = raw.ask(Subscribe(GUEST, NONE, "orders"))
    assert isinstance(shown, Subscribed)
    assert (shown.made, shown.cursor) == (False, 0)
    raw.ask(Unsubscribe(GUEST, NONE, "orders"))


@pytest.mark.parametrize("offset", [-1, 2, 1 << 62])
def test_an_offset_that_is_not_there_is_refused_with_those_that_are(
    ground: Ground, offset: int
) -> None:
    raw = ground.raw
    start = Start("offset", offset)
    refused(raw.ask(Subscribe(GUEST, NONE, "orders", start)), "offset_out_of_range", str(offset))
    refused(raw.ask(Read("orders", Offset(offset))), "offset_out_of_range", "0 up to 1")


def test_a_start_that_is_none_is_refused(ground: Ground) -> None:
    refused(ground.raw.ask(Subscribe(GUEST, NONE, "orders", Start("later"))), "malformed", "later")


def test_a_gap_in_the_sequence_is_refused_with_the_number_expected(ground: Ground) -> None:
    raw = ground.raw
    refused(raw.ask(*put_of(b"two", first_sequence=2)), "sequence_gap", "sequence 1", "got 2")
    assert isinstance(raw.ask(*put_of(b"one")), PutAccepted)
    refused(raw.ask(*put_of(b"three", first_sequence=3)), "sequence_gap", "sequence 2", "got 3")
    ground.heard(1)


def test_a_repeated_sequence_is_answered_alike_and_with_another_payload_refused(
    ground: Ground,
) -> None:
    raw = ground.raw
    first = raw.ask(*put_of(b"one"))
    assert isinstance(first, PutAccepted)
    assert raw.ask(*put_of(b"one")) == msgspec.structs.replace(first, duplicate=True)
    refused(raw.ask(*put_of(b"two")), "payload_conflict", "sequence 1", "another payload")
    refused(raw.ask(*put_of(b"one", b"two")), "payload_conflict", "overlap")
    ground.heard(1)


@pytest.mark.parametrize("changes", [{"first_sequence": 0}, {"producer": b""}, {"producer": b"x"}])
def test_a_put_without_a_proper_number_is_refused(ground: Ground, changes: dict[str, Any]) -> None:
    refused(ground.raw.ask(*put_of(b"one", **changes)), "malformed", "from 1", "16 bytes")


def test_an_old_epoch_is_refused_everywhere(ground: Ground) -> None:
    raw, ada = ground.raw, ClientId("ada")
    first = raw.ask(Hello(ada, NONE, 1))
    second = raw.ask(Hello(ada, Epoch(1), 2))
    assert isinstance(first, Welcome)
    assert isinstance(second, Welcome)
    old, future = first.client_epoch, Epoch(second.client_epoch + 1)
    for epoch, code in ((old, "fenced"), (future, "unknown_client")):
        put = put_of(b"one", client=ada, client_epoch=epoch, lasting=True)
        refused(raw.ask(*put), code, "'ada'")
        requests: list[Request] = [
            Resume(ada, epoch, "orders", PRODUCER, 1),  # type: ignore[arg-type]
            Get(ada, epoch, "orders"),
            Settle(ada, epoch, ()),
            Subscribe(ada, epoch, "orders"),
            Unsubscribe(ada, epoch, "orders"),
        ]
        for request in requests:
            refused(raw.ask(request), code, "'ada'")
    assert raw.ask(Hello(ada, Epoch(1), 2)) == second  # repeated: the same start
    refused(raw.ask(Hello(ada, Epoch(1), 3)), "stale_state", "old copy")


def test_a_topic_that_is_not_there_is_refused_with_those_that_are(ground: Ground) -> None:
    requests: list[Request] = [
        ShowTopic("ordres"),
        Read("ordres", Offset(0)),
        DeleteTopic("ordres"),
        ListSubscriptions("ordres"),
    ]
    for request in requests:
        refused(ground.raw.ask(request), "no_such_topic", "'ordres'", "this server has: orders")


# ------------------------------------------------------------------ any bytes at all


def test_requests_with_flipped_bytes_are_each_answered_once(ground: Ground) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    put, body = put_of(b"flip", client="_anonymous-flipped", topic="orders")
    requests: list[list[bytes]] = [
        [bytes(frame) for frame in codec.encode_request(7, request)]
        for request in (Get(GUEST, NONE, "orders", limit=3), Hello(ClientId("eve"), NONE, 5))
    ]
    requests.append([bytes(frame) for frame in codec.encode_request(7, put, body)])
    stored = 0
    for _ in range(1500):
        frames = [bytearray(frame) for frame in chance.choice(requests)]
        frame = chance.choice(frames)
        for _ in range(chance.randint(1, 3)):
            frame[chance.randrange(len(frame))] = chance.randrange(256)
        reply = ground.raw.say(*map(bytes, frames))
        stored += isinstance(reply, PutAccepted) and reply.stored and not reply.duplicate
    # The checksum covers topic, producer, numbers and bytes: what got in is the put as it was.
    assert stored <= 1
    if stored:
        (message,) = ground.heard(1)
        assert (message.payload, message.producer) == (b"flip", PRODUCER.hex())


# ------------------------------------------------------------------ not even ZeroMQ


def port_of(address: str) -> tuple[str, int]:
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    return host, int(port)


GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00NULL" + bytes(48)


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),  # a TLS hello
        b"\0" * 10_000,
        b"\xff" * 10_000,
        random.Random(1).randbytes(100_000),
        GREETING[:10],
        GREETING,
        GREETING + b"\x04\x29" + b"\xff" * 41,
        GREETING + b"\x04\x19\x05READY\x0bSocket-Type\0\0\0\x03PUB",
        GREETING + b"\x02\xff\xff\xff\xff\xff\xff\xff\xff" + bytes(1000),
    ],
    ids="http tls zeros ones noise half-greeting greeting garbled wrong-socket huge-frame".split(),
)
def test_garbage_on_the_port_harms_nobody(ground: Ground, garbage: bytes) -> None:
    for _ in range(5):
        with socket.create_connection(port_of(ground.address), timeout=10) as wire:
            try:
                wire.sendall(garbage)
                wire.shutdown(socket.SHUT_WR)
                while wire.recv(4096):
                    pass
            except OSError:
                pass  # the server hung up: that is an answer too


def test_connections_that_say_nothing_shut_nobody_out(ground: Ground) -> None:
    with ExitStack() as silent:
        for _ in range(200):
            silent.enter_context(socket.create_connection(port_of(ground.address)))
        with Client(ground.address, timeout=20) as late:
            assert late.put("orders", b"late").stored
        ground.heard(1)


def test_a_frame_larger_than_any_batch_cuts_off_its_sender_alone(ground: Ground) -> None:
    with peer(ground.address) as glutton:
        glutton.send(
            bytes(codec.encode_request(7, StatusRequest())[0]), bytes(3 * RULES.batch_bytes_max)
        )
        assert glutton.silent(200)


def test_a_peer_that_never_reads_its_answers_does_not_stop_the_server(ground: Ground) -> None:
    with peer(ground.address) as deaf:
        read = Read("orders", Offset(0))
        for token in range(20_000):
            try:
                deaf.send(*map(bytes, codec.encode_request(token, read)))
            except Exception:  # its own queue is full: it has said enough
                break
        assert isinstance(ground.raw.ask(read), Messages)


# ------------------------------------------------------------------ directories and ports


def serve_once(*options: str, home: Path) -> subprocess.CompletedProcess[str]:
    """`once serve` that is expected to end by itself."""
    return subprocess.run(
        [sys.executable, "-m", "oncemq", "serve", *options],
        capture_output=True, text=True, timeout=30, env=environment(home),
    )  # fmt: skip


def test_a_data_directory_of_a_newer_format_is_refused_and_left_alone(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with testing.server(data) as address, Client(address) as mq:
        mq.subscribe("orders")
        mq.put("orders", b"kept")
    written = msgspec.json.decode((data / "FORMAT").read_bytes())
    newer = msgspec.json.encode({**written, "format": written["format"] + 1})
    (data / "FORMAT").write_bytes(newer)
    before = {path: path.read_bytes() for path in data.rglob("*") if path.is_file()}
    with pytest.raises(StorageRefused) as refusal:
        Server(data, "tcp://127.0.0.1:*", rules=ServerLimits(), options=LogOptions())
    assert refusal.value.code == "format_too_new"
    assert "newer" in refusal.value.detail
    after = {path: path.read_bytes() for path in data.rglob("*") if path.is_file()}
    assert after == before
    ran = serve_once("--data", str(data), "--bind", "tcp://127.0.0.1:*", home=tmp_path)
    assert ran.returncode == 7
    assert "newer" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_second_server_on_a_directory_is_refused_with_the_process_that_holds_it(
    tmp_path: Path,
) -> None:
    data = tmp_path / "data"
    with testing.server(data) as address:
        with pytest.raises(Locked, match=str(os.getpid())):
            Server(data, "tcp://127.0.0.1:*", rules=ServerLimits(), options=LogOptions())
        ran = serve_once("--data", str(data), "--bind", "tcp://127.0.0.1:*", home=tmp_path)
        assert ran.returncode == 7
        assert f"process {os.getpid()}" in ran.stderr
        with Client(address) as mq:
            mq.subscribe("orders")
            assert mq.put("orders", b"unharmed").stored


def test_a_second_server_is_refused_though_the_lock_file_was_removed(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with testing.server(data) as address, Client(address) as mq:
        mq.subscribe("orders")
        (data / "lock").unlink()
        with pytest.raises(Locked, match="held by process"):
            Server(data, "tcp://127.0.0.1:*", rules=ServerLimits(), options=LogOptions())
        assert mq.put("orders", b"unharmed").stored


def test_a_port_in_use_is_refused_by_name_and_the_directory_let_go(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with testing.server() as address:
        with pytest.raises(PortInUse, match=address.removeprefix("tcp://")):
            Server(data, address, rules=ServerLimits(), options=LogOptions())
        ran = serve_once("--data", str(data), "--bind", address, home=tmp_path)
        assert ran.returncode not in (0, -signal.SIGABRT)
        assert address in ran.stderr
        assert "Traceback" not in ran.stderr
    with testing.server(data) as again, Client(again) as mq:
        assert mq.topics() == []


def test_a_server_whose_directory_cannot_be_made_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    ran = serve_once("--data", str(tmp_path / "file"), "--bind", "tcp://127.0.0.1:*", home=tmp_path)
    assert ran.returncode == 7
    assert "Traceback" not in ran.stderr
    assert str(tmp_path / "file") in ran.stderr


@pytest.mark.parametrize("bind", ["nonsense", "tcp://", "tcp://127.0.0.1:99999", "udp://x:1"])
def test_an_address_that_is_none_is_refused_without_a_traceback(tmp_path: Path, bind: str) -> None:
    ran = serve_once("--data", str(tmp_path / "data"), "--bind", bind, home=tmp_path)
    assert ran.returncode != 0
    assert "Traceback" not in ran.stderr
    assert bind in ran.stderr


def test_the_threads_of_a_server_end_with_it(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    with testing.server(tmp_path / "data") as address, Client(address) as mq:
        mq.topics()
    assert set(threading.enumerate()) == before
