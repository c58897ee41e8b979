"""The archive without Spark: what readers see, at any moment and after any kill."""

import errno
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from oncemq import Client, errors
from oncemq.cli.main import cli
from oncemq.protocol.records import Retention
from oncemq.spark.pipelines import Archived, archive
from oncemq.spark.pipelines.archives import files as archive_files
from oncemq.spark.pipelines.archives import parquet, tasks
from oncemq.spark.pipelines.archives import place as archive_place
from oncemq.spark.pipelines.archives.archive import archive_on
from oncemq.spark.pipelines.archives.check import check
from oncemq.spark.pipelines.archives.place import make
from oncemq.spark.pipelines.run import PipelineRun
from oncemq.spark.source.data_loss import DataLost
from oncemq.spark.source.retention_subscription import Hold
from tests.spark.conftest import settle
from tests.spark.killing import Nursery, without_spark

Message = tuple[Any, ...]
FOREVER = Retention(forever=True)
DAY = tasks.DAY_MICROS


@pytest.fixture
def to(tmp_path: Path) -> Path:
    return tmp_path / "archive"


@pytest.fixture
def archived(address: str, to: Path) -> Iterator[Callable[..., Archived]]:
    """`archived("orders")`: archive it, without Spark."""
    with without_spark():
        yield lambda *topics, **given: archive(
            topics, given.pop("to", to), server=address, timeout=20, **given
        )


def put(mq: Client, first: int, count: int, topic: str = "orders") -> None:
    """Numbered messages; some have keys, some headers."""
    numbers = range(first, first + count)
    mq.put_many(
        topic,
        [b"%d" % n for n in numbers],
        keys=[b"k%d" % (n % 3) if n % 2 else None for n in numbers],
        headers=[{"n": str(n)} if n % 5 == 0 else None for n in numbers],
    )


def stored(mq: Client, topic: str = "orders", start: int = 0) -> list[Message]:
    """What the server has from there on, as rows."""
    found: list[Message] = []
    while messages := mq.read(topic, start + len(found), limit=10_000):
        found += [
            (
                each.key,
                each.payload,
                each.topic,
                each.offset,
                each.timestamp,
                sorted(each.headers.items()) or None,
                each.producer,
                each.sequence,
            )
            for each in messages
        ]
    return found


def seen(to: Path) -> list[Message]:
    """What anybody sees who reads the directory as Parquet; by topic and offset."""
    table = pq.read_table(to) if to.exists() and any(to.glob("topic=*/*/*")) else pa.table({})
    if not table.num_rows:
        return []
    table = table.set_column(
        table.schema.get_field_index("topic"), "topic", table["topic"].cast(pa.string())
    )
    names = ["key", "value", "topic", "offset", "timestamp", "headers", "producer", "sequence"]
    rows = table.select(names).sort_by([("topic", "ascending"), ("offset", "ascending")])
    return list(zip(*(column.to_pylist() for column in rows.columns), strict=True))


# ------------------------------------------------------------------ what is archived


def test_each_message_is_there_once_with_all_it_has(mq: Client, archived, to: Path) -> None:
    mq.create_topic("refunds/ä=1", FOREVER)
    put(mq, 0, 100)
    put(mq, 0, 7, "refunds/ä=1")
    done = archived("orders", "refunds/ä=1")
    assert (done.messages, done.ends) == (107, {"orders": 100, "refunds/ä=1": 7})
    assert seen(to) == stored(mq) + stored(mq, "refunds/ä=1")
    assert archived("orders").messages == 0
    checked = check(to)
    assert (checked.messages, checked.findings) == (107, [])


def test_small_files_grow_into_one(mq: Client, archived, to: Path) -> None:
    before = b""
    for number in range(6):
        put(mq, 10 * number, 10)
        assert archived("orders").messages == 10
        assert seen(to) == stored(mq)
        (file,) = to.glob("topic=orders/*/*.parquet")
        after = file.read_bytes()
        assert after.startswith(before)  # who knows the file by its old size reads what was there
        before = after


def test_a_file_of_many_small_steps_grows_no_more(
    mq: Client, archived, to: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "GROUPS_MAX", 3)
    for number in range(5):
        put(mq, 10 * number, 10)
        archived("orders")
    assert len(list(to.glob("topic=orders/*/*.parquet"))) == 2
    assert seen(to) == stored(mq)


