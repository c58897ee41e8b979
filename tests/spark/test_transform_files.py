"""The file of a transform: what it may say, and what is refused, by name and without Spark."""

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

from oncemq.errors import ConfigError, OnceMQError
from oncemq.spark.pipelines import Definition, Source, Target, Transformed, pipeline
from oncemq.spark.pipelines.run import PipelineRun
from oncemq.spark.pipelines.transforms.files import checked_call, load
from oncemq.spark.pipelines.transforms.transform import ATTEMPTS, BUSY, Transforming, transform_on

TOML = """
name = "totals"
sql = "SELECT item, cents FROM orders"

[sources.orders]
topic = "orders"
schema = "item string, cents bigint, at timestamp"
watermark = "at"
delay = "1 minute"

[target]
topic = "revenue"
key = "item"
"""


@pytest.fixture
def toml(tmp_path: Path):
    """`toml(text)`: what a file of this text defines."""

    def read(text: str) -> Definition:
        (tmp_path / "revenue.toml").write_text(text)
        return load(str(tmp_path / "revenue.toml"))

    return read


def test_a_file_of_toml(toml) -> None:
    found = toml(TOML)
    assert found.name == "totals"
    assert found.sink == "pipeline:totals"
    assert found.target == Target(topic="revenue", key="item")
    assert found.sources["orders"].reading("tcp://h:1", 5.0) == {
        "server": "tcp://h:1",
        "timeout": "5.0",
        "subscribe": "orders",
        "valueFormat": "json",
        "valueSchema": "item string, cents bigint, at timestamp",
        "malformed": "refuse",
        "startingOffsets": "earliest",
    }
    assert toml(TOML.replace('name = "totals"', "")).name == "revenue"


@pytest.mark.parametrize(
    ("start", "option"),
    [
        ('"latest"', ("startingOffsets", "latest")),
        ("42", ("startingOffsets", '{"orders": 42}')),
        ("{ orders = 42 }", ("startingOffsets", '{"orders": 42}')),
        ("2026-01-31T12:00:00Z", ("startingTimestamp", "2026-01-31T12:00:00+00:00")),
        ("2026-01-31T12:00:00", ("startingTimestamp", "2026-01-31T12:00:00+00:00")),
        ('"2026-01-31T12:00:00Z"', ("startingTimestamp", "2026-01-31T12:00:00Z")),
    ],
)
def test_where_it_starts(toml, start: str, option: tuple[str, str]) -> None:
    found = toml(TOML.replace('topic = "orders"', f'topic = "orders"\nstart = {start}'))
    assert option in found.sources["orders"].reading("tcp://h:1", 5.0).items()


