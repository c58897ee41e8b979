"""How a batch is planned: limits shared, ranges cut, progress that is equal when it is equal."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncemq.errors import ConfigError
from oncemq.spark.source.progress import ReadPlace, ReadProgress, progress_of, share
from oncemq.spark.source.ranges import TopicRange, ranges

BACKLOGS = st.dictionaries(st.text("abc", min_size=1, max_size=2), st.integers(0, 1000), max_size=6)


@given(BACKLOGS, st.integers(1, 2000))
def test_a_limit_is_shared_by_backlog_and_none_starves(backlogs: dict[str, int], most: int) -> None:
    taken = share(backlogs, most)
    assert taken.keys() == backlogs.keys()
    waiting = [name for name, rows in backlogs.items() if rows]
    assert all(1 <= taken[name] <= backlogs[name] for name in waiting)
    assert sum(taken.values()) <= max(most, min(most, sum(backlogs.values())) + len(waiting))
    if sum(backlogs.values()) <= most:
        assert taken == backlogs


def test_a_limit_is_shared_in_proportion() -> None:
    assert share({"a": 900, "b": 100, "c": 0}, 100) == {"a": 90, "b": 10, "c": 0}
    assert share({"a": 900, "b": 100}, None) == {"a": 900, "b": 100}
    assert share({"a": 10**6, "b": 1}, 10) == {"a": 9, "b": 1}


STRETCHES = st.lists(
    st.tuples(st.integers(0, 1000), st.integers(0, 500)).map(
        lambda pair: TopicRange("t", 1, pair[0], pair[0] + pair[1])
    ),
    max_size=30,
)


@given(STRETCHES, st.integers(1, 20), st.integers(1, 300))
def test_ranges_are_the_stretches_cut(stretches: list[TopicRange], least: int, most: int) -> None:
    tasks = ranges(stretches, tasks_min=least, task_rows_max=most)
    found = [each for task in tasks for each in task.stretches]
    offsets = [offset for each in found for offset in range(each.start, each.stop)]
    assert offsets == [offset for each in stretches for offset in range(each.start, each.stop)]
    assert all(sum(each.rows for each in task.stretches) <= most for task in tasks)
    assert len(tasks) >= min(least, max(1, len(offsets)))
    assert len(tasks) >= 1  # a batch has a task


def test_one_topic_is_read_by_many_tasks() -> None:
    found = ranges([TopicRange("orders", 7, 10, 20)], tasks_min=3, task_rows_max=1000)
    assert [each.stretches for each in found] == [
        (TopicRange("orders", 7, 10, 13),),
        (TopicRange("orders", 7, 13, 16),),
        (TopicRange("orders", 7, 16, 20),),
    ]


def test_many_topics_with_few_rows_share_tasks_and_a_large_one_has_its_own() -> None:
    small = [TopicRange(f"t{number}", number, 0, 100) for number in range(320)]
    found = ranges(small, tasks_min=1, task_rows_max=10**6)
    assert [len(each.stretches) for each in found] == [20] * 16
    assert [each for task in found for each in task.stretches] == small
    large = TopicRange("large", 7, 0, 10**6)
    found = ranges([*small[:10], large, *small[10:]], tasks_min=1, task_rows_max=10**7)
    assert [len(each.stretches) for each in found] == [10, 1, 310]
    assert len(ranges(small[:16], tasks_min=1, task_rows_max=10**6)) == 16
    assert len(ranges(small, tasks_min=200, task_rows_max=10**6)) >= 200


def test_progress_survives_the_checkpoint_and_is_equal_when_it_is_equal() -> None:
    one = ReadProgress(1, "spark-1", {"b": ReadPlace(2, 5, 0), "a": ReadPlace(1, 9, 3)})
    other = ReadProgress(1, "spark-1", {"a": ReadPlace(1, 9, 3), "b": ReadPlace(2, 5, 0)})
    text = json.dumps(one.to_spark())
    assert text == json.dumps(other.to_spark())
    assert progress_of(json.loads(text)) == one


@pytest.mark.parametrize(
    ("stored", "said"),
    [
        ({"orders": {"0": 5}}, "not oncemq's"),
        ({"version": 2, "subscription": None, "topics": {}}, "of version 2"),
    ],
)
def test_a_checkpoint_of_another_source_is_refused(stored: dict, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        progress_of(stored)
    assert said in str(refused.value)
