"""The benchmarks measure what they say: every part on a real server, as little as will do."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from benchmarks.attacker import ATTACKS
from benchmarks.cluster.kafka import JARS
from benchmarks.cluster.nats import CLIENTS, PROGRAM
from benchmarks.cluster.servers import Missing, etcd_program
from benchmarks.command import PARTS, SHARES, benchmarks, measures
from benchmarks.lab import QUICK, batch_for, in_turns, lab, quantile
from benchmarks.report import Aim, Figure, number_text, size_text, tables
from oncemq.cli.main import cli
from oncemq.cli.terminal.session import CommandSession

TINY = replace(
    QUICK,
    sizes=(100,),
    batches=(50,),
    seconds=0.05,
    singles=50,
    latencies=20,
    backlog_bytes=100_000,
    topics=20,
    log_bytes=2_000_000,
    listeners=(2,),
    connected=5,
    stopped=0.5,
    attacked=0.3,
)


def _services() -> int:
    """How many the cluster is measured beside, itself and one server included."""
    try:
        etcd_program()
    except Missing:
        return 0
    peers = [PROGRAM.exists(), (JARS / "server").is_dir() and shutil.which("java")]
    return 2 + (2 * len([each for each in peers if each]) if CLIENTS.is_dir() else 0)


_ALL = _services()
CLUSTER = [*["p50"] * 2 * _ALL, *(["put"] * _ALL + ["get"] * _ALL) * 2]
CLUSTER += ["median", "median", "MB/s", "MB/s"] if _ALL else []
STOPPED = ["meanwhile", "meanwhile", "grown by", "meanwhile", "in all"]
VALUES = {
    "put": [*["pace"] * 4, "put", "put", "p50", "p50"],
    "get": ["pace", "pace", "get", "get"],
    "latency": ["p50", "p50"],
    "push": ["OnceMQ, durable", "p50", "RSS per connection", "p50", *STOPPED],
    "inbox": ["consumed", "consumed"],
    "outbox": ["relayed", "p50"],
    "transactions": ["committed", "committed"],
    # Where the machine has a Redis; it is compared with, and not needed.
    "redis": ["p50"] * (4 if shutil.which("redis-server") else 0),
    # Where there is an etcd, and as many peers as were fetched.
    "cluster": CLUSTER,
    "before": [],  # without a commit to measure beside
    "attacks": ["p50"] * len(ATTACKS),
    "topics": ["p50", "RSS per topic"],
    "restart": ["log GB"],
    "memory": ["after 0 MiB", "after 0 MiB"],
}


# ------------------------------------------------------------------ the parts


@pytest.mark.slow
@pytest.mark.timeout(240)  # of a cluster and all its peers
@pytest.mark.parametrize("part", PARTS)
def test_a_part_measures_and_leaves_nothing_behind(part: str, tmp_path: Path) -> None:
    with lab(tmp_path, TINY, shown=False) as place:
        figures = [figure for measure in measures(part) for figure in measure(place)]
    named = [next(iter(figure.values)) for figure in figures]
    assert named == VALUES[part]
    numbers = [each for figure in figures for each in figure.values.values()]
    assert all(isinstance(each, int | float) for each in numbers)
    assert all(limit > 0 for figure in figures for limit in figure.limits.values())
    assert all(ratio > 0 for figure in figures for ratio in figure.ratios.values())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("share", SHARES)
def test_a_share_of_a_part_can_be_measured_alone(share: str) -> None:
    part, _, _ = share.partition("-")
    assert part in PARTS
    assert len(measures(share)) == 1


@pytest.mark.slow
def test_every_put_is_measured_with_the_outbox_and_without(tmp_path: Path) -> None:
    with lab(tmp_path, TINY, shown=False) as place:
        figures = [figure for measure in measures("put") for figure in measure(place)]
    modes = [(figure.part, figure.what) for figure in figures if figure.part != "pace"]
    assert modes == [
        (part, mode)
        for part in ("bulk put", "put one at a time")
        for mode in ("durable=False", "outbox")
    ]


@pytest.mark.slow
def test_the_command_answers_with_figures_limits_and_ratios(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.lab.QUICK", TINY)
    arguments = ["get", "--quick", "--json", "--data", str(tmp_path)]
    result = CliRunner().invoke(benchmarks, arguments, obj=CommandSession())
    assert result.exit_code == 0, result.stderr
    facts: dict[str, Any] = json.loads(result.stdout)
    first = next(each for each in facts["figures"] if each["part"] == "bulk get")
    assert (first["part"], first["what"], first["message_bytes"]) == (
        "bulk get", "without state", 100,
    )  # fmt: skip
    assert first["ratios"]["push/pull"] == pytest.approx(
        first["values"]["get"] / first["limits"]["push/pull"]
    )
    assert "once: measuring bulk get of 50 × 100 B" in result.stderr


@pytest.mark.parametrize("arguments", [["nothing"], ["--log-bytes", "much"], ["--topics", "1"]])
def test_wrong_usage_is_refused(arguments: list[str]) -> None:
    assert CliRunner().invoke(benchmarks, arguments, obj=CommandSession()).exit_code == 2


@pytest.mark.slow
def test_once_bench_prints_puts_and_gets_beside_the_machines_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oncemq.cli.admin.bench.SECONDS", 0.5)
    result = CliRunner().invoke(cli, ["bench", "--quick", "--json", "--data", str(tmp_path)])
    assert result.exit_code == 0, result.stderr
    figures = json.loads(result.stdout)["figures"]
    assert [(figure["what"], figure["limited_by"]) for figure in figures] == [
        ("put, one at a time", "write + fdatasync"),
        ("put, batches of 1,000", "bare ZeroMQ, singly"),
        ("get, batches of 1,000", "bare ZeroMQ, singly"),
    ]
    assert all(figure["value"] > 0 and figure["limit"] > 0 for figure in figures)
    assert list(tmp_path.iterdir()) == []


# ------------------------------------------------------------------ the report


def figure(**fields: Any) -> Figure:
    return Figure(**{"part": "p", "what": "w", "unit": "u", "values": {"v": 1.0}, **fields})


@pytest.mark.parametrize(
    ("aim", "measure", "met"),
    [
        (Aim(3.0), 3.0, True),
        (Aim(3.0), 2.9, False),
        (Aim(5.0, at_most=True), 5.0, True),
        (Aim(5.0, at_most=True), 5.1, False),
    ],
)
def test_an_aim_is_met_or_missed(aim: Aim, measure: float, met: bool) -> None:
    assert figure(aim=aim, judged=measure).met is met
    assert ("MISSED" in tables([figure(aim=aim, judged=measure)], aims=True)) is not met
    assert "aim" not in tables([figure(aim=aim, judged=measure)]).lower()


def test_a_figure_without_an_aim_is_neither() -> None:
    assert figure().met is None
    assert figure().as_object()["aim"] is None
    assert "AIM" not in tables([figure()])


def test_each_part_has_a_table_with_the_columns_it_fills() -> None:
    first = figure(size=100, limits={"bare": 2.0}, ratios={"bare": 0.5})
    shown = tables([first, figure(part="q", unit="s")])
    assert shown.split("\n\n")[0].splitlines() == [
        "P (U)  SIZE   V  BARE  RATIO",
        "w      100 B  1  2     0.50x",
    ]
    assert shown.split("\n\n")[1].splitlines()[0] == "Q (S)  V"


def test_numbers_and_sizes_for_people() -> None:
    assert [number_text(value) for value in (1_234_567.8, 99.94, 0.1234)] == [
        "1,234,568", "99.9", "0.123",
    ]  # fmt: skip
    assert [size_text(size) for size in (100, 1_000, 64_000)] == ["100 B", "1 KB", "64 KB"]


def test_quantiles_are_values_that_were_measured() -> None:
    times = [float(number) for number in range(1_000)]
    assert [quantile(times, part) for part in (0.5, 0.99, 0.999, 1.0)] == [500, 990, 999, 999]


def test_runs_are_taken_in_turns_and_the_middle_counts() -> None:
    order: list[str] = []
    left, right = iter([1.0, 9.0, 2.0]), iter([7.0, 7.0, 8.0])

    def take(name: str, values: Any) -> float:
        order.append(name)
        return next(values)

    assert in_turns(3, lambda: take("a", left), lambda: take("b", right)) == [2.0, 7.0]
    assert order == ["a", "b"] * 3


def test_a_batch_is_cut_to_what_a_server_takes() -> None:
    assert batch_for(100, 5_000) == 5_000
    assert batch_for(64_000, 5_000) == 131
