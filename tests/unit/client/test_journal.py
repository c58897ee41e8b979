"""What a client must not forget: on disk when it says so, and only for the one that is current."""

import re
import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

import oncemq
from oncemq.client.state import endings
from oncemq.client.state import journal as journal_module
from oncemq.client.state.journal import FORMAT, Journal
from oncemq.client.state.journal_schema import STARTS_KEPT
from oncemq.errors import Corrupt, Fenced, Locked, StorageFull, StorageRefused, StorageUnsure
from oncemq.protocol.client_requests import StartGrant
from oncemq.protocol.names import NO_SUBSCRIPTION, Epoch, Generation, Micros, Offset, SubscriptionId
from oncemq.protocol.structs import Settled
from oncemq.session.handshake import NO_LOG, LogSeen

ID = SubscriptionId((1 << 62) + 5)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def journal(directory: Path) -> Iterator[Journal]:
    journal = Journal(directory, "billing")
    yield journal
    journal.close()


_copies: list[Journal] = []


@pytest.fixture(autouse=True)
def no_copy_stays_open() -> Iterator[None]:
    """Python 3.13 warns of a database that nobody closes."""
    yield
    while _copies:
        _copies.pop().close()


def crashed(directory: Path) -> Journal:
    """What a start finds when the process before it was killed now."""
    copy = directory.with_name(f"{directory.name}-copy")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(directory, copy)
    _copies.append(Journal(copy, "billing"))
    return _copies[-1]


def place(topic: str, cursor: int) -> tuple[str, SubscriptionId, Offset]:
    return topic, ID, Offset(cursor)


def test_a_new_journal_knows_nothing(journal) -> None:
    assert (journal.last_epoch(), journal.cursors()) == (0, {})


def test_the_directory_is_for_its_owner_alone(journal, directory) -> None:
    assert directory.stat().st_mode & 0o077 == 0


class NotingLevels(Journal):
    """Notes how far each cursor that moves is synced."""

    def __init__(self, directory: Path, client: str) -> None:
        self.levels: list[tuple[int]] = []
        super().__init__(directory, client)

    def _run(self, statement: str, *values: object) -> tuple[list[Any], int]:
        if "INTO cursors" in statement:
            self.levels += self._rows("PRAGMA synchronous")
        return super()._run(statement, *values)


def test_only_a_settling_that_another_disk_knows_is_left_to_a_power_cut(directory: Path) -> None:
    journal = NotingLevels(directory, "billing")
    for cursor, synced in enumerate((True, False, True), 1):
        journal.settle(Epoch(0), [place("orders", cursor)], synced=synced)
    assert journal.levels == [(2,), (1,), (2,)]
    journal.close()


def test_a_claim_is_on_disk_before_it_is_sent(journal, directory) -> None:
    journal.claim(7)
    journal.claim(8)
    after = crashed(directory)
    assert after.claim(9) == (0, (7, 8), NO_LOG, 0)
    after.close()


def test_a_grant_settles_its_claim_and_every_one_before_it(journal, directory) -> None:
    for nonce in (7, 8, 9):
        journal.claim(nonce)
    journal.granted(Epoch(4), 8)
    after = crashed(directory)
    assert after.claim(10) == (4, (9,), NO_LOG, 8)
    after.close()


def test_a_late_grant_does_not_take_the_epoch_back(journal) -> None:
    for nonce in (7, 8):
        journal.claim(nonce)
    journal.granted(Epoch(5), 8)
    journal.granted(Epoch(4), 7)
    assert journal.claim(9) == (5, (), NO_LOG, 8)


def test_a_claim_sees_all_of_a_twins_grant_or_nothing_of_it(journal, directory) -> None:
    twin = Journal(directory, "billing")
    twin.claim(7)
    seen: list[object] = []

    def asked(statement: str) -> None:  # the twin is granted between two steps of ours
        if statement.startswith("SELECT") and not seen:
            with pytest.raises(Locked, match="held by another process"):
                twin.granted(Epoch(1), 7)
            seen.append(statement)

    journal._db.set_trace_callback(asked)
    vars(twin)["_db"].execute("PRAGMA busy_timeout = 0")
    assert journal.claim(8) == (0, (7,), NO_LOG, 0)
    assert seen
    twin.close()


