"""Pipelines in processes that are killed at a chosen step, many a second.

A nursery imports everything once and forks a child for each job it is given; the child kills
itself with SIGKILL right before its n-th step, where a step is anything that others can see: a
rename, a sync, a word to the server. Tasks run in the child itself, one after the other: what is
tried here is the driver; Spark has its own tests.

    python -m tests.spark.killing     jobs as JSON on stdin, exit codes on stdout
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import patch

from oncemq.client.blocking.client import Client
from oncemq.spark.pipelines import archive, replay
from oncemq.spark.pipelines.archives import archive as archiving
from oncemq.spark.pipelines.archives import place
from oncemq.spark.pipelines.replays import replay as replaying
from oncemq.spark.pipelines.run import PipelineRun
from oncemq.spark.source.retention_subscription import Hold

ROOT = Path(__file__).parents[2]
NEVER = -1
STEPS: list[tuple[Any, str]] = [
    (Path, "replace"),
    (Path, "unlink"),
    (Path, "mkdir"),
    (place.LocalDisk, "sync_directory"),
    (place.LocalDisk, "open"),
    (Hold, "keep_all"),
    (Hold, "settle"),
    (Client, "stage"),
    (Client, "commit"),
]
PIPELINES: dict[str, Callable[..., Any]] = {"archive": archive, "replay": replay}


def by_hand(_spark: Any, items: Any, work: Callable[[Any], Any], _kind: Any) -> list[Any]:
    """What Spark does with tasks, without Spark."""
    return [work(item) for item in items]


@contextmanager
def without_spark() -> Iterator[None]:
    """Pipelines run their tasks where they are."""
    with ExitStack() as stack:
        for module in (archiving, replaying):
            stack.enter_context(patch.object(module, "spread", by_hand))
        stack.enter_context(patch.object(PipelineRun, "spark", None))
        yield


def perform(job: dict[str, Any]) -> None:
    """Run a pipeline; die right before step `die`."""
    taken = count()

    def stepping(step: Callable[..., Any]) -> Callable[..., Any]:
        def stepped(*arguments: Any, **named: Any) -> Any:
            if next(taken) == job["die"]:
                os.kill(os.getpid(), signal.SIGKILL)
            return step(*arguments, **named)

        return stepped

    for module, rows in ((archiving, "ROWS_PER_TASK"), (replaying, "TASK_ROWS")):
        vars(module).update({rows: 9, "STEP_TASKS": 2})  # several files, tasks and steps
    for owner, name in STEPS:
        setattr(owner, name, stepping(getattr(owner, name)))
    with without_spark():
        PIPELINES[job["pipeline"]](**job["given"])


class Nursery:
    """Runs jobs in processes of their own."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.killing"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, pipeline: str, die: int = NEVER, **given: Any) -> bool:
        """Run one; whether it was killed. Anything else that goes wrong is an error."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        job = {"pipeline": pipeline, "die": die, "given": given}
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        status = int(self._process.stdout.readline())
        assert status in (0, -signal.SIGKILL), f"{job} ended with {status}"
        return status != 0

    def close(self) -> None:
        """No more jobs."""
        self._process.communicate(timeout=30)


def main() -> None:
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            perform(json.loads(line))
            sys.stderr.flush()
            os._exit(0)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
