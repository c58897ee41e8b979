"""`make peers`, the part that Maven does: Kafka's jars, where the benchmarks of Spark have them."""

import sys

from benchmarks.cluster.kafka import JARS
from benchmarks.spark.kafka import Unavailable, fetch

if __name__ == "__main__":
    try:
        fetch(JARS)
    except Unavailable as why:
        sys.exit(f"NATS is there; {why}")