def test_cursors_are_on_disk_when_settle_returns(journal, directory) -> None:
    journal.granted(Epoch(1), 0)
    journal.settle(Epoch(1), [place("orders", 3)])
    journal.settle(Epoch(1), [place("orders", 5), place("refunds", 1)])
    after = crashed(directory)
    assert after.cursors() == {"orders": (ID, 5), "refunds": (ID, 1)}
    after.close()


@pytest.mark.parametrize("moves", [1, 2])
def test_only_the_current_client_moves_cursors_and_moves_all_or_none(journal, moves) -> None:
    journal.granted(Epoch(2), 0)
    with pytest.raises(Fenced, match="this one must stop"):
        journal.settle(Epoch(1), [place(f"t{n}", 3) for n in range(moves)])
    assert journal.cursors() == {}
    journal.settle(Epoch(2), [place("t0", 3)])
    assert journal.cursors() == {"t0": (ID, 3)}


def test_a_twin_in_another_process_is_fenced_by_the_newer(journal, directory) -> None:
    journal.granted(Epoch(1), 0)
    twin = Journal(directory, "billing")
    twin.granted(Epoch(2), 0)
    with pytest.raises(Fenced):
        journal.settle(Epoch(1), [place("orders", 3)])
    twin.settle(Epoch(2), [place("orders", 4)])
    assert journal.cursors() == {"orders": (ID, 4)}
    twin.close()


def test_nothing_to_settle_is_no_news(journal) -> None:
    journal.settle(Epoch(1), [])
    assert journal.cursors() == {}


def test_an_ended_subscription_is_forgotten(journal) -> None:
    journal.granted(Epoch(1), 0)
    journal.settle(Epoch(1), [place("orders", 3), place("refunds", 1)])
    journal.forget(Epoch(1), [("orders", ID)])
    assert journal.cursors() == {"refunds": (ID, 1)}


def test_the_state_of_another_client_is_refused(journal, directory) -> None:
    with pytest.raises(StorageRefused, match="belongs to client 'billing', not 'audit'") as caught:
        Journal(directory, "audit")
    assert caught.value.code == "not_yours"


def test_a_newer_format_is_refused_not_guessed(journal, directory) -> None:
    journal.close()
    with closing(sqlite3.connect(directory / "state.db")) as db, db:
        db.execute(f"PRAGMA user_version = {FORMAT + 1}")
    with pytest.raises(StorageRefused, match="written by a newer OnceMQ") as caught:
        Journal(directory, "billing")
    assert caught.value.code == "format_too_new"


# ------------------------------------------------------------------ a disk that is not in order


