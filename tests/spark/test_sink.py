"""The sink without Spark: staged by tasks, published by the driver, once, whatever is repeated."""

import pickle
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from oncemq import Client
from oncemq.client.blocking.transactions import Stage
from oncemq.errors import ConfigError, OnceMQError, Refused
from oncemq.protocol.records import Retention
from oncemq.spark.options.writer import sink_options
from oncemq.spark.sink import staging
from oncemq.spark.sink.publishing import CheckpointMisfit
from oncemq.spark.sink.staging import BATCH_ID, QUERY_ID, StagedRows
from oncemq.spark.sink.writers import BatchWriter, StreamWriter

TEXT = StructType([StructField("value", StringType())])


class Task:
    """What Spark tells a task."""

    def __init__(self, partition: int, properties: dict[str, str]) -> None:
        self._partition, self._properties = partition, properties

    def partitionId(self) -> int:  # noqa: N802
        return self._partition

    def getLocalProperty(self, name: str) -> str | None:  # noqa: N802
        return self._properties.get(name)


class Query:
    """A streaming query's sink, driven as Spark drives it."""

    def __init__(self, address: str, monkeypatch: pytest.MonkeyPatch, **options: str) -> None:
        given = {"server": address, "timeout": "20", "topic": "out", **options}
        self._options = {"checkpointLocation": "/check", **given}
        self._monkeypatch = monkeypatch
        self.query_id = "query-1"

    @property
    def writer(self) -> StreamWriter:
        """Spark makes a fresh one each time it needs one."""
        return StreamWriter(sink_options(self._options, streaming=True), TEXT, overwrite=False)

    def write(self, batch_id: int, *partitions: list[str]) -> list[StagedRows | None]:
        """The tasks of a batch; what they tell the driver."""
        said: list[StagedRows | None] = []
        for number, values in enumerate(partitions):
            told = {QUERY_ID: self.query_id, BATCH_ID: str(batch_id)}
            task = Task(number, told)
            self._monkeypatch.setattr(staging.TaskContext, "get", lambda task=task: task)
            rows = [pa.RecordBatch.from_pydict({"value": values})] if values else []
            said.append(pickle.loads(pickle.dumps(self.writer.write(iter(rows)))))
        return said

    def commit(self, messages: list[StagedRows | None], batch_id: int) -> None:
        self.writer.commit(messages, batch_id)

    def batch(self, batch_id: int, *partitions: list[str]) -> None:
        self.commit(self.write(batch_id, *partitions), batch_id)


@pytest.fixture
def out(mq: Client) -> Callable[[], list[str]]:
    """What readers see of the topic `out`."""
    mq.create_topic("out", Retention(forever=True))
    return lambda: [each.payload.decode() for each in mq.read("out", 0, limit=10_000)]


@pytest.fixture
def query(address: str, out, monkeypatch: pytest.MonkeyPatch) -> Query:
    return Query(address, monkeypatch)


def left_behind(mq: Client, messages: list[StagedRows | None]) -> bool:
    """Whether a stage of these tasks is still open."""
    return any(mq.drop_stage(token) for each in messages if each for _, token in each.tokens)


def test_rows_are_seen_when_the_batch_is_committed_and_not_before(query: Query, out) -> None:
    said = query.write(0, ["a", "b"], ["c"], [])
    assert out() == []
    query.commit(said[::-1], 0)
    assert out() == ["a", "b", "c"]  # in the order of the partitions
    query.batch(1, ["d"])
    assert out() == ["a", "b", "c", "d"]


def test_an_empty_batch_is_a_batch(query: Query, out) -> None:
    query.batch(0, [])
    query.batch(1, ["a"])
    assert out() == ["a"]


def test_a_batch_run_again_adds_nothing_and_leaves_nothing(query: Query, out, mq: Client) -> None:
    query.batch(0, ["a"], ["b"])
    again = query.write(0, ["a"], ["b"])
    query.commit(again, 0)
    query.batch(0, ["a"], ["b"])
    assert out() == ["a", "b"]
    assert not left_behind(mq, again)


