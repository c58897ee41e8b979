"""Requests and replies as frames: every kind there and back, and every kind of nonsense."""

# pyright: reportArgumentType=false
# Names and numbers are written plainly here.

import struct

import msgspec
import pytest

from oncemq.protocol.client_replies import ClientInfo, LostCursor, LostNumbers
from oncemq.protocol.client_requests import Compare, ForgetClient, KnownNumbers, ListClients
from oncemq.protocol.names import Generation, Offset, SubscriptionId, TopicId
from oncemq.protocol.records import Retention, Run
from oncemq.protocol.replicas.messages import REPLICA_MESSAGES
from oncemq.protocol.replies import (
    REPLIES,
    BatchHead,
    ClientList,
    CommitDone,
    Compared,
    Done,
    Ends,
    ListenedAnswer,
    ListeningAnswer,
    Messages,
    Pushed,
    PutAccepted,
    RefusedReply,
    Result,
    Resumed,
    StagedReply,
    StatusReport,
    Subscribed,
    SubscriptionInfo,
    SubscriptionList,
    TakenReply,
    TopicEnd,
    TopicInfo,
    TopicList,
    TopicShown,
    Unsubscribed,
    Welcome,
    WelcomeLimits,
    not_leader,
)
from oncemq.protocol.requests import (
    REQUESTS,
    CommitRequest,
    ConfigureTopic,
    CreateTopic,
    DeleteTopic,
    DropStage,
    Get,
    Hello,
    Input,
    Lease,
    Leave,
    Listen,
    ListSubscriptions,
    ListTopics,
    Piece,
    Put,
    Read,
    Resume,
    Settle,
    Settled,
    ShowTopic,
    StagePut,
    Start,
    StatusRequest,
    Subscribe,
    Unsubscribe,
    WatchEnds,
)
from oncemq.wire import codec

SETTLED = (Settled("orders", SubscriptionId(9), Offset(3)),)
PUT = Put("me", 1, "orders", TopicId(5), b"p" * 16, True, 1, 2, 0, 77)
STAGE_PUT = StagePut("me", 1, b"s" * 16, 1, 2, 0, 77)
RUN = Run(2, b"p" * 16, 1, 1, 1_000)
HEAD = BatchHead("orders", TopicId(5), SubscriptionId(9), Offset(3), 2, 0, 77, (RUN,))
TOPIC = TopicInfo("orders", TopicId(5), Offset(0), Offset(3), 1, 2, Retention(1, 2, True), 9, 10)
SUBSCRIPTION = SubscriptionInfo("orders", "me", SubscriptionId(9), Offset(3), Offset(4), True)

ALL_REQUESTS = [
    Hello("me", 3, 2**62),
    Resume("me", 1, "orders", b"p" * 16, 2),
    PUT,
    Get("me", 1, "orders", SETTLED, 4, 5, 6, 7),
    Settle("me", 1, SETTLED),
    Subscribe("me", 1, "orders", Start("offset", 4)),
    Unsubscribe("me", 1, "orders"),
    CreateTopic("orders", Retention(1, 2, True)),
    ConfigureTopic("orders", Retention(1, 2, True)),
    DeleteTopic("orders"),
    ListTopics("a", 5),
    ShowTopic("orders"),
    ListSubscriptions("orders", "me", ("a", "b"), 5),
    StatusRequest(),
    Read("orders", Offset(3), 4, 5, True),
    STAGE_PUT,
    CommitRequest(
        "me",
        1,
        "owner",
        7,
        True,
        (Piece("orders", b"s" * 16, Offset(0), 2),),
        (Input("in", SubscriptionId(9), Offset(3), Offset(4)),),
        False,
        "bond",
        True,
        True,
    ),
    DropStage("me", 1, b"s" * 16),
    Listen("me", 1, ("orders",), SETTLED, 6, 7, 8),
    Leave("me", 1, 8),
    WatchEnds((("orders", Offset(3)),), 500, Generation(2)),
    Compare("me", Generation(2), 3, SETTLED, (KnownNumbers("a", TopicId(5), b"p" * 16, 7),)),
    ForgetClient("me", True),
    ListClients("me", 10),
    Lease("me", 1, 60_000, "mine", 3),
]