def damage(path: Path, *, at: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(b"not what was written" * 200)


def test_a_damaged_database_is_told_from_other_trouble_with_what_to_do(journal, directory) -> None:
    journal.granted(Epoch(1), 0)
    journal.settle(Epoch(1), [place("orders", 3)])
    journal.close()
    damage(directory / "state.db", at=0)
    with pytest.raises(Corrupt, match="is damaged") as caught:
        Journal(directory, "billing")
    assert str(directory / "state.db") in caught.value.detail
    assert "Move it away" in caught.value.detail


def test_damage_that_shows_later_is_told_as_such(journal, directory) -> None:
    journal.granted(Epoch(1), 0)
    journal.settle(Epoch(1), [place(f"t{number}", 3) for number in range(2_000)])
    journal.close()
    damage(directory / "state.db", at=9 * 4096)
    after = Journal(directory, "billing")
    with pytest.raises(Corrupt, match="is damaged"):
        after.cursors()
    after.close()


def test_a_full_disk_is_told_as_such_and_leaves_nothing_half_way(journal) -> None:
    journal._db.execute("PRAGMA max_page_count = 1")
    topics = [place("t" * 200 + str(number), 3) for number in range(500)]
    journal.granted(Epoch(1), 0)
    with pytest.raises(StorageFull, match="disk of this client is full"):
        journal.settle(Epoch(1), topics)
    assert journal.cursors() == {}
    journal._db.execute("PRAGMA max_page_count = 1000000")
    journal.settle(Epoch(1), topics)
    assert len(journal.cursors()) == 500


def test_other_trouble_is_told_with_what_the_database_says_of_it(journal) -> None:
    journal._db.execute("DROP TABLE cursors")
    with pytest.raises(StorageRefused, match="cannot be used: no such table"):
        journal.cursors()


def test_a_directory_in_which_nothing_can_be_opened_is_refused(tmp_path) -> None:
    (tmp_path / "state.db").mkdir()
    with pytest.raises(StorageRefused, match="cannot be used"):
        Journal(tmp_path, "billing")


def test_a_journal_of_format_1_is_taken_over_with_all_it_knows(journal, directory) -> None:
    """A state as version 0.2 left it: no log is known, which counts as the first generation."""
    journal.granted(Epoch(3), 0)
    journal.settle(Epoch(3), [place("orders", 7)])
    journal.close()
    with closing(sqlite3.connect(directory / "state.db")) as database, database:
        database.execute("DROP TRIGGER replaced")
        for table in ("client", "cursors"):
            database.execute(f"ALTER TABLE {table} DROP COLUMN checksum")
        database.execute("DROP TABLE log")
        database.execute("PRAGMA user_version = 1")
    after = Journal(directory, "billing")
    assert (after.last_epoch(), after.cursors()) == (3, {"orders": (ID, 7)})
    assert after.log() == NO_LOG
    after.know(LogSeen(b"log", Generation(2)))
    after.close()
    again = Journal(directory, "billing")
    assert again.log() == LogSeen(b"log", Generation(2))
    again.close()


def test_a_journal_of_format_2_is_taken_over_and_has_checksums_from_then_on(
    journal, directory
) -> None:
    here = LogSeen(b"log", Generation(2))
    journal.granted(Epoch(3), 0)
    journal.settle(Epoch(3), [place("orders", 7)])
    journal.know(here)
    journal.close()
    with closing(sqlite3.connect(directory / "state.db")) as database, database:
        database.execute("DROP TRIGGER replaced")
        for table in ("client", "cursors", "log"):
            database.execute(f"ALTER TABLE {table} DROP COLUMN checksum")
        database.execute("PRAGMA user_version = 2")
    after = Journal(directory, "billing")
    assert (after.last_epoch(), after.cursors(), after.log()) == (3, {"orders": (ID, 7)}, here)
    after.close()
    assert refused_with(directory, "UPDATE cursors SET cursor = 23")


def refused_with(directory: Path, change: str) -> bool:
    """Whether a state in which this changed, and SQLite calls it whole, is refused as damaged."""
    database = sqlite3.connect(directory / "state.db", isolation_level=None)
    database.execute(change)
    assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    database.close()
    try:
        journal = Journal(directory, "billing")
    except Corrupt as error:
        return "Move it away" in error.detail
    try:
        journal.cursors()
    except Corrupt as error:
        return "Move it away" in error.detail
    finally:
        journal.close()
    return False


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE cursors SET cursor = cursor | 16",
        "UPDATE cursors SET subscription_id = subscription_id & ~1",
        "UPDATE cursors SET topic = 'ordert' WHERE topic = 'orders'",
        "UPDATE cursors SET topic = CAST(x'6fff646572' AS TEXT) WHERE topic = 'orders'",
        "UPDATE client SET epoch = epoch & ~1",
        "UPDATE client SET id = 'bilding'",
        "UPDATE log SET generation = generation | 4",
        "UPDATE log SET log_id = x'6c6f66'",
        "UPDATE cursors SET checksum = NULL",
    ],
)
def test_a_flipped_bit_that_sqlite_does_not_see_is_damage(journal, directory, change) -> None:
    """A cursor that is too high would withhold messages for ever, without a word."""
    journal.granted(Epoch(3), 0)
    journal.settle(Epoch(3), [place("orders", 35), place("refunds", 2)])
    journal.know(LogSeen(b"log", Generation(2)))
    journal.close()
    assert not refused_with(directory, "SELECT 1")
    assert refused_with(directory, change)