def test_what_else_the_data_source_takes(toml) -> None:
    more = "rows = 100\nheaders = true\noptions = { minPartitions = 4, failOnDataLoss = false }"
    found = toml(TOML.replace("[target]", f"{more}\n[target]"))
    reading = found.sources["orders"].reading("tcp://h:1", 5.0)
    assert reading["maxOffsetsPerTrigger"] == "100"
    assert reading["includeHeaders"] == "true"
    assert reading["minPartitions"] == "4"
    assert reading["failOnDataLoss"] == "false"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("sql =", "sqll =", "no key sqll; did you mean sql?"),
        ("schema =", "shcema =", "no key sources.orders.shcema; did you mean schema?"),
        ("key =", "keys =", "no key target.keys; did you mean key?"),
        ("[target]", "[traget]", "no key traget; did you mean target?"),
        ("[target]", "qqqq = 1\n[target]", "no key sources.orders.qqqq; known are topic, topics"),
        ('"item"', "7", "target.key: Expected 'str', got 'int'"),
        ('name = "totals"', 'mode = "complete"', "mode: Invalid enum value 'complete'"),
        ('name = "totals"', 'name = "a/b"', "name: 'a/b' is not of letters"),
        ('name = "totals"', "every = -1", "every: seconds, 0 or more"),
        ('name = "totals"', 'dead = "a\\u0000"', "dead: .*control character"),
        ('name = "totals"', 'dead = "orders"', "dead: 'orders' is a topic of this pipeline"),
        ('name = "totals"', 'dead = "revenue"', "dead: 'revenue' is a topic of this pipeline"),
        ('topic = "orders"', 'topic = "orders"\npattern = "o.*"', "sources.orders: give one of"),
        ('topic = "orders"', 'pattern = "("', "sources.orders: subscribePattern '\\(' is no"),
        ('topic = "orders"', 'topic = "a"\nstart = -3', "sources.orders: startingOffsets is"),
        ('topic = "orders"', 'pattern = "a"\nstart = 3', "an offset is of one topic"),
        ('topic = "orders"', 'topic = "a"\noptions = { minPartition = 1 }', "did you mean minPart"),
        ('topic = "orders"', 'topic = "a"\noptions = { server = "x" }', "is of the whole pipeline"),
        ('"1 minute"', '"soon"', "sources.orders: delay is like '30 seconds'"),
        ('watermark = "at"', "", "watermark \\(a column\\) and delay"),
        (
            'topic = "revenue"',
            'topic = "revenue"\npath = "/x"',
            "target: give one of topic, topic_",
        ),
        ('topic = "revenue"', 'path = "/x"', "target: key goes with a topic"),
        ("[sources.orders]", '[sources."a-b"]', "sources.a-b: the query cannot name that"),
        ("SELECT item, cents FROM orders", "", "give sql, or function"),
        ("[target]", "[target", "not TOML: "),
        ("[sources.orders]", "sources = 3\n[x]", "no key x"),
        ('schema = "item string, cents bigint, at timestamp"', 'value = "json"', "needs a schema"),
    ],
)
def test_what_is_wrong_is_told_by_name(toml, old: str, new: str, said: str) -> None:
    assert old in TOML
    with pytest.raises(ConfigError, match=said) as told:
        toml(TOML.replace(old, new))
    assert "revenue.toml: " in told.value.detail


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"target": Target(path="/x")}, "the target has to be a topic"),
        (
            {"sources": {"a": Source(topic="a", schema="n int"), "b": Source(pattern="b.*")}},
            "each has to name topics of its own",
        ),
    ],
)
def test_where_letters_cannot_be(change: dict[str, Any], said: str) -> None:
    sources = {"a": Source(topic="a", schema="n int")}
    given = {"name": "x", "sources": sources, "target": Target(topic="b"), "sql": "SELECT 1"}
    with pytest.raises(ConfigError, match=f"dead: .*{said}"):
        Definition(**given | change, dead="a.dead").check()


def test_misfits_of_a_source_are_kept_when_they_become_letters() -> None:
    source = Source(topic="a", schema="n int")
    reading = source.reading("tcp://h:1", 5.0, dead=True)
    assert (reading["malformed"], reading["includeHeaders"]) == ("keep", "true")
    theirs = Source(topic="a", schema="n int", malformed="keep")  # the query sees them
    assert "includeHeaders" not in theirs.reading("tcp://h:1", 5.0, dead=True)


def test_a_function_beside_the_file(toml, tmp_path: Path) -> None:
    (tmp_path / "beside_it.py").write_text("def double(orders):\n    return orders\n")
    text = TOML.replace('sql = "SELECT item, cents FROM orders"', 'function = "{}"')
    assert toml(text.replace("{}", "beside_it:double")).function(3) == 3
    for name, said in {
        "beside_it:tripel": "no function 'tripel'",
        "beside_it": "write MODULE:FUNCTION",
        "nowhere:double": "No module named 'nowhere'",
    }.items():
        with pytest.raises(ConfigError, match=said):
            toml(text.replace("{}", name))


# ------------------------------------------------------------------ Python

PYTHON = """
from oncemq.spark.pipelines import Source, Target, pipeline

@pipeline(sources={"orders": Source(topic="orders")}, target=Target(topic="copy"))
def copy(orders):
    return orders
"""