ALL_REPLIES = [
    not_leader("tcp://10.0.0.2:5556", 7),
    Welcome(3, WelcomeLimits(1, 2, 3), b"log", Generation(2)),
    Resumed(TopicId(5), 3, 4, True),
    PutAccepted(TopicId(5), Offset(-1), 2, False, True, 50),
    Messages((HEAD, HEAD), True),
    Subscribed(True, TopicId(5), SubscriptionId(9), Offset(3)),
    Unsubscribed(False),
    Done(True),
    TopicList((TOPIC,), True),
    TopicShown(TOPIC, "because", (SUBSCRIPTION,)),
    SubscriptionList((SUBSCRIPTION,), False),
    StatusReport({"a": 1, "b": "two", "c": 0.5, "d": True}),
    StagedReply(Offset(4), True, 50, 1000),
    CommitDone(True, (Result("orders", TopicId(5), Offset(-1), 2),), 50, 6, 7),
    ListeningAnswer("tcp://127.0.0.1:5557", (ListenedAnswer("orders", 1, 2, 3, 4),), 5),
    Pushed(TopicId(5), Offset(9), (HEAD, HEAD)),
    TakenReply(3),
    Ends((TopicEnd("orders", TopicId(5), Offset(1), Offset(3), Offset(2)),), b"log", Generation(2)),
    Compared(
        b"log",
        Generation(2),
        3,
        (LostCursor("a", Offset(9), Offset(5), Offset(4), Offset(8)),),
        (LostNumbers("a", b"p" * 16, 7, 5),),
        (TopicId(5),),
    ),
    ClientList((ClientInfo("me", 3, 1),), True),
]


def frame(opcode: int, fields: bytes, *, magic: bytes = b"OQ", version: int = 1) -> bytes:
    return struct.pack(">2sBBQ", magic, version, opcode, 42) + fields


def refused(frames, decode=codec.decode_request) -> tuple[int, str]:
    with pytest.raises(codec.Malformed) as caught:
        decode(frames)
    assert caught.value.refusal.detail == str(caught.value)
    return caught.value.token, caught.value.refusal.code


def test_these_are_all_requests_and_replies() -> None:
    assert [type(each) for each in ALL_REQUESTS] == list(REQUESTS.values())
    assert [type(each) for each in ALL_REPLIES] == list(REPLIES.values())


def test_opcodes_are_for_good() -> None:
    assert [each.opcode for each in ALL_REQUESTS] == [*range(1, 19), 20, 21, *range(24, 28), 31]
    assert [each.opcode for each in ALL_REPLIES] == [*range(64, 78), 80, 81, 84, 88, 85, 86]


@pytest.mark.parametrize("request_", ALL_REQUESTS, ids=lambda each: type(each).__name__)
def test_a_request_is_what_it_was_after_the_way(request_) -> None:
    body = b"body" if isinstance(request_, Put | StagePut) else None
    assert codec.decode_request(codec.encode_request(42, request_, body)) == (42, request_, body)


@pytest.mark.parametrize("reply", ALL_REPLIES, ids=lambda each: type(each).__name__)
def test_a_reply_is_what_it_was_after_the_way(reply) -> None:
    bodies = [b"one", b"two"] if isinstance(reply, Messages | Pushed) else []
    decoded = codec.decode_reply(codec.encode_reply(2**64 - 1, reply, bodies))
    assert decoded == (2**64 - 1, reply, bodies)


def test_opcodes_of_messages_between_replicas_are_for_good() -> None:
    """Servers of two versions may be of one shard while it is upgraded."""
    assert {code: kind.__name__ for code, kind in REPLICA_MESSAGES.items()} == {
        160: "Append",
        161: "Cut",
        162: "RefillBegin",
        163: "RefillPart",
        170: "Appended",
        171: "Mismatch",
        172: "Stale",
        173: "RefillWanted",
    }


def test_the_head_is_magic_version_opcode_and_token() -> None:
    (head,) = codec.encode_request(0x0102030405060708, StatusRequest())
    assert head == b"OQ\x01\x0e\x01\x02\x03\x04\x05\x06\x07\x08\x90"


def test_a_request_of_an_older_client_has_the_defaults() -> None:
    fields = msgspec.msgpack.encode(["me", 1, "orders"])
    assert codec.decode_request([frame(4, fields)])[1] == Get("me", 1, "orders")


def test_fields_of_a_newer_client_that_are_not_known_are_passed_over() -> None:
    fields = msgspec.msgpack.encode(["orders", {"new": [1, 2]}])
    assert codec.decode_request([frame(12, fields)])[1] == ShowTopic("orders")


def test_a_refusal_of_a_server_that_knows_of_no_leaders_is_whole() -> None:
    fields = msgspec.msgpack.encode(["not_subscribed", "why"])
    assert codec.decode_reply([frame(64, fields)])[1] == RefusedReply("not_subscribed", "why")