def test_journals_that_are_made_at_the_same_moment_are_one(directory, monkeypatch) -> None:
    """Both find an empty file; the second waits for the first, and finds its tables."""
    begin = Journal._bring_up_to_date

    def meanwhile(journal: Journal) -> None:
        begin(journal)
        begin(journal)  # as the second does, after the first

    monkeypatch.setattr(Journal, "_bring_up_to_date", meanwhile)
    journal = Journal(directory, "billing")
    assert journal.cursors() == {}
    journal.close()


def test_a_loss_is_accepted_as_a_whole(journal, directory) -> None:
    journal.claim(7)
    journal.granted(Epoch(3), 0)
    journal.settle(Epoch(3), [place("orders", 7), place("gone", 2), place("kept", 1)])
    here = LogSeen(b"log", Generation(2))
    journal.accept(here, [("orders", Offset(4)), ("gone", None)])
    after = crashed(directory)
    assert after.claim(8) == (0, (), here, 0)
    assert after.cursors() == {"orders": (ID, 4), "kept": (ID, 1)}
    after.close()


def test_subscriptions_that_ended_are_known_the_last_ones_until_they_are_there_again(
    journal, directory, monkeypatch
) -> None:
    monkeypatch.setattr(endings, "ENDED_KEPT", 2)
    journal.granted(Epoch(3), 0)
    journal.settle(Epoch(3), [place(name, 7) for name in ("a", "b", "c", "d")])
    journal.forget(Epoch(2), [("d", ID)])  # a newer one is current
    journal.forget(Epoch(3), [("a", ID), ("b", ID)])
    journal.forget(Epoch(3), [("c", ID), ("never", NO_SUBSCRIPTION)])
    assert journal.ended() == (Settled("b", ID, Offset(7)), Settled("c", ID, Offset(7)))
    assert journal.granted(Epoch(3), 0).ended == journal.ended()
    journal.accept(LogSeen(b"log", Generation(2)), [], [Settled("b", ID, Offset(5))])
    after = crashed(directory)
    assert after.cursors() == {"b": (ID, 5), "d": (ID, 7)}
    assert after.ended() == ()  # of the same id, in this test
    after.close()


def test_of_subscriptions_that_ended_with_nothing_taken_the_last_ones_are_known(
    journal, directory, monkeypatch
) -> None:
    monkeypatch.setattr(endings, "UNTAKEN_KEPT", 2)
    journal.granted(Epoch(3), 0)
    for name in ("a", "b", "c.*"):
        journal.forget(Epoch(3), [(name, SubscriptionId(ord(name[0])))])
    nothing = Offset(-1)
    known = (
        Settled("b", SubscriptionId(ord("b")), nothing),
        Settled("c.*", SubscriptionId(ord("c")), nothing),
    )
    after = crashed(directory)
    assert (after.ended(), after.known().ended) == (known, known)
    after.close()


def test_a_state_of_before_endings_without_a_cursor_were_noted_goes_on(journal, directory) -> None:
    journal.granted(Epoch(3), 0)
    journal.settle(Epoch(3), [place("a", 7)])
    journal.forget(Epoch(3), [("a", ID)])
    with closing(sqlite3.connect(directory / "state.db")) as db:
        db.execute("DROP TABLE untaken")
        db.commit()
    after = crashed(directory)
    assert after.ended() == (Settled("a", ID, Offset(7)),)
    after.forget(Epoch(3), [("b", SubscriptionId(9))])
    assert after.ended()[1:] == (Settled("b", SubscriptionId(9), Offset(-1)),)
    after.close()


