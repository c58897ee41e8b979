"""The declared pipeline beside this file, run twice, with new orders between the runs.

Each run must put what is new of the dear orders into the topic, once. Both run on one Spark
Connect server: its catalog lasts as long as it does.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from oncemq import Client
from oncemq.protocol.records import Retention
from oncemq.spark.runtime.cluster import connect_server
from oncemq.spark.runtime.java import java_home
from oncemq.testing import server

HERE = Path(__file__).parent
QUIET = {"spark.ui.enabled": "false"}
ORDERS = [("tea", 220), ("cake", 430), ("lunch", 990)]


def run(spec: Path, remote: str, address: str) -> None:
    """`spark-pipelines run`."""
    places = {"JAVA_HOME": java_home(), "PYSPARK_PYTHON": sys.executable, "ONCEMQ_SERVER": address}
    program = Path(sys.executable).parent / "spark-pipelines"
    command = [program, "run", "--spec", spec, "--remote", remote]
    done = subprocess.run(
        command, cwd=spec.parent, env={**os.environ, **places}, capture_output=True, text=True
    )
    if done.returncode:
        sys.exit((done.stdout + done.stderr)[-3000:])


def main() -> int:
    with (
        tempfile.TemporaryDirectory() as directory,
        server() as address,
        Client(address) as mq,
        connect_server(
            config={**QUIET, "spark.sql.warehouse.dir": f"{directory}/tables"}
        ) as remote,
    ):
        project = Path(directory) / "project"
        shutil.copytree(HERE, project)
        spec = project / "spark-pipeline.yml"
        spec.write_text(spec.read_text().replace("/tmp/oncemq-declarative", directory))
        for topic in ("orders", "dear"):
            mq.create_topic(topic, Retention(forever=True))
        right = True
        for number in (1, 2):
            orders = [json.dumps({"item": item, "cents": cents}) for item, cents in ORDERS]
            mq.put_many("orders", [each.encode() for each in orders])
            run(spec, remote, address)
            found = [json.loads(each.payload)["item"] for each in mq.read("dear", 0, limit=100)]
            print(f"run {number}: the topic has {', '.join(found)}")
            right = right and sorted(found) == sorted(["cake", "lunch"] * number)
        print("each dear order once" if right else "NOT each dear order once")
        return 0 if right else 6


if __name__ == "__main__":
    sys.exit(main())