def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oncemq.spark.columns.batch_to_arrow.ROWS_MAX", 50)
    monkeypatch.setattr(tasks, "GROUP_ROWS", 50)
    monkeypatch.setattr(tasks, "FILE_BYTES", 1000)


def test_files_are_cut_by_size_and_by_day(
    mq: Client, archived, to: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_files(monkeypatch)
    for number in range(10):
        put(mq, 100 * number, 100)
    archived("orders")
    assert len(list(to.glob("topic=orders/*/*.parquet"))) > 2
    assert seen(to) == stored(mq)
    assert check(to).findings == []


def test_rows_are_split_where_the_day_ends() -> None:
    micros = [0, 1, DAY - 1, DAY, DAY, 3 * DAY]
    rows = pa.RecordBatch.from_pydict({"timestamp": pa.array(micros, pa.timestamp("us", "UTC"))})
    found = [(day, part.num_rows) for day, part in tasks.by_day(rows)]
    assert found == [("1970-01-01", 3), ("1970-01-02", 2), ("1970-01-04", 1)]


def test_a_day_that_is_over_is_left_as_it_is(
    mq: Client, archived, to: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(mq, 0, 10)
    archived("orders")
    (file,) = to.glob("topic=orders/*/*.parquet")
    yesterday = to / "topic=orders/day=2001-01-01"
    file.parent.rename(yesterday)
    put(mq, 10, 10)
    archived("orders")
    assert pq.read_metadata(yesterday / file.name).num_rows == 10
    assert len(seen(to)) == 20
    assert "has messages of another day" in check(to).findings[0]


def test_the_server_keeps_what_is_not_archived_and_frees_what_is(mq: Client, archived) -> None:
    mq.subscribe("events")
    put(mq, 0, 10, "events")
    done = archived("events")
    settle(mq, "events", 10)
    put(mq, 10, 10, "events")
    settle(mq, "events", 20)
    held = mq.topic("events").topic
    assert (held.low, held.end) == (10, 20)
    assert archived("events").messages == 10
    assert mq.topic("events").topic.low == 20
    assert done.subscription == mq.topic("events").subscriptions[-1].client


def test_files_are_synced_before_readers_see_them_and_names_before_the_server_is_told(
    mq: Client, archived, to: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(mq, 0, 10)
    archived("orders")
    put(mq, 10, 10)
    done: list[tuple[str, str]] = []

    def noted(owner: Any, name: str, label: str) -> None:
        step = getattr(owner, name)

        def noting(*arguments: Any, **named: Any) -> Any:
            done.append((label, str(arguments[0])))
            return step(*arguments, **named)

        monkeypatch.setattr(owner, name, noting)

    noted(tasks, "sync_file", "synced")
    for module in (archive_place, parquet, archive_files):
        noted(module, "sync_directory", "synced")
    noted(Path, "replace", "renamed")
    noted(Hold, "settle", "told")
    archived("orders")
    (file,) = to.glob("topic=orders/*/*.parquet")
    day, topic = file.parent, file.parent.parent
    hidden = next(where for label, where in done if label == "renamed")
    told = [number for number, (label, _) in enumerate(done) if label == "told"]
    before = {("synced", str(each)) for each in (day, topic, to, to / "_oncemq")}
    assert before <= set(done[: told[0]])  # what a process left that died is made sure of first
    assert ("synced", hidden) in done[: told[0]]
    assert done[told[0] + 1 : told[1]] == [("renamed", hidden), ("synced", str(day))]
    assert len(told) == 2


# ------------------------------------------------------------------ what goes wrong


@pytest.mark.slow
@pytest.mark.timeout(900)  # every step, in `make soak-pipelines`
def test_killed_at_any_step_it_shows_a_beginning_and_goes_on(
    mq: Client, address: str, tmp_path: Path
) -> None:
    every = 1 if "ONCEMQ_EVERY_STEP" in os.environ else 9
    nursery = Nursery()
    try:
        for topic in ("orders", "refunds"):
            mq.create_topic(topic, FOREVER)
            put(mq, 0, 30, topic)
        die, killed = 0, True
        while killed:
            given = {"topics": ["orders", "refunds"], "server": address, "timeout": 20}
            to = tmp_path / str(die)
            killed = nursery.run("archive", die, to=str(to), **given)
            is_a_beginning(to, mq)
            killed = nursery.run("archive", die, to=str(to), **given) or killed  # going on
            is_a_beginning(to, mq)
            nursery.run("archive", to=str(to), **given)
            assert seen(to) == stored(mq) + stored(mq, "refunds")
            assert check(to).findings == []
            assert list((to / "_oncemq/hidden").iterdir()) == []
            die += every
        assert die > 15
    finally:
        nursery.close()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_killed_at_any_step_nothing_is_freed_that_is_not_archived(
    mq: Client, address: str, tmp_path: Path
) -> None:
    every = 1 if "ONCEMQ_EVERY_STEP" in os.environ else 6
    given = {"topics": ["events"], "server": address, "timeout": 20}
    nursery = Nursery()
    try:
        mq.subscribe("events")
        rows: list[Message] = []
        die, killed = 0, True
        while killed:
            to = str(tmp_path / "archive")
            nursery.run("archive", to=to, **given)
            put(mq, len(rows), 20, "events")
            rows += stored(mq, "events", len(rows))
            settle(mq, "events", len(rows))  # from now on the archive alone holds them
            killed = nursery.run("archive", die, to=to, **given)
            die += every
        nursery.run("archive", to=to, **given)
        assert seen(tmp_path / "archive") == rows
        assert mq.topic("events").topic.low == len(rows)
    finally:
        nursery.close()


def test_an_archive_that_follows_ends_when_it_is_asked_to(
    mq: Client, address: str, to: Path
) -> None:
    found: list[Archived] = []

    def follow() -> None:
        with PipelineRun("archive", str(to), server=address, timeout=20) as run:
            runs.append(run)
            found.append(archive_on(run, "orders", to, follow=True, every=0.01))

    runs: list[PipelineRun] = []
    with without_spark():
        thread = Thread(target=follow)
        thread.start()
        for number in range(5):
            put(mq, 10 * number, 10)
            while len(seen(to)) < 10 * (number + 1):
                thread.join(0.05)
        runs[0].stopping.set()
        thread.join(30)
    assert (found[0].messages, seen(to)) == (50, stored(mq))
    said = CliRunner().invoke(cli, ["pipeline", "list", "--json", "--server", address])
    assert [each["state"] for each in json.loads(said.stdout)] == ["stopped"]


def test_the_command_says_what_it_did(mq: Client, address: str, to: Path) -> None:
    put(mq, 0, 1000)
    words = ["pipeline", "archive", "orders", "--to", str(to), "--server", address]
    with without_spark():
        shown = CliRunner().invoke(cli, words)
        again = CliRunner().invoke(cli, [*words, "--json"])
        refused = CliRunner().invoke(cli, [*words, "ordres"])
    said = f"1,000 new messages archived to {to}\n  orders  up to 1,000\n"
    assert (shown.exit_code, shown.stdout) == (0, said)
    assert json.loads(again.stdout)["ends"] == {"orders": 1000}
    assert (refused.exit_code, "unknown topic 'ordres'" in refused.stderr) == (1, True)
    shown = CliRunner().invoke(cli, ["pipeline", "check", str(to)])
    assert (shown.exit_code, "0 up to 1,000" in shown.stdout) == (0, True)


def is_a_beginning(to: Path, mq: Client) -> None:
    rows = seen(to)
    for topic in ("orders", "refunds"):
        mine = [row for row in rows if row[2] == topic]
        assert mine == stored(mq, topic)[: len(mine)]


def test_two_at_once_are_refused(mq: Client, archived, to: Path) -> None:
    put(mq, 0, 3)
    place = make(str(to), "parquet")
    place.lock()
    with pytest.raises(errors.Locked, match="another process archives to"):
        archived("orders")
    place.release()
    assert archived("orders").messages == 3


def test_a_copy_that_runs_elsewhere_stops_the_older_one(
    mq: Client, archived, to: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(mq, 0, 3)
    archived("orders")
    put(mq, 3, 3)
    name = make(str(to), "parquet").subscription

    def overtaken(_spark: Any, items: Any, work: Any, _kind: Any) -> Any:
        other = Hold(mq._engine.settings.servers[0], 20, name)
        other.keep_all(["orders"])
        other.close()
        return [work(item) for item in items]

    monkeypatch.setattr("oncemq.spark.pipelines.archives.archive.spread", overtaken)
    with pytest.raises(errors.Fenced, match="this one stops"):
        archived("orders")
    assert len(seen(to)) == 3


def test_a_topic_made_again_is_not_mixed_with_the_old_one(mq: Client, archived, to: Path) -> None:
    put(mq, 0, 3)
    archived("orders")
    mq.delete_topic("orders")
    mq.create_topic("orders", FOREVER)
    put(mq, 0, 5)
    with pytest.raises(DataLost, match="deleted and made again"):
        archived("orders")
    assert len(seen(to)) == 3


def test_what_the_server_no_longer_keeps_is_named(mq: Client, archived) -> None:
    mq.subscribe("events")
    put(mq, 0, 3, "events")
    done = archived("events")
    put(mq, 3, 3, "events")
    with Client(mq._engine.settings.servers[0], id=done.subscription) as stolen:
        stolen.unsubscribe("events")
    settle(mq, "events", 6)
    with pytest.raises(DataLost, match="offsets 3 up to 6 of 'events' are no longer kept"):
        archived("events")


def test_a_full_disk_leaves_a_whole_archive(
    mq: Client, archived, to: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(mq, 0, 10)
    archived("orders")
    put(mq, 10, 10)

    def full(self: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(tasks.Writer, "_flush", full)
        with pytest.raises(errors.StorageFull, match="no room left"):
            archived("orders")
    assert len(seen(to)) == 10
    assert list((to / "_oncemq/hidden").iterdir()) == []
    assert archived("orders").messages == 10


def test_places_that_cannot_be_archives(
    mq: Client, archived, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "full").mkdir()
    (tmp_path / "full/mine.txt").write_text("")
    for where, said in [
        ("file", "is a file"),
        ("full", "not empty"),
        ("file/below", "Not a directory"),
    ]:
        with pytest.raises(errors.OnceMQError, match=said):
            archived("orders", to=tmp_path / where)
    with pytest.raises(errors.ConfigError, match="that the driver and the tasks share"):
        archived("orders", to="s3://bucket/orders")
    with pytest.raises(errors.NoSuchTopic, match="ordres"):
        archived("ordres", to=tmp_path / "new")
    assert not (tmp_path / "new").exists()
    monkeypatch.setattr("oncemq.spark.pipeline_status.PATIENCE_SECONDS", 0.05)
    with pytest.raises(errors.Unreachable):
        archive("orders", tmp_path / "new", server="tcp://127.0.0.1:9", timeout=0.1)
    assert not (tmp_path / "new").exists()
    with pytest.raises(errors.ConfigError, match="too long for a directory"):
        archived("x" * 250, to=tmp_path / "new")


def test_damage_is_found(mq: Client, archived, to: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_files(monkeypatch)
    for number in range(10):
        put(mq, 100 * number, 100)
    archived("orders")
    files = sorted(to.glob("topic=orders/*/*.parquet"))
    assert check(to).findings == []
    whole = files[1].read_bytes()
    files[1].unlink()
    (found,) = check(to).findings
    assert "are missing" in found
    files[1].write_bytes(whole)
    start = int(archive_files.NAME.fullmatch(files[1].name)[2])  # type: ignore[index]
    twin = files[1].with_name(f"{files[1].name[:16]}-{start + 1:020d}.parquet")
    twin.write_bytes(whole)
    assert any("are there twice" in each for each in check(to).findings)
    twin.unlink()
    rows = seen(to)
    for place in range(0, len(whole), 211):  # what is changed is found, or changes no message
        files[1].write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert check(to).findings or seen(to) == rows
    files[1].write_bytes(whole[:-10])
    assert any("cannot be read" in each for each in check(to).findings)
    shown = CliRunner().invoke(cli, ["pipeline", "check", str(to)])
    assert shown.exit_code == 6
    assert "cannot be read" in shown.stdout
    shown = CliRunner().invoke(cli, ["pipeline", "check", str(to / "topic=orders")])
    assert (shown.exit_code, "is not an archive" in shown.stderr) == (2, True)
