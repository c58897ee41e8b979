"""`once audit` on a real server: clean when all is well, exit code 6 and the place when not."""

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from oncemq import Client, Corrupt, Message
from oncemq.audit.checker import Audit
from oncemq.client.admin.topic_facts import walk
from oncemq.protocol.names import Micros, Offset, TopicId
from oncemq.protocol.records import Retention
from oncemq.protocol.replies import TopicInfo

Once = Callable[..., Any]


@pytest.fixture
def five(once: Once, topic: str) -> str:
    """A topic that retains the messages m0 to m4."""
    assert once("topic", "create", topic, "--retain", "forever").code == 0
    lines = b"".join(b"m%d\n" % number for number in range(5))
    assert once("put", topic, "--lines", stdin=lines).code == 0
    return topic


def journal(path: Path, *lines: dict[str, object]) -> str:
    path.write_text("\n".join(map(json.dumps, lines)) + "\n", "utf-8")
    return str(path)


def ids(topic: str, *offsets: int) -> list[dict[str, object]]:
    return [{"id": f"{topic}@{offset}"} for offset in offsets]


# ------------------------------------------------------------------ the log alone


def test_a_topic_that_is_whole_is_clean(once: Once, five: str) -> None:
    ran = once("audit", five)
    assert ran.code == 0
    assert ran.text.splitlines()[-1] == "5 messages: 0 gaps, 0 duplicates, nothing found"


def test_json_tells_the_same(once: Once, five: str) -> None:
    facts = json.loads(once("audit", five, "--json").text)
    assert facts["clean"] is True
    assert facts["topics"] == [
        {"topic": five, "low": 0, "end": 5, "messages": 5, "producers": 1}
    ]  # fmt: skip
    assert set(facts["counts"].values()) == {0}


def test_without_a_topic_all_are_audited(once: Once, five: str) -> None:
    facts = json.loads(once("audit", "--json").text)
    assert five in [each["topic"] for each in facts["topics"]]


def test_a_topic_that_is_not_there_is_refused(once: Once, topic: str) -> None:
    assert once("audit", topic).code == 1


def test_messages_that_were_let_go_are_not_missed(once: Once, topic: str) -> None:
    assert once("subscribe", topic).code == 0
    assert once("put", topic, "--lines", stdin=b"a\nb\nc\n").code == 0
    assert once("get", topic, "-n", "2").code == 0
    assert once("audit", topic).code == 0


# ------------------------------------------------------------------ journals


def test_a_journal_of_each_message_once_is_clean(once: Once, five: str, tmp_path: Path) -> None:
    path = journal(tmp_path / "j", *ids(five, 0, 1, 2, 3, 4))
    ran = once("audit", five, "--journal", path)
    assert ran.code == 0
    assert "5 messages, 5 effects: 0 gaps, 0 duplicates" in ran.text


@pytest.mark.parametrize(
    ("offsets", "counts"),
    [
        ((0, 1, 2, 4), {"lost_middle": 1}),
        ((0, 1, 1, 2, 3, 4), {"redelivered": 1}),
        ((0, 2, 1, 3, 4), {"reordered": 1}),
        ((0, 1, 2, 3, 4, 9), {"phantom": 1}),
    ],
)
def test_a_journal_that_is_wrong_ends_with_6_and_the_place(
    once: Once, five: str, tmp_path: Path, offsets: tuple[int, ...], counts: dict[str, int]
) -> None:
    path = journal(tmp_path / "j", *ids(five, *offsets))
    ran = once("audit", "--journal", path, "--json")
    facts = json.loads(ran.text)
    assert ran.code == 6
    assert {kind: count for kind, count in facts["counts"].items() if count} == counts
    assert facts["findings"][0]["message"].startswith(f"{five}@")


def test_a_finding_is_shown_with_the_promise_it_breaks(
    once: Once, five: str, tmp_path: Path
) -> None:
    ran = once("audit", five, "--journal", journal(tmp_path / "j", *ids(five, 0, 1, 2, 4)))
    assert ran.code == 6
    assert "lost middle" in ran.text
    assert "G4" in ran.text
    assert f"{five}@3" in ran.text


def test_payloads_are_compared_by_their_digest(once: Once, five: str, tmp_path: Path) -> None:
    payloads = [b"m0", b"m1", b"changed", b"m3", b"m4"]
    lines = [
        {"topic": five, "offset": offset, "payload_sha256": sha256(payload).hexdigest()}
        for offset, payload in enumerate(payloads)
    ]
    facts = json.loads(once("audit", "--journal", journal(tmp_path / "j", *lines), "--json").text)
    assert [(each["kind"], each["message"]) for each in facts["findings"]] == [
        ("corrupt", f"{five}@2")
    ]


def test_a_journal_may_begin_and_end_inside_the_topic(
    once: Once, five: str, tmp_path: Path
) -> None:
    path = journal(tmp_path / "j", *ids(five, 1, 2))
    assert once("audit", five, "--journal", path).code == 6
    assert once("audit", five, "--journal", path, "--from", "1", "--until", "3").code == 0


