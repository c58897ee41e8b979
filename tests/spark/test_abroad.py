"""Spark somewhere else: on executors of their own, and over Spark Connect. The package reaches
executors whose Python does not have it, a copy is a copy, message by message, and the pipelines
that ship with the product run there.
"""

import json
import os
import subprocess
import sys
from dataclasses import asdict
from importlib import util
from pathlib import Path
from typing import Any

import pytest

from oncemq.protocol.records import Retention
from oncemq.spark.runtime.cluster import connect_server
from oncemq.spark.runtime.java import carried_home
from tests.spark.abroad import REPLAYED, TRANSFORMED
from tests.spark.copying import CONFIG
from tests.spark.lanes import Lane, Rig
from tests.spark.quick_spark import quick_spark

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
NO_DIRECTORY = (
    "target.path needs a Spark whose driver is this process; over Spark Connect name a topic or a "
    "table"
)
BARE = """
import os, sys
from importlib.machinery import PathFinder


class Hide:
    "This Python does not have the package: only a file that Spark brought has it."

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name not in ("oncemq", "pyspark_oncemq"):
            return None
        found = PathFinder.find_spec(name, [each for each in sys.path if each.endswith(".zip")])
        if found is None:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return found


if "SPARK_EXECUTOR_DIRS" in os.environ:  # this is an executor
    sys.meta_path.insert(0, Hide)
"""


@pytest.fixture
def bare(tmp_path: Path) -> str:
    """A PYTHONPATH that hides this package from executors."""
    directory = tmp_path / "bare"
    directory.mkdir()
    (directory / "sitecustomize.py").write_text(BARE)
    return os.pathsep.join([str(directory), *filter(None, [os.environ.get("PYTHONPATH")])])


def use(rig: Rig, environment: dict[str, str], **how: Any) -> list[str]:
    """Run the program; where its executors found the package."""
    lane = Lane(rig, "lane", {})
    lane.fill(2)
    for topic in (REPLAYED, TRANSFORMED):
        rig.mq.create_topic(topic, Retention(forever=True))
    told = {"how": how, "lane": asdict(lane.given)}
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.abroad", json.dumps(told)],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=400,
    )
    words = [line for line in done.stderr.splitlines() if not line.startswith("\tat ")]
    assert done.returncode == 0, "\n".join(words)[-5000:]
    said = json.loads(done.stdout.splitlines()[-1])
    lane.compare()
    assert said["rows"] == [[(key or b"").decode(), value.decode()] for key, value in lane.rows]
    count = len(lane.rows)
    done_by = {"archived": count, "replayed": count, "transformed": count}
    wanted = {**done_by, "written": NO_DIRECTORY if "remote" in how else count}
    assert said["pipelines"] == {**wanted, "audited": 2 * count, "findings": 0}
    for topic, wrap in ((REPLAYED, b"%b"), (TRANSFORMED, b"<%b>")):
        found = [(each.key, each.payload) for each in rig.mq.read(topic, 0, limit=2 * count)]
        assert found == [(key, wrap % value) for key, value in lane.rows]
    assert "a topic is only ever added to" in said["refused"]
    return said["files"]


def test_executors_that_do_not_have_the_package(tmp_path: Path, bare: str) -> None:
    here = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    master = "local-cluster[2,1,1024]"
    environment = {**quick_spark(), "PYTHONPATH": bare}
    with Rig(tmp_path) as rig:
        files = use(rig, environment, master=master, config={**CONFIG, **here})
    assert [each.rpartition("/oncemq.zip/")[2] for each in files] == ["oncemq/__init__.py"]


@pytest.mark.skipif(util.find_spec("grpc") is None, reason="needs pyspark[connect]")
def test_over_spark_connect(tmp_path: Path) -> None:
    java = {"JAVA_HOME": carried_home() or ""}  # the one that pip brought, as users have it
    place = {**quick_spark(), **java}
    with Rig(tmp_path) as rig, connect_server("local[2,4]", CONFIG, **place) as remote:
        use(rig, {}, remote=remote)
