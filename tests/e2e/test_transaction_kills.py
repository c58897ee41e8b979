"""Consume, transform, put, with SIGKILL to the client and the server: compared message by message.

Drawn from a seed, printed with the outcome; TEST_SEED draws another.
"""

import os
import random
import time
from pathlib import Path

import pytest

from oncemq import Client
from oncemq.protocol.records import Retention
from simulator import proof
from tests.e2e.processes import Process, Serving, running_nursery, until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

SEED = int(os.environ.get("TEST_SEED", "20211125"))
TOPICS = ("in", "out", "even", "odd")
KILLS = 60
AHEAD = 4_000  # messages that wait at every kill, however quick the machine is


def test_a_pipeline_killed_again_and_again_puts_each_output_once(tmp_path: Path) -> None:
    draw = random.Random(SEED)
    print(f"seed {SEED}")
    with running_nursery() as nursery:
        serving = Serving(
            nursery,
            tmp_path,
            upkeep_ms=50,
            log={"segment_bytes": 1 << 18, "allocate_bytes": 1 << 17, "checkpoint_records": 500},
        )
        server = serving.start()

        def begin(life: int) -> Process:
            state = str(tmp_path / "state")
            name = f"transform-{life}"
            return nursery.start("transform", name, tmp_path, server=server, id="job", state=state)

        with Client(server, timeout=60) as client:
            for topic in TOPICS:
                client.create_topic(topic, Retention(forever=True))
            payloads: list[bytes] = []

            def done() -> int:
                return client.topic("out").topic.end

            def keep_ahead() -> None:
                missing = range(len(payloads), done() + AHEAD)
                more = [b"%d %s" % (n, b"x" * (n % 90)) for n in missing]
                client.put_many("in", more)
                payloads.extend(more)

            job = begin(0)
            killed = {"server": 0, "client": 0}
            for kill in range(KILLS):
                keep_ahead()
                time.sleep(
                    draw.choice((0.005, 0.03, 0.08))
                )  # not for a state: for a moment to kill
                if draw.random() < 0.5:
                    nursery.kill(job)
                    killed["client"] += 1
                    job = begin(kill + 1)
                if draw.random() < 0.5:
                    serving.kill()
                    killed["server"] += 1
                    serving.start()

            until(lambda: done() == len(payloads), 90, what="the rest of the pipeline")
            job.kill()
            found = {name: read_all(client, name) for name in TOPICS}
    assert found["in"] == payloads
    assert found["out"] == [b"%d:" % n + payload for n, payload in enumerate(payloads)]
    assert found["even"] == payloads[0::2]
    assert found["odd"] == payloads[1::2]
    counts = {"fault: kill -9": sum(killed.values()), "messages": len(payloads), **killed}
    proof.record("kills-transactions", "make test", counts)


def read_all(client: Client, topic: str) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < client.topic(topic).topic.end:
        found += [message.payload for message in client.read(topic, len(found), limit=5000)]
    return found