def test_a_damaged_row_of_one_that_ended_with_nothing_taken_is_told(journal, directory) -> None:
    journal.granted(Epoch(3), 0)
    journal.forget(Epoch(3), [("a", ID)])
    with closing(sqlite3.connect(directory / "state.db")) as db:
        db.execute("UPDATE untaken SET name = 'b'")
        db.commit()
    with pytest.raises(Corrupt, match="a row of untaken"):
        journal.ended()


def test_a_damaged_row_of_a_subscription_that_ended_is_told(journal, directory) -> None:
    journal.granted(Epoch(3), 0)
    journal.settle(Epoch(3), [place("a", 7)])
    journal.forget(Epoch(3), [("a", ID)])
    with closing(sqlite3.connect(directory / "state.db")) as db:
        db.execute("UPDATE ended SET cursor = 9")
        db.commit()
    with pytest.raises(Corrupt, match="a row of ended"):
        journal.ended()


def test_values_of_statements_have_no_numbers() -> None:
    """`?1` with a sequence is deprecated from Python 3.12 on, and an error in 3.14."""
    numbered = [
        f"{path.name}: {line.strip()}"
        for path in Path(oncemq.__file__).parent.rglob("*.py")
        for line in path.read_text().splitlines()
        if re.search(r"= \?\d|\(\?\d", line)
    ]
    assert numbered == []


# ------------------------------------------------------------------ a commit that failed somehow


class Doubtful:
    """A connection whose commits fail, `often` in a row; some are on the disk all the same."""

    def __init__(self, db: sqlite3.Connection, often: int, *, kept: bool, code: int) -> None:
        self._db, self.often, self._kept, self._code = db, often, kept, code

    def __getattr__(self, name: str):
        return getattr(self._db, name)

    def execute(self, statement: str, values=()):
        alone = not self._db.in_transaction and statement.strip().startswith("INSERT")
        if not (self.often and (alone or statement == "COMMIT")):
            return self._db.execute(statement, values)
        self.often -= 1
        if self._kept:
            self._db.execute(statement, values)
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode = self._code
        raise error


FSYNC = sqlite3.SQLITE_IOERR_FSYNC
WRITES: dict[str, Callable[[Journal], object]] = {
    "claim": lambda journal: journal.claim(9),
    "granted": lambda journal: journal.granted(Epoch(4), 7),
    "know": lambda journal: journal.know(LogSeen(b"log", Generation(2))),
    "settle": lambda journal: journal.settle(Epoch(3), [place("orders", 5)]),
    "settle two": lambda journal: journal.settle(
        Epoch(3), iter([place("orders", 5), place("refunds", 1)])
    ),
    "settle unsynced": lambda journal: journal.settle(
        Epoch(3), iter([place("orders", 5)]), synced=False
    ),
    "forget": lambda journal: journal.forget(
        Epoch(3), iter([("orders", ID), ("nothing taken", SubscriptionId(9))])
    ),
    "accept": lambda journal: journal.accept(
        LogSeen(b"log", Generation(2)), iter([("orders", Offset(1))])
    ),
}


def filled(directory: Path) -> Journal:
    journal = Journal(directory, "billing")
    for nonce in (6, 7, 8):
        journal.claim(nonce)
    journal.granted(Epoch(3), 6)
    journal.settle(Epoch(3), [place("orders", 3)])
    return journal


def sicken(journal: Journal, often: int, *, kept: bool, code: int = FSYNC) -> Doubtful:
    doubtful = Doubtful(vars(journal)["_db"], often, kept=kept, code=code)
    vars(journal)["_db"] = doubtful
    return doubtful


