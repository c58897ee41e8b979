"""What cannot be asked for is refused in words, and the client goes on afterwards."""

import sqlite3
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oncemq import Client, Corrupt, InvalidRequest
from oncemq.client.state.journal import Journal
from tests.integration.conftest import Connect

LONE = "lone \ud800 surrogate"

WRONG: list[Callable[[Any], Any]] = [
    lambda mq: mq.get("orders", limit=2**70),
    lambda mq: mq.get("orders", limit=0),
    lambda mq: mq.get("orders", limit=-1),
    lambda mq: mq.get("orders", wait=float("inf")),
    lambda mq: mq.get("orders", wait=float("nan")),
    lambda mq: mq.get("orders", wait=-1),
    lambda mq: mq.get(LONE),
    lambda mq: mq.subscribe(LONE),
    lambda mq: mq.subscribe(5),
    lambda mq: mq.subscribe("orders", start=2**70),
    lambda mq: mq.subscribe("orders", start=-5),
    lambda mq: mq.unsubscribe(LONE),
    lambda mq: mq.read("orders", -1),
    lambda mq: mq.read("orders", 2**70),
    lambda mq: mq.read("orders", 0, limit=2**70),
    lambda mq: mq.topic(LONE),
    lambda mq: mq.delete_topic(LONE),
    lambda mq: mq.create_topic(LONE),
    lambda mq: mq.create_topic("other", retention="7d"),
    lambda mq: mq.configure_topic("orders", "7d"),
    lambda mq: mq.subscriptions(LONE),
    lambda mq: mq.subscriptions(client=LONE),
    lambda mq: mq.put(LONE, b"x"),
    lambda mq: mq.put(5, b"x"),
    lambda mq: mq.put("orders", b"x", key="k"),
    lambda mq: mq.put("orders", b"x", headers={"a": 1}),
    lambda mq: mq.put("orders", b"x", headers={LONE: "a"}),
    lambda mq: mq.put("orders", b"x", headers={"a": LONE}),
    lambda mq: mq.put("orders", b"x", headers=["a"]),
    lambda mq: mq.put("orders", b"x", headers={"a": 1}, wait=False),
    lambda mq: mq.put("orders", b"x", idempotency_key=LONE),
    lambda mq: mq.put(["orders", LONE], b"x"),
    lambda mq: mq.put("orders", b"x", key=bytes(17 << 20)),
    lambda mq: mq.put("orders", b"x", headers={"a": "b" * (20 << 20)}),
    lambda mq: mq.put("orders", b"x", headers={"a": "b" * (20 << 20)}, wait=False),
    lambda mq: mq.put_many("orders", b"abc"),
    lambda mq: mq.put_many("orders", b""),
    lambda mq: mq.put_many("orders", [b"x"], headers=[{"a": 1}]),
    lambda mq: mq.put_many("orders", [b"x", b"y"], keys=[b"", bytes(17 << 20)]),
]


def test_it_is_refused_in_words_and_the_client_goes_on(server: str, connect: Connect) -> None:
    mq = connect(server)
    mq.subscribe("orders")
    for number, wrong in enumerate(WRONG):
        with pytest.raises(InvalidRequest) as refused:
            wrong(mq)
        assert len(str(refused.value)) < 400, number
        assert mq.put("orders", b"%d" % number).stored
        assert [each.payload for each in mq.get("orders")] == [b"%d" % number]


def test_headers_are_those_of_the_put_and_not_of_later(server: str) -> None:
    with Client(server) as mq:
        mq.subscribe("orders")
        headers = {"n": "0"}
        for number in range(3):
            headers["n"] = str(number)
            mq.put("orders", b"x", headers=headers, wait=False)
        mq.flush()
        assert [each.headers["n"] for each in mq.get("orders", limit=9)] == ["0", "1", "2"]


def test_an_id_that_is_no_text_is_refused(server: str) -> None:
    for wrong in (LONE, 5):
        with pytest.raises(InvalidRequest):
            Client(server, id=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE client SET epoch = 'text'",
        "UPDATE cursors SET cursor = 'text'",
        "UPDATE cursors SET subscription_id = x'00ff'",
        "INSERT INTO claims VALUES (1, 'text')",
    ],
)
def test_a_damaged_state_is_corrupt_and_never_a_raw_error(
    server: str, tmp_path: Path, damage: str
) -> None:
    with Client(server, id="ada", state=tmp_path) as mq:
        mq.subscribe("orders")
        mq.put("orders", b"x")
        mq.get("orders")
    database = sqlite3.connect(tmp_path / "state.db")
    database.execute(damage)
    database.commit()
    database.close()
    with pytest.raises(Corrupt, match=r"state\.db is damaged"):
        Client(server, id="ada", state=tmp_path)


def test_the_state_is_for_its_owner_alone(tmp_path: Path) -> None:
    (tmp_path / "state.db").touch(mode=0o644)
    journal = Journal(tmp_path, "ada")
    journal.claim(1)
    rights = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    journal.close()
    assert rights == dict.fromkeys(("state.db", "state.db-wal", "state.db-shm"), 0o600)


class WithoutSharedMemory(Journal):
    """As on a file system where SQLite cannot have its journal as a log."""

    def _rows(self, statement: str, *values: object) -> list[Any]:
        return super()._rows(statement.replace("journal_mode=WAL", "journal_mode=DELETE"), *values)


@pytest.mark.parametrize(("kind", "level"), [(Journal, 2), (WithoutSharedMemory, 3)])
def test_the_last_commit_outlives_a_power_cut_with_either_journal(
    tmp_path: Path, kind: type[Journal], level: int
) -> None:
    journal = kind(tmp_path, "ada")
    assert journal._rows("PRAGMA synchronous") == [(level,)]
    assert journal._rows("PRAGMA fullfsync") == [(1,)]
    assert journal._rows("PRAGMA checkpoint_fullfsync") == [(1,)]
    journal.settle(journal.last_epoch(), [], synced=False)
    assert journal._rows("PRAGMA synchronous") == [(level,)]
    journal.close()
