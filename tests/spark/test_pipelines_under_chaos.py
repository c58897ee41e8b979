"""Archives and replays through a server that crashes, forgets to answer and hears twice."""

from pathlib import Path
from typing import Any

import pytest

from oncemq.spark.pipelines import archive, replay
from oncemq.spark.pipelines.archives import archive as archiving
from oncemq.spark.pipelines.replays import replay as replaying
from tests.spark.killing import without_spark
from tests.spark.test_archive import FOREVER, put, seen, stored
from tests.spark.test_replay import copied, expected


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_server_that_crashes_in_the_middle(
    oncemq_server: str,
    oncemq_client: Any,
    oncemq_chaos: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mq = oncemq_client()
    for topic in ("orders", "copy"):
        mq.create_topic(topic, FOREVER)
    put(mq, 0, 60)
    for module, rows in ((archiving, "ROWS_PER_TASK"), (replaying, "TASK_ROWS")):
        monkeypatch.setattr(module, rows, 9)
        monkeypatch.setattr(module, "STEP_TASKS", 2)
    to = tmp_path / "archive"
    with without_spark():
        oncemq_chaos.duplicate_requests(0.3)
        oncemq_chaos.drop_replies(0.1, times=2)  # each costs a second
        oncemq_chaos.crash_before_sync(0.5, times=2)
        archive("orders", to, server=oncemq_server, timeout=30)
        oncemq_chaos.crash_after_sync(0.5, times=3)
        replay(to, "copy", server=oncemq_server, timeout=30)
    struck = oncemq_chaos.injected
    oncemq_chaos.calm()
    assert struck["crash after sync"] > 0
    assert seen(to) == stored(mq)
    assert copied(mq) == expected(mq, "orders")
