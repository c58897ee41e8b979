"""Etcd's JSON: base64, numbers as strings, what is left out, errors in a stream that began well.

The answers are copies of what etcd 3.5.1 and 3.6.14 sent.
"""

import json
from typing import Any

import pytest

from oncemq.coordination.coordinator import KeyEntry, Transact
from oncemq.coordination.etcd.gateway import (
    CallFailed,
    LeaseGone,
    Watched,
    call_answer,
    call_json,
    login_token,
    refusal,
    watch_json,
    watched,
)
from oncemq.coordination.etcd.rules.calls import (
    Attempt,
    Attempted,
    Call,
    CallDone,
    Grant,
    Granted,
    HasRead,
    KeepAlive,
    Kept,
    PutLeased,
    ReadKeys,
    ReadPrefix,
    Revoke,
    WatchFrom,
)

BIG = 2**53 + 1  # a float would round it
SWAP = Attempt(Transact({"a": BIG, "b": 0}, {"a": b"\xff"}, ("b",)))


@pytest.mark.parametrize(
    ("call", "path", "body"),
    [
        (
            ReadKeys(("a",)),
            "/v3/kv/txn",
            {"success": [{"request_range": {"key": "YQ=="}}]},
        ),
        (ReadPrefix("/a/"), "/v3/kv/range", {"key": "L2Ev", "range_end": "L2Ew"}),
        (
            SWAP,
            "/v3/kv/txn",
            {
                "compare": [
                    {
                        "key": "YQ==",
                        "target": "MOD",
                        "result": "EQUAL",
                        "mod_revision": "9007199254740993",
                    },
                    {"key": "Yg==", "target": "MOD", "result": "EQUAL", "mod_revision": "0"},
                ],
                "success": [
                    {"request_put": {"key": "YQ==", "value": "/w=="}},
                    {"request_delete_range": {"key": "Yg=="}},
                ],
                "failure": [
                    {"request_range": {"key": "YQ=="}},
                    {"request_range": {"key": "Yg=="}},
                ],
            },
        ),
        (Grant(1_001), "/v3/lease/grant", {"TTL": "2"}),
        (KeepAlive(BIG), "/v3/lease/keepalive", {"ID": "9007199254740993"}),
        (Revoke(7), "/v3/lease/revoke", {"ID": "7"}),
        (
            PutLeased("a", b"", 7),
            "/v3/kv/put",
            {"key": "YQ==", "value": "", "lease": "7"},
        ),
    ],
)
def test_a_call_as_json(call: Call, path: str, body: dict[str, Any]) -> None:
    said, text = call_json(call)
    assert (said, json.loads(text)) == (path, body)


HEADER = '"header":{"cluster_id":"1","member_id":"2","revision":"9007199254740993","raft_term":"2"}'
KV = '{"key":"YQ==","create_revision":"2","mod_revision":"9007199254740992","version":"1"}'
FOUND = f'{{"response_range":{{"header":{{"revision":"3"}},"kvs":[{KV}],"count":"1"}}}}'
NOT_FOUND = '{"response_range":{"header":{"revision":"3"}}}'
A = KeyEntry("a", b"", BIG - 1)
GONE = "etcdserver: requested lease not found"


@pytest.mark.parametrize(
    ("call", "text", "answer"),
    [
        (
            ReadKeys(("a", "b")),
            f'{{{HEADER}, "succeeded":true, "responses":[{FOUND},{NOT_FOUND}]}}',
            HasRead({"a": A}, BIG),
        ),
        (ReadPrefix("/a/"), f"{{{HEADER}}}", HasRead({}, BIG)),
        (ReadPrefix("/a/"), f'{{{HEADER},"kvs":[{KV}],"count":"1"}}', HasRead({"a": A}, BIG)),
        (
            SWAP,
            f'{{{HEADER},"succeeded":true,"responses":[{{"response_put":{{"header":{{}}}}}}]}}',
            Attempted(True, {}, BIG),
        ),
        (
            SWAP,
            f'{{{HEADER},"responses":[{{"response_range":{{"kvs":[{KV}],"count":"1"}}}}]}}',
            Attempted(False, {"a": A}, BIG),
        ),
        (Grant(1), f'{{{HEADER},"ID":"9007199254740993","TTL":"2"}}', Granted(BIG)),
        (KeepAlive(7), f'{{"result":{{{HEADER},"ID":"7","TTL":"6"}}}}\n', Kept(is_there=True)),
        (KeepAlive(7), f'{{"result":{{{HEADER},"ID":"7"}}}}\n', Kept(is_there=False)),
        (KeepAlive(7), f'{{"result":{{{HEADER},"ID":"7","TTL":"0"}}}}\n', Kept(is_there=False)),
        (Revoke(7), f"{{{HEADER}}}", CallDone()),
        (PutLeased("a", b"", 7), f"{{{HEADER}}}", CallDone()),
    ],
)
def test_an_answer_from_json(call: Call, text: str, answer: object) -> None:
    assert call_answer(call, text.encode()) == answer