def test_a_file_of_python(tmp_path: Path) -> None:
    file = tmp_path / "json.py"  # its name is nobody's business
    file.write_text(PYTHON)
    assert load(str(file)).name == "copy"
    assert load(f"{file}:copy").function("x") == "x"
    with pytest.raises(ConfigError, match="no pipeline 'kopie', but copy"):
        load(f"{file}:kopie")
    file.write_text(PYTHON + PYTHON.replace("def copy", "def other"))
    with pytest.raises(ConfigError, match=r"say which: \S+json.py:copy, \S+json.py:other"):
        load(str(file))
    file.write_text("")
    with pytest.raises(ConfigError, match="put @pipeline"):
        load(str(file))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no file '\S*nowhere.toml'"):
        load(str(tmp_path / "nowhere.toml"))
    (tmp_path / "a.yaml").write_text("")
    with pytest.raises(ConfigError, match=r"a \.toml or a \.py file"):
        load(str(tmp_path / "a.yaml"))


def test_a_function_takes_the_sources_by_name() -> None:
    made = pipeline(
        sources={"orders": Source(topic="orders", start=datetime(2026, 1, 31, tzinfo=UTC))},
        target=Target(path="/x", partition_by=["item"]),
        name="other",
        mode="update",
    )(lambda order: order)
    assert (made.name, made.mode) == ("other", "update")
    with pytest.raises(ConfigError, match=r"the sources \(orders\) by name: missing"):
        checked_call(made)


@pytest.mark.parametrize(
    ("target", "mode", "said"),
    [
        (Target(path="/x", sink="s"), "append", "target: sink goes with a topic"),
        (Target(table="t", partition_by=["a"]), "append", "target: partition_by goes with path"),
        (Target(topic="\n"), "append", "target: topic: "),
        (Target(table="t"), "update", "mode: a table is only added to"),
        (Target(), "append", "target: give one of"),
    ],
)
def test_targets_that_cannot_be(target: Target, mode, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        pipeline(sources={"a": Source(topic="a")}, target=target, mode=mode, name="n")(id)


@pytest.mark.parametrize(
    ("said", "advised"),
    [
        ("[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012", True),
        ("Traceback (most recent call last)\nZeroDivisionError: by zero", True),
        ("[PARSE_SYNTAX_ERROR] near 'SELEC'. SQLSTATE: 42601", False),
    ],
)
def test_a_row_that_fails_names_the_way_out(
    monkeypatch: pytest.MonkeyPatch, said: str, advised: bool
) -> None:
    def attempt(work: Transforming, *, follow: bool) -> Transformed:
        raise PySparkException(said)

    monkeypatch.setattr(Transforming, "run", attempt)
    definition = pipeline(sources={"a": Source(topic="a")}, target=Target(topic="b"), name="n")(id)
    with pytest.raises(OnceMQError) as told:
        transform_on(PipelineRun("transform", "n"), definition)
    assert ("--dead n.dead, or dead = 'n.dead' in the file" in told.value.detail) is advised


@pytest.mark.parametrize(
    ("said", "attempts"), [(BUSY, ATTEMPTS), ("[PARSE_SYNTAX_ERROR]", 1), ("", ATTEMPTS - 1)]
)
def test_a_machine_too_busy_for_spark_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, said: str, attempts: int
) -> None:
    made: list[bool] = []

    def attempt(work: Transforming, *, follow: bool) -> Transformed:
        made.append(follow)
        if said or len(made) < attempts:
            raise PySparkException(f"a page of Java: {said or BUSY}")
        return Transformed("n", 1, 1, "/check")

    monkeypatch.setattr(Transforming, "run", attempt)
    definition = pipeline(sources={"a": Source(topic="a")}, target=Target(topic="b"), name="n")(id)
    run = PipelineRun("transform", "n")
    if said:
        with pytest.raises(OnceMQError, match=re.escape(said)):
            transform_on(run, definition, follow=True)
    else:
        assert transform_on(run, definition, follow=True).messages == 1
    assert made == [True] * attempts