def everything(directory: Path) -> list[object]:
    with closing(sqlite3.connect(directory / "state.db")) as db:
        tables = ("client", "claims", "cursors", "log", "ended", "untaken", "grants")
        return [db.execute(f"SELECT * FROM {table}").fetchall() for table in tables]


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("write", WRITES)
def test_a_commit_that_failed_once_is_made_sure_of(tmp_path: Path, write: str, kept: bool) -> None:
    told: list[object] = []
    for often, directory in enumerate([tmp_path / "well", tmp_path / "sick"]):
        journal = filled(directory)
        doubtful = sicken(journal, often, kept=kept)
        told.append(WRITES[write](journal))
        assert doubtful.often == 0
        journal.close()
    assert told[0] == told[1]
    assert everything(tmp_path / "sick") == everything(tmp_path / "well")


@pytest.mark.parametrize("write", WRITES)
def test_a_commit_that_fails_twice_is_told_as_not_known(directory: Path, write: str) -> None:
    journal = filled(directory)
    sicken(journal, 2, kept=True)
    with pytest.raises(StorageUnsure, match="may be on the disk or not"):
        WRITES[write](journal)
    journal.close()


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize(
    ("code", "expected"), [(sqlite3.SQLITE_FULL, StorageFull), (sqlite3.SQLITE_BUSY, Locked)]
)
def test_what_is_surely_not_written_is_not_tried_again(
    directory: Path, write: str, code: int, expected: type[Exception]
) -> None:
    journal = filled(directory)
    before = everything(directory)
    sicken(journal, 1, kept=False, code=code)
    with pytest.raises(expected):
        WRITES[write](journal)
    assert everything(directory) == before
    journal.close()


def test_damage_that_a_write_meets_is_told_as_damage(directory: Path) -> None:
    """It shows before anything is written: there is nothing to be made sure of."""
    journal = filled(directory)
    vars(journal)["_db"].execute("UPDATE cursors SET cursor = 99")  # and not its checksum
    with pytest.raises(Corrupt, match="the checksum of a row of cursors"):
        journal.granted(Epoch(4), 7)
    assert journal.last_epoch() == 3
    journal.close()


def test_starts_that_were_let_in_are_known_and_stay_so_when_a_loss_is_accepted(
    journal, directory
) -> None:
    for nonce in range(1, 10):
        journal.claim(nonce)
        if nonce in (6, 7):
            journal.granted(Epoch(nonce - 3), nonce, Micros(nonce * 10))
    unheard = tuple(map(StartGrant, range(1, 6)))  # perhaps another branch let them in
    granted = *unheard, StartGrant(6, Epoch(3), Micros(60)), StartGrant(7, Epoch(4), Micros(70))
    assert (journal.grants(), journal.claims()) == (granted, (8, 9))
    assert journal.known().grants == granted
    journal.accept(LogSeen(b"log", Generation(2)), [])
    after = crashed(directory)
    left = tuple(map(StartGrant, range(1, 10)))
    assert (after.grants(), after.claims()) == (left, ())
    assert after.claim(10).last_nonce == 0
    after.granted(Epoch(2), 10, Micros(5))
    assert after.grants() == (*left, StartGrant(10, Epoch(2), Micros(5)))
    assert after.claim(11).last_nonce == 10
    after.close()


def test_starts_on_one_branch_do_not_push_out_those_on_others(journal) -> None:
    for nonce in (1, 2):
        journal.claim(nonce)
        journal.granted(Epoch(nonce), nonce)
    journal.accept(LogSeen(b"log", Generation(2)), [])
    for nonce in range(3, 200):
        journal.claim(nonce)
        journal.granted(Epoch(nonce), nonce)
    known = [each.nonce for each in journal.grants()]
    assert known == [1, 2, *range(200 - STARTS_KEPT, 200)]


def test_a_damaged_row_of_a_start_is_told(journal, directory) -> None:
    journal.claim(7)
    journal.granted(Epoch(3), 7)
    with closing(sqlite3.connect(directory / "state.db")) as db:
        db.execute("UPDATE grants SET nonce = 9")
        db.commit()
    with pytest.raises(Corrupt, match="a row of grants"):
        journal.grants()