@pytest.mark.parametrize(
    "text",
    ["", "[]", "nothing", "{}", '{"header":{}}', '{"header":{"revision":"x"}}', '{"header":7}'],
)
@pytest.mark.parametrize("call", [SWAP, ReadPrefix("/a/"), ReadKeys(("a",))])
def test_what_is_not_etcds_is_no_answer(call: Call, text: str) -> None:
    with pytest.raises(CallFailed, match="not etcd's"):
        call_answer(call, text.encode())


def test_an_error_in_a_stream_that_began_with_status_200_is_an_error() -> None:
    text = b'{"error":{"grpc_code":14,"http_code":503,"message":"etcdserver: no leader"}}\n'
    for fails in (lambda: watched(text), lambda: call_answer(KeepAlive(7), text)):
        with pytest.raises(CallFailed, match="etcdserver: no leader"):
            fails()


@pytest.mark.parametrize(
    "text",
    [
        f'{{"error":"{GONE}","code":5,"message":"{GONE}"}}',
        f'{{"code":5, "message":"{GONE}"}}',
    ],
    ids=["3.5", "3.6"],
)
def test_a_lease_that_is_gone_is_told_from_other_failures(text: str) -> None:
    assert isinstance(refusal(text.encode(), status=404), LeaseGone)
    assert not isinstance(refusal(b"<html>", status=502), LeaseGone)
    assert str(refusal(b"<html>", status=502)) == "status 502: no reason"


def test_a_watch_begins_at_a_revision() -> None:
    assert json.loads(watch_json(WatchFrom("/a/", BIG))) == {
        "create_request": {
            "key": "L2Ev",
            "range_end": "L2Ew",
            "start_revision": "9007199254740993",
        }
    }


def test_a_watch_tells_changes_by_revision() -> None:
    events = (
        '{"kv":{"key":"YQ==","mod_revision":"4","value":"eA=="}},'
        '{"type":"DELETE","kv":{"key":"Yg==","mod_revision":"5"}},'
        '{"type":"PUT","kv":{"key":"Yw==","mod_revision":"5"}}'
    )
    line = f'{{"result":{{{HEADER},"events":[{events}]}}}}\n'
    assert watched(line.encode()) == Watched(
        [(4, {"a": KeyEntry("a", b"x", 4)}), (5, {"b": None, "c": KeyEntry("c", b"", 5)})]
    )
    assert watched(f'{{"result":{{{HEADER},"created":true}}}}\n'.encode()) == Watched([])


def test_a_watch_says_that_what_was_before_is_forgotten() -> None:
    line = f'{{"result":{{{HEADER},"canceled":true,"compact_revision":"2"}}}}\n'
    assert watched(line.encode()) == Watched([], is_forgotten=True)


@pytest.mark.parametrize(
    ("result", "said"),
    [
        ('{"canceled":true,"cancel_reason":"permission denied"}', "cancelled: permission denied"),
        ('{"canceled":true}', "cancelled: no reason"),
        ('{"events":[{}]}', "not a watch's"),
        ("[]", "not a watch's"),
    ],
)
def test_a_watch_that_is_cancelled_or_is_none_is_a_failure(result: str, said: str) -> None:
    with pytest.raises(CallFailed, match=said):
        watched(f'{{"result":{result}}}\n'.encode())


def test_a_login_gives_a_token() -> None:
    assert login_token(f'{{{HEADER},"token":"abc.7"}}'.encode()) == "abc.7"
