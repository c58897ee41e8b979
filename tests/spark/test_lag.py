"""The lag, from what Spark says of a query."""

import json

from oncemq.spark import lag


def offset(**topics: int) -> str:
    """As Spark's progress has it."""
    places = {name: {"id": 1, "offset": each, "since": 2} for name, each in topics.items()}
    return json.dumps({"version": 1, "subscription": None, "topics": places})


def test_the_lag_is_what_waits_in_each_topic() -> None:
    ours = {"latestOffset": offset(orders=50, new=9), "endOffset": offset(orders=20)}
    rate = {"latestOffset": "7", "endOffset": "3"}
    silent = {"latestOffset": None, "endOffset": None}
    assert lag({"sources": [ours, rate, silent]}) == {"orders": 30, "new": 7}
    again = {"latestOffset": offset(orders=21), "endOffset": offset(orders=20)}
    assert lag({"sources": [ours, again]}) == {"orders": 31, "new": 7}
    assert lag(None) == {}