def test_a_state_is_held_by_the_current_process_alone(journal, directory) -> None:
    journal.granted(Epoch(1), 1)
    with journal.hold():
        assert journal.last_epoch() == 1
    with closing(Journal(directory, "billing")) as newer:
        newer.granted(Epoch(2), 2)
        with pytest.raises(Fenced), journal.hold():
            pytest.fail("it was replaced")
        with newer.hold():
            assert newer.last_epoch() == 2
    journal.granted(Epoch(3), 3)  # let in again, as a client is whose server lost it
    with journal.hold():
        journal.settle(Epoch(3), [place("orders", 1)])


class ToldOfTurns:
    """The lock of a journal, which tells what another thread that asks for it meets."""

    def __init__(self, turn: Any, told: SimpleQueue[str]) -> None:
        self._turn, self._told = turn, told
        self._thread = threading.current_thread()

    def __enter__(self) -> None:
        is_free = self._turn.acquire(blocking=False)
        if threading.current_thread() is not self._thread:
            self._told.put("goes ahead" if is_free else "waits")
        if not is_free:
            self._turn.acquire()

    def __exit__(self, *_: object) -> None:
        self._turn.release()


def test_a_thread_that_settles_waits_for_one_that_holds(journal, directory) -> None:
    """On one connection its cursor would be in the other's transaction, and go with it."""
    journal.granted(Epoch(1), 1)
    told: SimpleQueue[str] = SimpleQueue()
    journal._turn = ToldOfTurns(journal._turn, told)

    def settle() -> None:
        journal.settle(Epoch(1), [place("orders", 1)])
        told.put("settled")

    settling = threading.Thread(target=settle)
    with suppress(ZeroDivisionError), journal.hold():
        settling.start()
        assert told.get() == "waits"
        raise ZeroDivisionError
    settling.join()
    assert crashed(directory).cursors() == {"orders": (ID, 1)}


def test_an_exception_of_the_caller_is_not_blamed_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, real = [], journal_module.row_checksum

    def interrupted(*values: object) -> int:
        if calls:
            raise calls.pop()
        return real(*values)

    monkeypatch.setattr(journal_module, "row_checksum", interrupted)
    journal = Journal(tmp_path, "ada")
    journal.granted(Epoch(3), 1)
    calls.append(KeyboardInterrupt())
    with pytest.raises(StorageRefused, match="was left as it was") as raised:
        journal.granted(Epoch(4), 2)
    assert raised.value.code == "interrupted"
    assert "Is its disk" not in raised.value.detail
    assert journal.last_epoch() == 3
    assert journal.granted(Epoch(4), 2).grants[-1].client_epoch == 4
    journal.close()


def test_a_claim_that_is_made_again_is_not_one_of_those_before_it(journal) -> None:
    """Its commit failed, and may be there all the same: it is tried once more."""
    journal.claim(7)
    for _ in range(2):
        assert journal.claim(8).claims == (7,)
        assert journal.claims() == (7, 8)


@pytest.mark.parametrize("over", [1 << 63, 1 << 64])
def test_a_number_that_no_server_of_ours_gives_is_refused_and_nothing_is_noted(
    journal: Journal, directory: Path, over: int
) -> None:
    journal.claim(7)
    journal.granted(Epoch(4), 7)
    journal.claim(8)
    for noting in (
        lambda: journal.granted(Epoch(over), 8),
        lambda: journal.granted(Epoch(5), 8, Micros(over)),
        lambda: journal.know(LogSeen(b"log", Generation(over))),
        lambda: journal.settle(Epoch(4), [("orders", ID, Offset(over))]),
        lambda: journal.forget(Epoch(4), [("orders", SubscriptionId(over))]),
    ):
        with pytest.raises(Corrupt, match="over 2\\*\\*63") as refused:
            noting()
        assert refused.value.code == "corrupt"
    assert crashed(directory).claim(9) == (4, (8,), NO_LOG, 7)