def test_only_what_the_commit_names_is_published(query: Query, out) -> None:
    twin = query.write(0, ["a"], ["b"])  # a speculative twin of each task
    query.batch(0, ["a"], ["b"])
    query.writer.abort(twin, 0)
    assert out() == ["a", "b"]


def test_abort_gives_stages_up_and_never_what_is_published(query: Query, out, mq: Client) -> None:
    failed = query.write(0, ["a"])
    query.writer.abort([*failed, None], 0)
    assert not left_behind(mq, failed)
    said = query.write(0, ["a"])
    query.commit(said, 0)
    query.writer.abort(said, 0)  # as Spark does when a commit raises after it published
    assert out() == ["a"]
    given_up = query.write(1, ["b"])
    query.writer.abort(given_up, 1)
    with pytest.raises(Refused, match="stage"):
        query.commit(given_up, 1)
    query.batch(1, ["b"])
    assert out() == ["a", "b"]


def test_a_task_that_fails_half_way_leaves_nothing(
    query: Query, out, mq: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    dropped: list[str] = []
    monkeypatch.setattr(Stage, "drop", lambda stage: dropped.append("it"))

    def rows() -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"value": ["a"]})
        raise RuntimeError("the task dies")

    query.write(0, [])
    with pytest.raises(RuntimeError, match="dies"):
        query.writer.write(rows())
    assert (out(), dropped) == ([], ["it"])


def test_a_deleted_checkpoint_is_an_error_and_not_twice_the_rows(query: Query, out) -> None:
    query.batch(0, ["a"])
    query.query_id = "query-2"  # made anew in the same place
    with pytest.raises(CheckpointMisfit, match="deleted and made anew") as refused:
        query.batch(0, ["a"])
    assert "query-1" in str(refused.value)
    assert out() == ["a"]