def test_a_column_of_a_database_is_a_journal(once: Once, five: str, tmp_path: Path) -> None:
    path = tmp_path / "effects.db"
    with closing(sqlite3.connect(path)) as database:
        with database:
            database.execute('CREATE TABLE "my effects" (id TEXT)')
            rows = [(each["id"],) for each in ids(five, 0, 1, 2, 3, 4)]
            database.executemany('INSERT INTO "my effects" VALUES (?)', rows)
        assert once("audit", five, "--journal", f"{path}:my effects:id").code == 0
        with database:
            database.execute('DELETE FROM "my effects" WHERE rowid = 2')
    assert once("audit", five, "--journal", f"{path}:my effects:id").code == 6


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "mentions no message"),
        ("{", "line 1"),
        ('{"offset": 1}', 'a line has an "id"'),
        ('{"id": "orders"}', "is not the id of a message"),
        ('{"id": "orders@1", "payload_sha256": "zz"}', "line 1"),
    ],
)
def test_a_journal_that_cannot_be_read_is_wrong_usage(
    once: Once, tmp_path: Path, text: str, said: str
) -> None:
    path = tmp_path / "j"
    path.write_text(text, "utf-8")
    ran = once("audit", "--journal", str(path))
    assert ran.code == 2
    assert said in ran.err


def test_a_journal_that_is_not_there_and_a_bare_database_are_wrong_usage(
    once: Once, tmp_path: Path
) -> None:
    assert "is no file" in once("audit", "--journal", "gone").err
    path = tmp_path / "d.db"
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE t (id TEXT)")
    database.close()
    assert ":TABLE:COLUMN" in once("audit", "--journal", str(path)).err
    assert once("audit", "--journal", f"{path}:t:nothing").code == 2


# ------------------------------------------------------------------ receipts


def test_receipts_are_looked_for_in_the_log(once: Once, topic: str, tmp_path: Path) -> None:
    assert once("topic", "create", topic, "--retain", "forever").code == 0
    lines = [once("put", topic, f"m{number}", "--json").text for number in range(3)]
    path = tmp_path / "receipts"
    path.write_text("".join(lines), "utf-8")
    assert once("audit", topic, "--receipts", str(path)).code == 0
    path.write_text("".join([*lines, json.dumps({"topic": topic, "offset": 7})]), "utf-8")
    ran = once("audit", "--receipts", str(path), "--json")
    found = [(each["kind"], each["message"]) for each in json.loads(ran.text)["findings"]]
    assert (ran.code, found) == (6, [("lost", f"{topic}@7")])


def test_receipts_without_a_place_say_nothing_and_of_no_topic_are_lost(
    once: Once, five: str, tmp_path: Path
) -> None:
    old: dict[str, object] = {"topic": five, "offset": None, "stored": True}
    unstored: dict[str, object] = {"topic": five, "offset": 99, "stored": False}
    path = journal(tmp_path / "r", *ids(five, 0), old, unstored)
    assert once("audit", five, "--receipts", path).code == 0
    path = journal(tmp_path / "r", {"id": "no such topic@0"})
    assert once("audit", "--receipts", path).code == 6
    changed: dict[str, object] = {"id": f"{five}@1", "payload_sha256": sha256(b"other").hexdigest()}
    facts = json.loads(once("audit", "--receipts", journal(tmp_path / "r", changed), "--json").text)
    assert [(each["kind"], each["message"]) for each in facts["findings"]] == [
        ("corrupt", f"{five}@1")
    ]


# ------------------------------------------------------------------ damage


class Damaged:
    """A client whose messages cannot all be read."""

    def __init__(self, client: Client, bad: set[int]) -> None:
        self._client = client
        self._bad = bad

    def read(self, topic: str, offset: int, *, limit: int = 100) -> list[Message]:
        if self._bad & set(range(offset, offset + limit)):
            raise Corrupt("checksum")
        return self._client.read(topic, offset, limit=limit)


@pytest.fixture
def client(once_server: Any) -> Iterator[Client]:
    with Client(once_server.address) as made:
        yield made


@pytest.mark.parametrize(
    ("bad", "expected"),
    [
        ({0}, [("corrupt", 0, 1)]),
        ({2, 3}, [("corrupt", 2, 2)]),
        ({1, 8, 9}, [("corrupt", 1, 1), ("corrupt", 8, 2)]),
    ],
)
def test_damage_is_a_finding_and_the_rest_is_audited(
    client: Client, topic: str, bad: set[int], expected: list[tuple[str, int, int]]
) -> None:
    client.create_topic(topic, Retention(forever=True))
    client.delete_topic(topic)
    client.create_topic(topic, Retention(forever=True))
    client.put_many(topic, [b"x"] * 10)
    audit = Audit()
    for fact in walk(Damaged(client, bad), client.topic(topic).topic):  # type: ignore[arg-type]
        audit.see(fact)
    found = audit.finish().kept
    assert [(each.kind, each.offset, each.count) for each in found] == expected
    assert audit.logs[topic].messages == 10 - len(bad)


def test_a_topic_that_says_it_has_more_than_it_gives_has_a_gap(client: Client, topic: str) -> None:
    client.create_topic(topic, Retention(forever=True))
    client.put_many(topic, [b"x"] * 3)
    info = client.topic(topic).topic
    more = TopicInfo(
        topic, TopicId(info.topic_id), info.low, Offset(5), 0, 1, info.retention, Micros(0)
    )
    audit = Audit()
    for fact in walk(client, more):
        audit.see(fact)
    assert [(each.kind, each.offset, each.count) for each in audit.finish().kept] == [("gap", 3, 2)]