def test_a_client_that_knows_of_no_leaders_reads_the_words_of_a_refusal() -> None:
    class OlderRefusedReply(msgspec.Struct, frozen=True, array_like=True):
        code: str
        detail: str

    (head,) = codec.encode_reply(42, not_leader("tcp://10.0.0.2:5556", 7))
    old = msgspec.msgpack.Decoder(OlderRefusedReply).decode(bytes(head)[12:])
    words = "follows; tcp://10.0.0.2:5556 leads"
    assert old == OlderRefusedReply("not_leader", words)


NONSENSE = [
    ([], (0, "malformed")),
    ([b""], (0, "malformed")),
    ([b"OQ\x01\x0e"], (0, "malformed")),
    ([frame(14, b"\x90", magic=b"XX")], (0, "malformed")),
    ([frame(14, b"\x90", version=2)], (42, "version")),
    ([frame(0, b"\x90")], (42, "opcode")),
    ([frame(64, b"\x90")], (42, "opcode")),
    ([frame(255, b"\x90")], (42, "opcode")),
    ([frame(14, b"")], (42, "malformed")),
    ([frame(14, b"\x80")], (42, "malformed")),
    ([frame(14, b"\x90\x90")], (42, "malformed")),
    ([frame(14, b"\xc1")], (42, "malformed")),
    ([frame(12, b"\x90")], (42, "malformed")),
    ([frame(12, b"\x91\x05")], (42, "malformed")),
    ([frame(12, b"\x91\xa2\xff\xfe")], (42, "malformed")),
    ([frame(12, b"\xdd\xff\xff\xff\xff")], (42, "malformed")),
    ([frame(12, b"\x91\xdb\xff\xff\xff\xff")], (42, "malformed")),
    ([frame(14, b"\x91" * 100_000)], (42, "malformed")),
    ([frame(14, b"\x92\x00" * 100_000)], (42, "malformed")),
    ([frame(14, b"\x91" + b"\x81\xa1a" * 100_000)], (42, "malformed")),
    ([frame(14, b"\x90"), b"a body"], (42, "malformed")),
    (codec.encode_request(42, PUT), (42, "malformed")),
    (codec.encode_request(42, STAGE_PUT), (42, "malformed")),
    ([*codec.encode_request(42, PUT, b"one"), b"two"], (42, "malformed")),
]


@pytest.mark.parametrize(("frames", "answer"), NONSENSE)
def test_nonsense_is_refused_with_the_token_where_it_has_one(frames, answer) -> None:
    assert refused(frames) == answer


@pytest.mark.parametrize(
    ("frames", "answer"),
    [
        ([frame(1, b"\x90")], (42, "opcode")),
        ([frame(64, b"\x90")], (42, "malformed")),
        ([frame(71, b"\x92\xc3" + b"\x91" * 100_000)], (42, "malformed")),
        ([frame(71, b"\x91\xc3"), b"a body"], (42, "malformed")),
        (codec.encode_reply(42, Messages((HEAD,), False), []), (42, "malformed")),
        ([frame(71, b"\x91\xc3", version=9)], (42, "version")),
    ],
)
def test_a_reply_of_nonsense_is_refused_too(frames, answer) -> None:
    assert refused(frames, codec.decode_reply) == answer


def test_another_version_is_told_which_one_is_spoken() -> None:
    with pytest.raises(codec.Malformed, match="version 2 is not spoken here, only 1"):
        codec.decode_request([frame(14, b"\x90", version=2)])


PUSHED = Pushed(TopicId(5), Offset(9), (HEAD, HEAD))


def test_a_message_of_the_feed_is_what_it_was_after_the_way() -> None:
    frames = codec.encode_push(PUSHED, [b"one", b"two"])
    assert frames[0] == struct.pack(">Q", 5) == codec.subject(TopicId(5))
    assert codec.decode_push(frames) == (PUSHED, [b"one", b"two"])


def test_no_subject_begins_another() -> None:
    subjects = {codec.subject(TopicId(n)) for n in (0, 1, 255, 256, 1 << 62)}
    assert {len(each) for each in subjects} == {8}
    assert codec.topic_of(codec.subject(TopicId(1 << 62))) == 1 << 62
    assert codec.topic_of(b"orders") is None


@pytest.mark.parametrize(
    "frames",
    [
        [],
        [codec.subject(TopicId(5))],
        [codec.subject(TopicId(6)), *codec.encode_reply(0, PUSHED, [b"one", b"two"])],
        [b"", *codec.encode_reply(0, PUSHED, [b"one", b"two"])],
        [codec.subject(TopicId(5)), *codec.encode_reply(0, PUSHED, [b"one"])],
        [codec.subject(TopicId(5)), *codec.encode_reply(0, Done(True))],
    ],
)
def test_what_is_no_message_of_the_feed_is_malformed(frames) -> None:
    with pytest.raises(codec.Malformed):
        codec.decode_push(frames)
