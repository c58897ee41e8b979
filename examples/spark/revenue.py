"""Orders in, revenue per minute out, to a topic and to Parquet, exactly once: `make demo-spark`.

A server with a topic of orders; the pipeline of revenue.toml, which sums them up in windows of a
minute and puts each finished one into the topic `revenue`, run on a Spark that is killed in the
middle and started again; that topic archived as Parquet. At the end everything is counted another
way, and `once pipeline audit` looks at both topics and at the archive.
"""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from oncemq import Client
from oncemq.protocol.records import Retention
from oncemq.testing import server

HERE = Path(__file__).parent
ITEMS = {"espresso": 250, "tea": 220, "cake": 430}
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
ORDERS = 5_000
QUICK = ["--conf", "spark.sql.shuffle.partitions=2", "--master", "local[2]"]


def put_orders(mq: Client) -> int:
    """Some orders of half an hour, and one much later, which closes the windows; the revenue."""
    draw = random.Random(7)
    items = [draw.choice(list(ITEMS)) for _ in range(ORDERS)]
    times = [NOON + timedelta(seconds=1800 * number / ORDERS) for number in range(ORDERS)]
    for topic in ("orders", "revenue"):
        mq.create_topic(topic, Retention(forever=True))
    for item, cents, at in [
        *((item, ITEMS[item], at) for item, at in zip(items, times, strict=True)),
        ("tea", 0, NOON + timedelta(hours=2)),
    ]:
        order = {"item": item, "cents": cents, "at": at.isoformat()}
        mq.put("orders", json.dumps(order).encode(), key=item.encode(), wait=False)
    mq.flush()
    return sum(ITEMS[item] for item in items)


def main() -> int:
    with tempfile.TemporaryDirectory() as directory, server() as address, Client(address) as mq:
        expected = put_orders(mq)
        print(f"{ORDERS} orders put, {expected / 100:.2f} in all")
        os.environ |= {"ONCEMQ_SERVER": address, "XDG_STATE_HOME": directory}
        once = [sys.executable, "-m", "oncemq", "pipeline"]
        transform = [*once, "transform", str(HERE / "revenue.toml"), *QUICK]
        killed = subprocess.Popen(transform, start_new_session=True, stderr=subprocess.DEVNULL)
        while mq.topic("revenue").topic.end == 0 and killed.poll() is None:
            time.sleep(0.05)
        os.killpg(killed.pid, signal.SIGKILL)
        killed.wait()
        print(f"Spark was killed when {mq.topic('revenue').topic.end} windows were out")
        archive = str(Path(directory) / "archive")
        codes = [
            subprocess.run(words).returncode
            for words in (
                transform,
                [*once, "archive", "revenue", "--to", archive, *QUICK],
                [*once, "audit", "orders", "revenue", "--archive", archive, *QUICK],
            )
        ]
        return report(mq, Path(archive), expected, codes)


def report(mq: Client, archive: Path, expected: int, codes: list[int]) -> int:
    """Count everything again, another way."""
    import pyarrow.parquet as parquet

    rows = [json.loads(each.payload) for each in mq.read("revenue", 0, limit=100_000)]
    in_topic = sum(row["cents"] for row in rows)
    table = parquet.read_table(archive)
    in_parquet = sum(json.loads(value)["cents"] for value in table.column("value").to_pylist())
    doubled = len(rows) - len({(row["item"], row["minute"]) for row in rows})
    print(f"topic revenue: {len(rows)} windows, {in_topic / 100:.2f}; {doubled} doubled")
    print(f"Parquet:       {table.num_rows} windows, {in_parquet / 100:.2f}")
    right = in_topic == in_parquet == expected and not doubled
    print("every order counted once" if right else "NOT every order counted once")
    return 0 if right and not any(codes) else 6


if __name__ == "__main__":
    sys.exit(main())
