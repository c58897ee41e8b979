"""The audit on Spark finds what the checker of the core finds, of every kind, as often."""

import json
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from pyspark.sql import SparkSession

from oncemq import Client
from oncemq.audit.findings import Finding
from oncemq.cli.main import cli
from oncemq.errors import ConfigError
from oncemq.protocol.records import Retention
from oncemq.spark.pipelines.audits import rules
from oncemq.spark.pipelines.audits.audit import audit
from tests.spark.histories import TYPES, by_chance, damaged, judged, write_files

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


def told(findings: list[Finding]) -> Counter[tuple[str, str, int, int]]:
    """Findings as they can be compared; each audit has its own words for the rest."""
    return Counter((each.kind, each.topic, each.offset, each.count) for each in findings)


def test_it_finds_what_the_checker_finds(
    spark: SparkSession, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "BUCKET", 4)  # so that there are edges to get wrong
    monkeypatch.setattr("oncemq.audit.findings.FINDINGS_KEPT", 10_000)
    monkeypatch.setattr("oncemq.spark.pipelines.audits.audit.FINDINGS_KEPT", 10_000)
    monkeypatch.setattr("oncemq.spark.pipelines.audits.report.FINDINGS_KEPT", 10_000)
    histories = [*damaged(), *map(by_chance, range(25))]
    expected = judged(histories)
    places = write_files(histories, tmp_path)
    spark.conf.set("spark.sql.files.maxPartitionBytes", "20000b")  # a journal in many parts
    try:
        report = audit(
            [each.topic for each in histories],
            archives=[places["archive"]],
            receipts=[places["receipts"]],
            journals=[places["journal"]],
            effects=[places["effects"]],
            offline=True,
            server=address,
            spark=spark,
        )
    finally:
        spark.conf.unset("spark.sql.files.maxPartitionBytes")
    assert told(report.findings.kept) == told(expected.kept)
    assert report.counts == dict(sorted(expected.counts.items()))


def archive_of(mq: Client, topic: str, path: Path, *, spoil: int) -> None:
    """As `once pipeline archive` lays it out; the message at `spoil` has other bytes."""
    rows = [
        {
            "value": b"spoilt" if each.offset == spoil else each.payload,
            "offset": each.offset,
            "timestamp": each.timestamp,
            "producer": each.producer,
            "sequence": each.sequence,
        }
        for each in mq.read(topic, 0, limit=1000)
    ]
    directory = path / f"topic={topic}" / "day=2026-01-31"
    directory.mkdir(parents=True)
    types = TYPES.remove(TYPES.get_field_index("topic"))
    parquet.write_table(pa.Table.from_pylist(rows, types), directory / "0.parquet")


def test_a_topic_its_archive_and_its_effects(
    spark: SparkSession, mq: Client, address: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    mq.create_topic("42", Retention(forever=True))  # a name that could be taken for a number
    mq.put_many("42", [b"m%d" % n for n in range(30)])
    archive_of(mq, "42", tmp_path / "archive", spoil=7)
    with closing(sqlite3.connect(tmp_path / "shop.db")) as database, database:
        database.execute("CREATE TABLE done (message TEXT)")
        ids = [(f"42@{n}",) for n in (*range(20, 30), *range(19), 3)]  # in any order, one twice
        database.executemany("INSERT INTO done VALUES (?)", ids)
    words = ["42", "--archive", str(tmp_path / "archive"), "--report", str(tmp_path / "report")]
    words += ["--effects", f"{tmp_path / 'shop.db'}:done:message", "--server", address]
    with pytest.raises(SystemExit) as ended:
        cli.main(["pipeline", "audit", *words])
    assert ended.value.code == 6
    said = capfd.readouterr().out.splitlines()
    assert [line.split() for line in said[1:3]] == [
        ["42", "30", "0", "30", "1", "the", "server", "30"],
        ["42", "30", "0", "30", "1", str(tmp_path / "archive"), "30"],
    ]
    assert said[-1].startswith("60 messages, 30 effects: 1 diverged (")
    told = json.loads((tmp_path / "report").read_text())
    assert {kind: count for kind, count in told["counts"].items() if count} == {
        "diverged": 1,
        "lost_middle": 1,
        "redelivered": 1,
    }
    places = {each["kind"]: each["message"] for each in told["findings"]}
    assert places == {"diverged": "42@7", "lost_middle": "42@19", "redelivered": "42@3"}
    (tmp_path / "bad").write_text('{"id": "42@1"}\n{"id": "orders@x"}\n')
    with pytest.raises(ConfigError, match=r'"orders@x"}\' tells of no message \(1 such\)'):
        audit("42", journals=[str(tmp_path / "bad")], server=address, spark=spark)
