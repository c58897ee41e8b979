"""Etcd's JSON gateway: calls and answers as JSON.

Three peculiarities of it: keys and values are base64; whole numbers of 64 bits are strings; and
what is zero, empty or false is left out. A stream (of a watch) is one JSON text a line, each with
`result` or with `error`: an error comes in a stream that began with status 200.
"""

from base64 import b64decode, b64encode
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from oncemq.coordination.coordinator import KeyEntry, Transact
from oncemq.coordination.etcd.rules.calls import (
    Attempt,
    Attempted,
    Call,
    CallAnswer,
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

WATCH_PATH = "/v3/watch"
LOGIN_PATH = "/v3/auth/authenticate"
LEASE_GONE = "requested lease not found"

Json = dict[str, Any]


class CallFailed(Exception):
    """No answer, or one that does not say what happened."""


class LeaseGone(CallFailed):
    """The lease that a call names is not there."""


@dataclass(frozen=True, slots=True)
class Watched:
    """What a line of a watch says: changes, by revision, or that earlier ones are forgotten."""

    changes: list[tuple[int, dict[str, KeyEntry | None]]]
    is_forgotten: bool = False


def call_json(call: Call) -> tuple[str, bytes]:
    """The path and the body of a call."""
    match call:
        case ReadKeys(keys):
            return "/v3/kv/txn", _json({"success": [_range(key) for key in keys]})
        case ReadPrefix(prefix):
            return "/v3/kv/range", _json({"key": _b64(prefix), "range_end": _end_of(prefix)})
        case Attempt(transaction):
            return "/v3/kv/txn", _json(_transaction(transaction))
        case Grant(lease_ms):
            return "/v3/lease/grant", _json({"TTL": str(max(1, -(-lease_ms // 1000)))})
        case KeepAlive(lease):
            return "/v3/lease/keepalive", _json({"ID": str(lease)})
        case Revoke(lease):
            return "/v3/lease/revoke", _json({"ID": str(lease)})
        case PutLeased(key, value, lease):
            put = {"key": _b64(key), "value": _b64(value), "lease": str(lease)}
            return "/v3/kv/put", _json(put)


def call_answer(call: Call, text: bytes) -> CallAnswer:
    """What etcd said to a call."""
    found = _parsed(text)
    try:
        match call:
            case ReadKeys() | Attempt():
                entries = _read(found.get("responses", ()))
                revision = int(found["header"]["revision"])
                if isinstance(call, ReadKeys):
                    return HasRead(entries, revision)
                return Attempted(found.get("succeeded", False), entries, revision)
            case ReadPrefix():
                entries = {each.key: each for each in map(_entry, found.get("kvs", ()))}
                return HasRead(entries, int(found["header"]["revision"]))
            case Grant():
                return Granted(int(found["ID"]))
            case KeepAlive():
                return Kept(int(found["result"].get("TTL", 0)) > 0)
            case Revoke() | PutLeased():
                return CallDone()
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CallFailed(f"an answer that is not etcd's: {error!r}") from None


def watch_json(watch: WatchFrom) -> bytes:
    """The body that begins a watch."""
    prefix, revision = watch.prefix, str(watch.revision)
    what = {"key": _b64(prefix), "range_end": _end_of(prefix), "start_revision": revision}
    return _json({"create_request": what})


def watched(line: bytes) -> Watched:
    """What a line of a watch says."""
    try:
        result: Json = _parsed(line)["result"]
        if int(result.get("compact_revision", 0)):
            return Watched([], is_forgotten=True)
        if result.get("canceled"):
            raise CallFailed(f"the watch was cancelled: {result.get('cancel_reason', 'no reason')}")
        changes: dict[int, dict[str, KeyEntry | None]] = {}
        for event in result.get("events", ()):
            entry = _entry(event["kv"])
            is_gone = event.get("type") == "DELETE"
            changes.setdefault(entry.revision, {})[entry.key] = None if is_gone else entry
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CallFailed(f"a line that is not a watch's: {error!r}") from None
    return Watched(sorted(changes.items()))


def login_json(user: str, password: str) -> bytes:
    """The body that asks for a token."""
    return _json({"name": user, "password": password})


def login_token(text: bytes) -> str:
    """The token."""
    return str(_parsed(text).get("token", ""))


def refusal(text: bytes, *, status: int) -> CallFailed:
    """What an answer with another status than 200 says."""
    try:
        found = msgspec.json.decode(text, type=Json)
        message = str(found.get("message") or found.get("error") or "no reason")
    except (msgspec.DecodeError, UnicodeDecodeError):
        message = "no reason"
    failure = LeaseGone if LEASE_GONE in message else CallFailed
    return failure(f"status {status}: {message}")


# ------------------------------------------------------------------ JSON


def _parsed(text: bytes) -> Json:
    try:
        answer = msgspec.json.decode(text, type=Json)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise CallFailed("an answer that is not etcd's") from None
    if "error" in answer:
        # In a stream it is an object with a message; elsewhere it is the message.
        inner = msgspec.json.encode(answer["error"])
        raise refusal(inner if inner.startswith(b"{") else text, status=200)
    return answer


def _transaction(transaction: Transact) -> Json:
    compared = [
        {"key": _b64(key), "target": "MOD", "result": "EQUAL", "mod_revision": str(revision)}
        for key, revision in transaction.expected.items()
    ]
    puts = [
        {"request_put": {"key": _b64(key), "value": _b64(value)}}
        for key, value in transaction.puts.items()
    ]
    deletes = [{"request_delete_range": {"key": _b64(key)}} for key in transaction.deletes]
    reads = [_range(key) for key in transaction.expected]
    return {"compare": compared, "success": [*puts, *deletes], "failure": reads}


def _range(key: str) -> Json:
    return {"request_range": {"key": _b64(key)}}


def _read(responses: Iterable[Json]) -> dict[str, KeyEntry]:
    ranges = [each["response_range"] for each in responses if "response_range" in each]
    entries = [_entry(kv) for each in ranges for kv in each.get("kvs", ())]
    return {entry.key: entry for entry in entries}


def _entry(kv: Json) -> KeyEntry:
    value = b64decode(kv.get("value", ""))
    return KeyEntry(b64decode(kv["key"]).decode(), value, int(kv["mod_revision"]))


def _end_of(prefix: str) -> str:
    """The first key that does not begin so: etcd names a prefix by both ends."""
    data = prefix.encode()
    return _b64(data[:-1] + bytes([data[-1] + 1]))


def _b64(data: str | bytes) -> str:
    return b64encode(data.encode() if isinstance(data, str) else data).decode()


def _json(value: Json) -> bytes:
    return msgspec.json.encode(value)
