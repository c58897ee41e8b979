"""Transactions a second: a batch in, a batch out, settled and put together.

The limit is the same work without the promise: a plain get and a plain put_many of the same
batch, in the same run, in turns. A crash between those two would lose or double.
"""

import time
from collections.abc import Callable, Iterator

from benchmarks.lab import Lab, in_turns
from benchmarks.report import Figure
from oncemq.client.blocking.client import Client
from oncemq.protocol.records import Retention

SIZE = 100
BATCHES = (100, 1)
SECONDS_SHARE = 400  # of the backlog's messages: a run of about half a second


def transacted(lab: Lab) -> Iterator[Figure]:
    """Consume, transform, put."""
    for batch in BATCHES:
        lab.steps.show(f"transactions of {batch:,} in and {batch:,} out")
        yield _transacted(lab, batch)


def _transacted(lab: Lab, batch: int) -> Figure:
    times = max(3, lab.effort.backlog_bytes // SIZE // SECONDS_SHARE // max(batch, 20))
    with lab.server() as server:
        state = server.data.parent / "client"
        with Client(server.address, id="bench", state=state) as client:
            client.subscribe("in")
            client.create_topic("out", Retention(forever=True))

            def run(one: Callable[[Client, int], None]) -> float:
                client.put_many("in", [bytes(SIZE)] * batch * times)
                started = time.perf_counter()
                for _ in range(times):
                    one(client, batch)
                return times / (time.perf_counter() - started)

            rate, plain = in_turns(
                lab.effort.runs, lambda: run(_transaction), lambda: run(_get_and_put)
            )
    return Figure(
        part="consume, transform, put",
        what="one transaction",
        unit="transactions a second",
        values={"committed": rate},
        size=SIZE,
        batch=batch,
        limits={"plain get + put": plain},
        ratios={"plain get + put": rate / plain},
    )


def _transaction(client: Client, batch: int) -> None:
    with client.transaction() as tx:
        messages = tx.get("in", limit=batch)
        tx.put_many("out", [message.payload for message in messages])


def _get_and_put(client: Client, batch: int) -> None:
    messages = client.get("in", limit=batch)
    client.put_many("out", [message.payload for message in messages])
