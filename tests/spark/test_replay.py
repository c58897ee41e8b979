"""The replay without Spark: each archived message once in the topic, whatever was killed."""

import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from oncemq import Client, errors
from oncemq.cli.main import cli
from oncemq.spark.pipelines import archive, replay
from oncemq.spark.pipelines.replays import replay as replaying
from oncemq.spark.pipelines.replays.replay import Replayed
from tests.spark.killing import Nursery, by_hand, without_spark
from tests.spark.test_archive import FOREVER, put

Row = tuple[bytes | None, bytes, dict[str, str]]


@pytest.fixture
def to(tmp_path: Path) -> Path:
    return tmp_path / "archive"


@pytest.fixture
def replayed(mq: Client, address: str, to: Path) -> Iterator[Callable[..., Replayed]]:
    """`replayed(topics="orders")`: archive all, and replay it into `copy`."""
    mq.create_topic("copy", FOREVER)
    mq.create_topic("refunds", FOREVER)

    def run(*, target: str = "copy", grow: bool = True, **given: Any) -> Replayed:
        if grow:
            archive(["orders", "refunds"], to, server=address, timeout=20)
        return replay(to, target, server=address, timeout=20, **given)

    with without_spark():
        yield run


def expected(mq: Client, *topics: str) -> list[Row]:
    """What a replay of these topics is to have put, in order."""
    return [
        (
            each.key,
            each.payload,
            each.headers
            | {
                "oncemq-origin-topic": topic,
                "oncemq-origin-offset": str(each.offset),
                "oncemq-origin-timestamp": each.timestamp.isoformat(
                    timespec="microseconds"
                ).replace("+00:00", "Z"),
            },
        )
        for topic in topics
        for each in mq.read(topic, 0, limit=10_000)
    ]


def copied(mq: Client, topic: str = "copy") -> list[Row]:
    return [(each.key, each.payload, each.headers) for each in mq.read(topic, 0, limit=10_000)]


def test_a_replay_keeps_order_keys_headers_and_where_it_was(mq: Client, replayed) -> None:
    put(mq, 0, 50)
    put(mq, 0, 5, "refunds")
    done = replayed()
    assert (done.messages, done.ends) == (55, {"orders": 50, "refunds": 5})
    assert copied(mq) == expected(mq, "orders", "refunds")


def test_run_again_it_adds_what_is_new_and_else_nothing(mq: Client, replayed) -> None:
    put(mq, 0, 50)
    assert replayed().messages == 50
    assert replayed(grow=False).messages == 0
    put(mq, 50, 7)
    assert replayed().messages == 7
    assert copied(mq) == expected(mq, "orders")
    assert replayed(name="again", grow=False).messages == 57
    assert copied(mq) == 2 * expected(mq, "orders")


def test_a_target_made_again_gets_it_all(mq: Client, replayed) -> None:
    put(mq, 0, 5)
    replayed()
    mq.delete_topic("copy")
    mq.create_topic("copy", FOREVER)
    assert replayed().messages == 5


def test_a_topic_and_a_time_are_chosen(mq: Client, replayed) -> None:
    for number in range(10):
        put(mq, number, 1)
    put(mq, 0, 3, "refunds")
    times = [each.timestamp for each in mq.read("orders", 0)]
    done = replayed(topics="orders", since=times[2], until=times[5])
    assert done.messages == 3
    assert copied(mq) == expected(mq, "orders")[2:5]
    before = times[0] - timedelta(seconds=1)
    assert replayed(topics=["orders"], until=before).messages == 0
    assert replayed(topics=["refunds"], since=before).messages == 3


def test_a_replay_of_a_replay_says_where_it_was_last(
    mq: Client, address: str, tmp_path: Path, replayed
) -> None:
    put(mq, 0, 3)
    replayed()
    mq.create_topic("twice", FOREVER)
    archive("copy", tmp_path / "second", server=address, timeout=20)
    replay(tmp_path / "second", "twice", server=address, timeout=20)
    assert copied(mq, "twice") == expected(mq, "copy")


@pytest.mark.slow
@pytest.mark.timeout(900)  # every step, in `make soak-pipelines`
def test_killed_at_any_step_it_puts_each_message_once(
    mq: Client, address: str, to: Path, replayed
) -> None:
    every = 1 if "ONCEMQ_EVERY_STEP" in os.environ else 3
    put(mq, 0, 30)
    put(mq, 0, 10, "refunds")
    replayed(topics="refunds")
    nursery = Nursery()
    try:
        die, killed = 0, True
        while killed:
            target = f"copy-{die}"
            mq.create_topic(target, FOREVER)
            given = {"path": str(to), "to": target, "server": address, "timeout": 20}
            killed = nursery.run("replay", die, **given)
            rows = copied(mq, target)
            assert rows == expected(mq, "orders", "refunds")[: len(rows)]
            nursery.run("replay", **given)
            assert copied(mq, target) == expected(mq, "orders", "refunds")
            nursery.run("replay", **given)
            assert len(copied(mq, target)) == 40
            die += every
        assert die > 5
    finally:
        nursery.close()


def test_a_second_one_stops_the_first_and_nothing_is_put_twice(
    mq: Client, replayed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replaying, "TASK_ROWS", 7)
    monkeypatch.setattr(replaying, "STEP_TASKS", 1)
    put(mq, 0, 50)
    put(mq, 0, 3, "refunds")
    rounds = iter(range(100))

    def overtaken(_spark: Any, items: Any, work: Any, _kind: Any) -> Any:
        staged = [work(item) for item in items]
        if next(rounds) == 2:
            with monkeypatch.context() as patch:
                patch.setattr(replaying, "spread", by_hand)
                patch.setattr(replaying, "TASK_ROWS", 11)
                assert replayed(grow=False).messages == 53 - 14
        return staged

    monkeypatch.setattr(replaying, "spread", overtaken)
    with pytest.raises(errors.Fenced, match="this one stops"):
        replayed()
    assert copied(mq) == expected(mq, "orders", "refunds")


def test_what_cannot_be_replayed(mq: Client, address: str, replayed, to: Path) -> None:
    put(mq, 0, 5)
    with pytest.raises(errors.ConfigError, match="is not there: `once pipeline archive"):
        replayed(grow=False)
    replayed()
    with pytest.raises(errors.ConfigError, match=r"has no topic 'ordres'; it has orders, refunds"):
        replayed(topics="ordres")
    with pytest.raises(errors.ConfigError, match="once topic create nowhere --retain"):
        replayed(target="nowhere")
    (file,) = to.glob("topic=orders/*/*.parquet")
    file.rename(file.with_name(file.name.replace("0.parquet", "3.parquet")))
    with pytest.raises(errors.Corrupt, match="does not follow"):
        replayed(grow=False, name="x")
    words = ["pipeline", "replay", str(to), "--to", "copy", "--since", "yesterday"]
    shown = CliRunner().invoke(cli, words)
    assert (shown.exit_code, "is not a time" in shown.stderr) == (2, True)
