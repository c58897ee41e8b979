"""Messages through the command line: subscriptions, bytes, lines, JSON."""

import base64
import json
import re
from pathlib import Path

import pytest

from .conftest import Once

pytestmark = pytest.mark.slow  # each step is a process of its own

EVERY_BYTE = bytes(range(256))


def parsed(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


# ------------------------------------------------------------------ subscriptions


def test_a_get_without_a_topic_takes_the_oldest_of_any(once: Once, topic: str) -> None:
    for name in (f"{topic}-a", f"{topic}-b"):
        once("subscribe", name, "--id", topic)
        once("put", name, name[-1])
    assert once("get", "-n", "5", "--id", topic).text == "a\nb\n"


def test_a_subscription_starts_where_it_is_told(once: Once, topic: str) -> None:
    once("topic", "create", topic, "--retain", "forever")
    for text in "abc":
        once("put", topic, text)
    stored = parsed(once("put", topic, "d", "--json").text)[0]
    assert stored["offset"] == 3
    once("subscribe", topic, "--id", "all", "--from", "earliest")
    once("subscribe", topic, "--id", "two", "--from", "2")
    once("subscribe", topic, "--id", "new")
    once("subscribe", topic, "--id", "then", "--from", "2000-01-01T00:00:00Z")
    assert once("get", topic, "-n", "9", "--id", "all").text == "a\nb\nc\nd\n"
    assert once("get", topic, "-n", "9", "--id", "two").text == "c\nd\n"
    assert once("get", topic, "-n", "9", "--id", "then").text == "a\nb\nc\nd\n"
    assert once("get", topic, "-n", "9", "--id", "new").code == 4


def test_a_time_shown_is_a_time_to_start_from(once: Once, topic: str) -> None:
    once("topic", "create", topic, "--retain", "forever")
    once("subscribe", topic)
    for text in "ab":
        once("put", topic, text)
    second = parsed(once("get", topic, "-n", "2", "--json").text)[1]
    once("subscribe", topic, "--id", "later", "--from", str(second["timestamp"]))
    assert once("get", topic, "-n", "2", "--id", "later").text == "b\n"


def test_all_subscriptions_end_at_once(once: Once, topic: str) -> None:
    for name in (f"{topic}-a", f"{topic}-b"):
        once("subscribe", name, "--id", topic)
    ended = once("unsubscribe", "--all", "--id", topic, "--json")
    assert parsed(ended.text) == [{"topic": None, "client": topic, "ended": 2}]
    assert once("unsubscribe", "--all", "--id", topic).code == 1


def test_a_wait_ends_when_enough_has_come(once: Once, topic: str) -> None:
    once("subscribe", topic)
    once("put", topic, "--lines", stdin=b"a\nb\nc\n")
    assert once("get", topic, "-n", "3", "--wait", "20").text == "a\nb\nc\n"


# ------------------------------------------------------------------ bytes


@pytest.mark.parametrize("payload", [EVERY_BYTE, b"", b"\n", b"no newline", b"crlf\r\n"])
def test_bytes_from_stdin_pass_untouched(
    once: Once, request: pytest.FixtureRequest, payload: bytes
) -> None:
    topic = f"stdin-{request.node.callspec.indices['payload']}"
    once("subscribe", topic)
    assert once("put", topic, stdin=payload).code == 0
    assert once("get", topic).out == payload + b"\n"


def test_bytes_from_a_file_pass_untouched(once: Once, topic: str, tmp_path: Path) -> None:
    (tmp_path / "payload").write_bytes(EVERY_BYTE)
    once("subscribe", topic)
    once("put", topic, "--file", "payload")
    once("put", topic, "--file", "-", stdin=EVERY_BYTE)
    assert once("get", topic, "-n", "2").out == (EVERY_BYTE + b"\n") * 2


def test_an_argument_that_is_not_text_passes_untouched(once: Once, topic: str) -> None:
    once("subscribe", topic)
    once("put", topic, b"\xff\xfe raw")
    assert once("get", topic).out == b"\xff\xfe raw\n"


def test_unicode_passes_as_topic_id_key_header_and_message(once: Once) -> None:
    topic, client = "заказы-注文-🛒", "büro"
    assert once("subscribe", topic, "--id", client).text == (
        f"{client} is subscribed to '{topic}'\n"
    )
    put = once("put", topic, "héllo 🌍", "--key", "ключ", "--header", "naïve=ça=va")
    assert put.text == f"{topic}@0\n"
    got = parsed(once("get", topic, "--id", client, "--json").text)[0]
    assert (got["payload"], got["key"], got["headers"]) == ("héllo 🌍", "ключ", {"naïve": "ça=va"})
    assert topic in once("topics").text


def test_a_terminal_that_lacks_a_letter_gets_an_escape_not_an_error(once: Once) -> None:
    once("topic", "create", "буква")
    shown = once("topics", PYTHONIOENCODING="ascii")
    assert shown.code == 0
    assert "\\u0431" in shown.text


def test_a_big_message_passes(once: Once, topic: str) -> None:
    big = b"0123456789abcdef" * (15 << 16)  # 15 MiB, just below the limit
    once("subscribe", topic)
    assert once("put", topic, stdin=big).code == 0
    assert once("get", topic).out == big + b"\n"


def test_a_message_over_the_limit_is_refused_with_the_limit(once: Once, topic: str) -> None:
    once("subscribe", topic)
    refused = once("put", topic, stdin=bytes((16 << 20) + 1))
    assert refused.code == 1
    assert "over the limit of 16777216" in refused.err
    assert once("get", topic).code == 4


# ------------------------------------------------------------------ lines


def test_lines_are_messages_in_order(once: Once, topic: str) -> None:
    once("subscribe", topic)
    count = 20_000
    put = once("put", topic, "--lines", stdin=b"".join(b"line %d\n" % n for n in range(count)))
    assert put.text == f"20,000 messages stored in '{topic}'\n"
    got = once("get", topic, "-n", str(count * 2)).out
    assert got == b"".join(b"line %d\n" % n for n in range(count))


def test_lines_of_a_file_may_be_empty_and_lack_the_last_newline(
    once: Once, topic: str, tmp_path: Path
) -> None:
    (tmp_path / "lines").write_bytes(b"a\n\n\xff\r\nlast")
    once("subscribe", topic)
    assert once("put", topic, "--lines", "--file", "lines").text.startswith("4 messages")
    assert once("get", topic, "-n", "9").out == b"a\n\n\xff\r\nlast\n"


def test_no_lines_are_nothing_to_put(once: Once, topic: str) -> None:
    nothing = once("put", topic, "--lines")
    assert (nothing.code, nothing.text) == (0, "nothing to put\n")


def test_the_count_of_lines_is_an_object_for_programs(once: Once, topic: str) -> None:
    once("subscribe", topic)
    put = once("put", topic, "--lines", "--json", "--id", topic, stdin=b"a\nb\n")
    assert parsed(put.text) == [
        {
            "topic": topic,
            "put": 2,
            "stored": 2,
            "unstored": 0,
            "duplicates": 0,
            "at_risk_ms": 0,
        }
    ]


def test_a_line_over_the_limit_is_named_and_what_went_before_is_stored(
    once: Once, topic: str
) -> None:
    once("subscribe", topic)
    lines = b"small\n" * 6000 + bytes((16 << 20) + 1) + b"\nafter\n"
    refused = once("put", topic, "--lines", stdin=lines)
    assert refused.code == 1
    assert "line 6,001: a message of 16777217 bytes is over the limit" in refused.err
    stored, begin = re.findall(r"([\d,]+) messages stored; to go on, begin with line ([\d,]+)",
        refused.err)[0]  # fmt: skip
    assert int(begin.replace(",", "")) == int(stored.replace(",", "")) + 1
    got = once("get", topic, "-n", "9999").text
    assert got == "small\n" * int(stored.replace(",", ""))


def test_lines_nobody_subscribes_to_are_counted_as_not_stored(once: Once, topic: str) -> None:
    put = once("put", topic, "--lines", stdin=b"a\nb\n")
    assert put.code == 1
    assert put.text == f"0 messages stored in '{topic}'\n"
    assert put.err == (
        f"once: 2 messages not stored: nobody subscribes to '{topic}' and nothing retains it\n"
    )


# ------------------------------------------------------------------ JSON


def test_a_message_in_json_has_stable_keys(once: Once, topic: str) -> None:
    once("subscribe", topic)
    once("put", topic, "text", "--key", "k", "--header", "a=1", "--header", "b=2")
    once("put", topic, stdin=EVERY_BYTE)
    text, raw = parsed(once("get", topic, "-n", "2", "--json").text)
    moment = text.pop("timestamp")
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", str(moment))
    assert text == {
        "topic": topic,
        "offset": 0,
        "key": "k",
        "headers": {"a": "1", "b": "2"},
        "payload": "text",
    }
    assert list(raw) == ["topic", "offset", "key", "headers", "timestamp", "payload_base64"]
    assert (raw["key"], raw["headers"]) == (None, {})
    assert base64.b64decode(str(raw["payload_base64"])) == EVERY_BYTE


def test_a_receipt_in_json_has_stable_keys(once: Once, topic: str) -> None:
    answer = {"topic": topic, "offset": None, "stored": False, "duplicate": False, "at_risk_ms": 0}
    assert parsed(once("put", topic, "x", "--json").text) == [answer]
    once("subscribe", topic)
    stored = parsed(once("put", topic, "x", "--json").text)
    assert stored == [answer | {"offset": 0, "stored": True}]


def test_lists_in_json_are_arrays_even_when_empty(once: Once, topic: str) -> None:
    assert once("subscriptions", "--topic", f"no-{topic}", "--json").text in ("[]\n", "")
    once("subscribe", topic, "--id", "c")
    once("put", topic, "x")
    stands = {"cursor": 0, "end": 1, "behind": 1, "waiting": False, "pattern": False}
    stands |= {"ends": None, "about": ""}
    assert json.loads(once("subscriptions", "--topic", topic, "--json").text) == [
        {"topic": topic, "client": "c", **stands}
    ]
    found = [each for each in json.loads(once("topics", "--json").text) if each["topic"] == topic]
    assert [*found[0]] == (
        "topic messages low end subscriptions producers retain stored_bytes idempotency_keys "
        "created"
    ).split()
    assert (found[0]["messages"], found[0]["subscriptions"], found[0]["retain"]) == (1, 1, "none")


def test_a_topic_is_created_configured_shown_and_deleted(once: Once, topic: str) -> None:
    created = once("topic", "create", topic, "--retain", "7d,10GiB")
    assert created.text == f"created '{topic}', retains 7d,10GiB\n"
    assert once("topic", "create", topic).code == 1
    assert once("put", topic, "kept").code == 0
    shown = json.loads(once("topic", "show", topic, "--json").text)
    assert (shown["retain"], shown["messages"], shown["subscribed"]) == ("7d,10GiB", 1, [])
    assert shown["kept_because"]
    assert "7d,10GiB" in once("topic", "show", topic).text
    assert once("topic", "config", topic, "--retain", "forever").text == (
        f"'{topic}' now retains forever\n"
    )
    assert once("topic", "config", topic, "--retain", "forever").text == (
        f"'{topic}' retains forever already\n"
    )
    assert once("topic", "delete", topic, "--yes").text == f"deleted '{topic}'\n"
    assert once("topic", "show", topic).code == 1


def test_the_status_is_an_object_of_plain_values(once: Once) -> None:
    facts = json.loads(once("status", "--json").text)
    assert facts["sync"] == "always"
    assert all(isinstance(value, str | int | float | bool) for value in facts.values())
    assert "sync" in once("status").text


# ------------------------------------------------------------------ listening


def test_a_listener_to_several_topics_needs_all_of_them_subscribed(once: Once, topic: str) -> None:
    once("subscribe", f"{topic}-a", "--id", "c")
    refused = once("listen", f"{topic}-a", f"{topic}-b", "--id", "c")
    assert refused.code == 1
    assert f"'c' is not subscribed to '{topic}-b'" in refused.err


def test_a_put_under_an_idempotency_key_is_stored_once_whoever_repeats_it(
    once: Once, topic: str
) -> None:
    once("subscribe", topic, "--id", topic)
    first = once("put", topic, "paid", "--idempotency-key", "order-7")
    again = parsed(once("put", topic, "paid", "--idempotency-key", "order-7", "--json").text)[0]
    assert (first.text, first.code) == (f"{topic}@0\n", 0)
    assert (again["offset"], again["duplicate"]) == (0, True)
    other = once("put", topic, "refunded", "--idempotency-key", "order-7")
    assert (other.code, "another payload" in other.err) == (1, True)
    assert "idempotency keys  1" in once("topic", "show", topic).text
    assert once("get", topic, "-n", "9", "--id", topic).text == "paid\n"


def test_a_message_goes_to_several_topics_or_to_none(once: Once, topic: str) -> None:
    for name in (topic, f"{topic}-b"):
        once("subscribe", name, "--id", topic)
    put = once("put", topic, "news", "--also", f"{topic}-b")
    assert (put.text, put.code) == (f"{topic}@0\n{topic}-b@0\n", 0)
    partly = once("put", topic, "news", "--also", "nobody-wants-it", "--json")
    assert [each["stored"] for each in parsed(partly.text)] == [True, False]
    assert partly.code == 1
    assert once("put", topic, "news", "--also", topic).code == 1
    assert once("put", topic, "--lines", "--also", "x").code == 2
    assert once("get", f"{topic}-b", "-n", "9", "--id", topic).text == "news\n"
