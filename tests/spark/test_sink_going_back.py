"""A sink whose server goes back in time, or is another branch with as many batches."""

import json
import shutil
from pathlib import Path

import pytest

from oncemq import Client, testing
from oncemq.errors import ConfigError
from oncemq.protocol.records import Retention
from oncemq.spark.options.writer import sink_options
from oncemq.spark.sink.note import SinkNote
from oncemq.spark.sink.publishing import CheckpointMisfit
from oncemq.spark.sink.writers import BatchWriter
from tests.spark.test_going_back import restore
from tests.spark.test_sink import TEXT, Query


class Site:
    """A server on one data directory, and a checkpoint as Spark makes it."""

    def __init__(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.home = home
        self.data, self.checkpoint = home / "data", home / "checkpoint"
        self.monkeypatch = monkeypatch
        self.checkpoint.mkdir()
        (self.checkpoint / "metadata").write_text(json.dumps({"id": "query-1"}))

    def run(self, *batches: tuple[int, str], each: bool = False) -> list[str]:
        """Run these batches (by `foreachBatch`: `each`); what readers see then."""
        with testing.server(self.data) as address, Client(address, timeout=20) as mq:
            mq.create_topic("out", Retention(forever=True))
            query = Query(address, self.monkeypatch, checkpointLocation=self.checkpoint.as_uri())
            for batch_id, value in batches:
                if each:
                    self._within(address, query, batch_id, value)
                else:
                    query.batch(batch_id, [value])
            return [message.payload.decode() for message in mq.read("out", 0, limit=100)]

    def _within(self, address: str, query: Query, batch_id: int, value: str) -> None:
        given = {
            "server": address,
            "timeout": "20",
            "topic": "out",
            "sink": "mine",
            "checkpointLocation": str(self.checkpoint),
        }
        writer = BatchWriter(sink_options(given, streaming=False), TEXT, overwrite=False)
        writer.commit(query.write(batch_id, [value]))

    def keep(self, name: str) -> None:
        for place in (self.data, self.checkpoint):
            shutil.copytree(place, self.home / f"{name}-{place.name}")

    def put_back(self, name: str, place: Path) -> None:
        shutil.rmtree(place)
        shutil.copytree(self.home / f"{name}-{place.name}", place)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    return Site(tmp_path, monkeypatch)


@pytest.mark.parametrize("each", [False, True])
@pytest.mark.parametrize("by_hand", [False, True])
def test_a_branch_with_as_many_batches_of_other_rows_is_refused(
    site: Site, each: bool, by_hand: bool
) -> None:
    """Server and checkpoint were restored together; then the first server is served again."""
    site.run((0, "a"), (1, "b"), each=each)
    site.keep("backup")
    assert site.run((2, "c"), each=each) == ["a", "b", "c"]
    site.keep("first")
    if by_hand:
        site.put_back("backup", site.data)
    else:
        restore(site.home / "backup-data", site.data, 7)
    site.put_back("backup", site.checkpoint)
    assert site.run((2, "x"), each=each) == ["a", "b", "x"]
    site.put_back("first", site.data)
    with pytest.raises(CheckpointMisfit, match="recorded another one under that number") as told:
        site.run((3, "y"), each=each)
    (note,) = site.checkpoint.glob("oncemq_sink-*")
    assert f"remove the file {note}" in str(told.value)
    assert site.run() == ["a", "b", "c"]
    note.unlink()
    assert site.run((3, "y"), each=each) == ["a", "b", "c", "y"]


def test_numbers_that_need_not_follow_and_that_a_restore_lost_are_missed(site: Site) -> None:
    site.run((0, "a"), each=True)
    site.keep("backup")
    site.run((1, "b"), (3, "d"), each=True)
    restore(site.home / "backup-data", site.data, 7)
    with pytest.raises(CheckpointMisfit, match="does not have it: its last number is 1"):
        site.run((5, "f"), each=True)
    assert site.run() == ["a"]


def test_a_batch_whose_note_was_not_written_is_run_again_and_noted(site: Site) -> None:
    """The driver died between the commit and the note, or between the note and Spark's own."""
    site.run((0, "a"))
    site.keep("backup")
    site.run((1, "b"))
    (note,) = site.checkpoint.glob("oncemq_sink-*")
    noted = note.read_text()
    assert site.run((1, "b")) == ["a", "b"]
    site.put_back("backup", site.checkpoint)
    assert note.read_text() != noted
    assert site.run((1, "b"), (2, "c")) == ["a", "b", "c"]


@pytest.mark.parametrize(
    "elsewhere",
    ["", "hdfs://host/checkpoint", "s3a://bucket/checkpoint", "relative", "file://host/checkpoint"],
)
def test_a_checkpoint_that_is_not_here_has_no_note(elsewhere: str) -> None:
    note = SinkNote(elsewhere, "query-1", "spark:x")
    note.write("1@5")
    assert (note.path, note.read()) == (None, "")


def test_a_directory_of_another_query_or_of_none_has_no_note(site: Site, tmp_path: Path) -> None:
    for place, query_id in ((site.checkpoint, "query-2"), (tmp_path, "query-1")):
        assert SinkNote(str(place), query_id, "spark:x").path is None
    assert SinkNote(str(site.checkpoint), "query-1", "spark:x").path is not None


def test_a_damaged_note_is_named(site: Site) -> None:
    note = SinkNote(str(site.checkpoint), "query-1", "spark:x")
    note.write("1@5")
    assert note.read() == "1@5"
    assert note.path is not None
    note.path.write_text("{")
    with pytest.raises(ConfigError, match="is damaged"):
        note.read()