def test_a_copied_checkpoint_is_an_error(
    query: Query, out, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    query.batch(0, ["a"])
    copy = Query(address, monkeypatch, checkpointLocation="/copy")
    with pytest.raises(CheckpointMisfit, match="its checkpoint was copied or moved"):
        copy.batch(1, ["b"])
    moved = Query(address, monkeypatch, checkpointLocation="/copy", sink="/check")
    moved.batch(1, ["b"])  # knowingly moved
    assert out() == ["a", "b"]


def test_an_older_copy_of_the_checkpoint_is_an_error(query: Query, out) -> None:
    for number in range(3):
        query.batch(number, [str(number)])
    with pytest.raises(CheckpointMisfit, match="older copy of itself"):
        query.batch(1, ["1"])
    with pytest.raises(CheckpointMisfit, match="published with other rows than it has now"):
        query.batch(2, ["2", "and more"])
    with pytest.raises(CheckpointMisfit, match="published with other rows than it has now"):
        query.batch(2, ["3"])  # as many
    with pytest.raises(CheckpointMisfit, match="does not follow"):
        query.batch(5, ["5"])
    assert out() == ["0", "1", "2"]


def test_a_batch_run_again_has_its_rows_however_they_are_spread(query: Query, out) -> None:
    query.batch(0, ["a", "b", "c"], ["a"])
    query.batch(0, ["c"], ["a", "a"], [], ["b"])
    assert out() == ["a", "b", "c", "a"]
    with pytest.raises(CheckpointMisfit, match="published with other rows"):
        query.batch(0, ["a", "b", "c"], ["b"])


def test_rows_that_are_never_the_same_need_not_be(
    query: Query, out, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    query.batch(0, ["at 12:00"])
    with pytest.raises(CheckpointMisfit, match="set the option repeats to any"):
        query.batch(0, ["at 12:01"])
    Query(address, monkeypatch, repeats="any").batch(0, ["at 12:01"])
    assert out() == ["at 12:00"]


def test_a_checkpoint_copied_before_its_first_commit_is_an_error(
    query: Query, out, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    query.batch(0, ["a"])
    copy = Query(address, monkeypatch, checkpointLocation="/copy")
    with pytest.raises(CheckpointMisfit, match="published under another name than 'spark:/copy'"):
        copy.batch(0, ["a"])
    assert out() == ["a"]


def test_a_spark_that_tells_no_ids_is_refused_loudly(query: Query, out) -> None:
    with pytest.raises(CheckpointMisfit, match="did not tell the tasks of batch 1"):
        query.commit(query.write(0, ["a"]), 1)
    query.query_id = ""
    with pytest.raises(CheckpointMisfit, match="did not tell the tasks of batch 0"):
        query.batch(0, ["a"])
    with pytest.raises(CheckpointMisfit, match="did not tell"):
        query.commit([], 0)
    assert out() == []


def test_rows_that_nobody_would_get_are_refused(
    address: str, mq: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = Query(address, monkeypatch, topic="nowhere")
    with pytest.raises(ConfigError, match="nobody would get what is put to 'nowhere'"):
        query.batch(0, ["a"])
    mq.subscribe("nowhere")
    query.batch(0, ["a"])
    assert [each.payload for each in mq.get("nowhere", wait=5)] == [b"a"]
    careless = Query(address, monkeypatch, topic="void", unwanted="drop", sink="v")
    careless.query_id = "query-2"
    careless.batch(0, ["a"])
    assert "void" not in [topic.name for topic in mq.topics() if topic.end]


def test_rows_that_nobody_would_get_are_refused_for_each_of_very_many_topics(
    address: str, mq: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics = [f"t{number:03}" for number in range(151)]
    for topic in topics[:-1]:
        mq.create_topic(topic, Retention(forever=True))
    given = {"server": address, "sink": "many", "topic": ""}
    schema = schema_of(value=StringType(), topic=StringType())
    writer = StreamWriter(sink_options(given, streaming=True), schema, overwrite=False)
    told = {QUERY_ID: "query-1", BATCH_ID: "0"}
    monkeypatch.setattr(staging.TaskContext, "get", lambda: Task(0, told))
    rows = pa.RecordBatch.from_pydict({"value": topics, "topic": topics})
    with pytest.raises(ConfigError, match="nobody would get what is put to 't150'"):
        writer.commit([writer.write(iter([rows]))], 0)
    assert [mq.topic(topic).topic.end for topic in topics[:-1]] == [0] * 150
    mq.create_topic("t150", Retention(forever=True))
    writer.commit([writer.write(iter([rows]))], 0)
    assert [mq.topic(topic).topic.end for topic in topics] == [1] * 151


def write_batch(
    address: str, monkeypatch: pytest.MonkeyPatch, values: list[str], told=None, **options: str
) -> None:
    """`df.write` of one task."""
    given = {"server": address, "topic": "out", **options}
    writer = BatchWriter(sink_options(given, streaming=False), TEXT, overwrite=False)
    monkeypatch.setattr(staging.TaskContext, "get", lambda: Task(0, told or {}))
    writer.commit([writer.write(iter([pa.RecordBatch.from_pydict({"value": values})]))])


def test_a_batch_write_is_once_for_its_version(
    address: str, out, monkeypatch: pytest.MonkeyPatch
) -> None:
    for version in ("0", "0", "1", "0", "1"):
        options = {"txnAppId": "nightly", "txnVersion": version}
        write_batch(address, monkeypatch, [version], **options)
    assert out() == ["0", "1"]
    said = "batch 1 of 'spark-app:nightly' was published with other rows than it has now"
    with pytest.raises(CheckpointMisfit, match=said):
        write_batch(address, monkeypatch, ["x"], txnAppId="nightly", txnVersion="1")


def test_a_plain_batch_write_is_a_write_of_its_own(
    address: str, out, mq: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_batch(address, monkeypatch, ["a"])
    write_batch(address, monkeypatch, ["a"])
    assert out() == ["a", "a"]


def test_within_foreach_batch_a_write_is_once_for_its_sink(
    address: str, out, monkeypatch: pytest.MonkeyPatch
) -> None:
    def told(batch_id: int) -> dict[str, str]:
        return {QUERY_ID: "query-1", BATCH_ID: str(batch_id)}

    write_batch(address, monkeypatch, ["a"], told(0), sink="totals")
    write_batch(address, monkeypatch, ["a"], told(0), sink="totals")
    write_batch(address, monkeypatch, ["b"], told(2), sink="totals")  # batch 1 wrote nothing
    assert out() == ["a", "b"]
    with pytest.raises(ConfigError, match="give it the option sink"):
        write_batch(address, monkeypatch, ["c"], told(3))
    with pytest.raises(CheckpointMisfit, match="batch 2 of 'spark:totals' was published with oth"):
        write_batch(address, monkeypatch, ["c"], told(2), sink="totals")
    with pytest.raises(CheckpointMisfit, match="deleted"):
        write_batch(address, monkeypatch, ["a"], {QUERY_ID: "q2", BATCH_ID: "0"}, sink="totals")


# ------------------------------------------------------------------ options and columns


def schema_of(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


KAFKA = ArrayType(schema_of(key=StringType(), value=BinaryType()))


@pytest.mark.parametrize(
    "columns",
    [
        {"value": StringType()},
        {"value": BinaryType(), "key": StringType(), "headers": KAFKA},
        {"value": BinaryType(), "headers": MapType(StringType(), StringType())},
        {"value": BinaryType(), "topic": StringType(), "offset": LongType()},
    ],
)
def test_columns_of_a_message(columns: dict[str, DataType]) -> None:
    options = sink_options({"topic": "out", "sink": "x"}, streaming=True)
    StreamWriter(options, schema_of(**columns), overwrite=False)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"key": StringType()}, "have a column value"),
        ({"value": IntegerType()}, "of type string or binary"),
        ({"value": StringType(), "key": IntegerType()}, "key is string or binary, not int"),
        ({"value": StringType(), "headers": StringType()}, "headers is map"),
        ({"value": StringType(), "amount": IntegerType()}, "no column 'amount'"),
    ],
)
def test_columns_of_no_message_are_refused(columns: dict[str, DataType], said: str) -> None:
    options = sink_options({"topic": "out", "sink": "x"}, streaming=True)
    with pytest.raises(ConfigError) as refused:
        StreamWriter(options, schema_of(**columns), overwrite=False)
    assert said in str(refused.value)


def test_rows_must_know_where_they_go() -> None:
    with pytest.raises(ConfigError, match="option topic, or a column topic"):
        BatchWriter(sink_options({}, streaming=False), TEXT, overwrite=False)


def test_overwriting_is_refused() -> None:
    with pytest.raises(ConfigError, match="only ever added to"):
        BatchWriter(sink_options({"topic": "a"}, streaming=False), TEXT, overwrite=True)


@pytest.mark.parametrize(
    ("given", "streaming", "said"),
    [
        ({"topic": "a"}, True, "needs a name under which"),
        ({"topic": "a", "sink": "x", "tpoic": "b"}, True, "did you mean topic"),
        ({"topic": "a", "txnAppId": "x"}, False, "go together"),
        ({"topic": "a", "txnAppId": "x", "txnVersion": "-1"}, False, "whole number from 0"),
        ({"topic": "a", "txnAppId": "x", "txnVersion": "1", "sink": "y"}, False, "not both"),
        ({"topic": "a\0", "sink": "x"}, True, "control character"),
        ({"topic": "a", "checkpointLocation": "x"}, False, "is not for a batch write"),
        ({"topic": "a", "sink": "x", "subscribe": "a"}, True, "subscribe is not for a streaming"),
    ],
)
def test_options_that_do_not_fit(given: dict[str, str], streaming: bool, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        sink_options({name.lower(): text for name, text in given.items()}, streaming=streaming)
    assert said in str(refused.value)


def test_a_sink_is_known_by_its_name_or_by_the_place_of_its_checkpoint() -> None:
    def owner(**given: str) -> str:
        return sink_options({"topic": "a", **given}, streaming=True).owner

    assert owner(checkpointLocation="/data/check/") == "spark:/data/check"
    assert owner(checkpointLocation="/data/check", sink="totals") == "spark:totals"
    assert owner(queryName="totals") == "spark:totals"
    one, other = owner(sink="/a" * 200), owner(sink="/b" + "/a" * 199)
    assert one != other
    assert max(len(one.encode()), len(other.encode())) <= 255


def test_errors_are_ours() -> None:
    assert issubclass(CheckpointMisfit, OnceMQError)
