"""A streaming query with source and sink over a cluster, while leaders are killed in turn."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from oncemq import Client
from tests.e2e.processes import until
from tests.faults.cast import FaultNursery
from tests.faults.cluster_serving import SERVERS, ClusterServing
from tests.harness.etcd import running_etcd
from tests.spark.conftest import copied, fill_orders
from tests.spark.copying import Given, start_copying

FAILOVERS = 2
PATIENCE = 120.0  # Spark's batches take seconds on a busy machine

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterServing]:
    nursery = FaultNursery()
    try:
        with running_etcd(1) as etcd:
            made = ClusterServing(nursery, tmp_path, etcd)
            made.start()
            yield made
            made.end(*SERVERS)
    finally:
        nursery.close()


def test_a_query_goes_on_when_leaders_are_killed(
    cluster: ClusterServing, spark: SparkSession, tmp_path: Path
) -> None:
    with Client(cluster.address, timeout=PATIENCE) as mq:
        wanted = fill_orders(mq)
        given = Given(",".join(cluster.address), "orders", str(tmp_path / "check"), "", {})
        mq.create_topic(given.target, mq.topic("orders").topic.retention)
        query = start_copying(spark, given, available=False)
        try:
            for _ in range(FAILOVERS):
                until(lambda: copied(mq, given.target), PATIENCE, what="a batch is out")
                cluster.until_in_sync()
                leader = cluster.until_led()
                cluster.end(leader)
                wanted += [(b"late", b"%d" % number) for number in range(30)]
                mq.put_many("orders", [value for _, value in wanted[-30:]], keys=[b"late"] * 30)
                cluster.until_led(but=leader)
                cluster.begin(leader)
            until(lambda: len(copied(mq, given.target)) >= len(wanted), PATIENCE, what="all is out")
            assert query.isActive, query.exception()
        finally:
            query.stop()
        assert copied(mq, given.target) == wanted
