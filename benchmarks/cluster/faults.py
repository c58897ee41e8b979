"""What a cluster does when a server goes: how soon puts go on, how fast a follower catches up."""

import shutil
import threading
import time
from collections.abc import Callable, Iterator

from benchmarks.bulk import put_bytes
from benchmarks.cluster.servers import SERVERS, ClusterServers, Missing, cluster, until
from benchmarks.lab import MEBIBYTE, Lab, quantile
from benchmarks.report import Aim, Figure
from oncemq import Client
from oncemq.protocol.records import Retention

MICRO = 1_000_000
AGAIN = Aim(5.0, at_most=True, unit=" s")
BEHIND, EMPTIED = "was away", "emptied"
TWICE = Aim(2.0, at_most=True, unit="x its normal")


def failovers(lab: Lab) -> Iterator[Figure]:
    """Leaders killed and frozen in turn."""

    def measure(servers: ClusterServers, client: Client) -> Iterator[Figure]:
        for what in ("killed", "frozen"):
            lab.steps.show(f"a leader {what}, under puts")
            yield _failovers(lab, servers, client, what)

    return _on_a_cluster(lab, measure)


def catch_ups(lab: Lab) -> Iterator[Figure]:
    """A follower that was away for a while; and one that begins anew."""

    def measure(servers: ClusterServers, client: Client) -> Iterator[Figure]:
        for what in (BEHIND, EMPTIED):
            yield _catch_up(lab, servers, client, what)

    return _on_a_cluster(lab, measure)


def _on_a_cluster(
    lab: Lab, measure: Callable[[ClusterServers, Client], Iterator[Figure]]
) -> Iterator[Figure]:
    try:
        with cluster(lab) as servers, Client(servers.addresses, timeout=60) as client:
            client.create_topic("puts", Retention(forever=True))
            yield from measure(servers, client)
    except Missing as missing:
        lab.steps.show(str(missing))


def _failovers(lab: Lab, servers: ClusterServers, client: Client, what: str) -> Figure:
    took = [_failover(servers, client, what) for _ in range(lab.effort.runs)]
    return Figure(
        part="failover: from the fault to the next put that is acknowledged",
        what=f"leader {what}",
        unit="seconds",
        values={"median": quantile(took, 0.5), "worst": max(took)},
        aim=AGAIN,
        judged=max(took),
    )


def _failover(servers: ClusterServers, client: Client, what: str) -> float:
    leader = servers.until_in_sync()
    server = servers.servers[leader]
    client.put("puts", bytes(100), durable=False)
    started = time.perf_counter()
    if what == "killed":
        server.kill()
    else:
        servers.pause(leader, on=True)
    client.put("puts", bytes(100), durable=False)
    took = time.perf_counter() - started
    if what == "killed":
        server.begin()
    else:
        servers.pause(leader, on=False)
    return took


def _catch_up(lab: Lab, servers: ClusterServers, client: Client, what: str) -> Figure:
    leader = servers.until_in_sync()
    normal = _p99_while(client, lambda: time.sleep(lab.effort.seconds * 3))
    name = next(each for each in SERVERS if each != leader)
    server = servers.servers[name]
    server.kill()
    if what == EMPTIED:
        shutil.rmtree(server.data)
    until(lambda: servers.facts(leader).get(f"member.{name}.in_sync") is False, "it is given up")
    lab.steps.show(f"a backlog of {lab.effort.backlog_bytes // MEBIBYTE} MiB")
    count = put_bytes(client, "puts", lab.effort.backlog_bytes, size=1_000, batch=1_000)
    lab.steps.show(f"{what} catches up, under puts")
    server.begin()
    started = time.perf_counter()
    busy = _p99_while(client, lambda: servers.until_in_sync())
    seconds = time.perf_counter() - started
    if what == EMPTIED:
        count *= 2  # it lacks the backlog of the one before as well
    return Figure(
        part="catch-up: a follower until it is in sync; puts of 100 bytes meanwhile",
        what=what,
        unit="as named",
        values={
            "MB/s": count * 1_000 / 1e6 / seconds,
            "seconds": seconds,
            "p99 µs normally": normal * MICRO,
            "p99 µs meanwhile": busy * MICRO,
        },
        ratios={"p99": busy / normal},
        aim=TWICE,
        judged=busy / normal,
    )


def _p99_while(client: Client, do: Callable[[], object]) -> float:
    """Of puts one at a time, while something is done in another thread."""
    times: list[float] = []
    doing = threading.Thread(target=do)
    doing.start()
    while doing.is_alive():
        started = time.perf_counter()
        client.put("puts", bytes(100), durable=False)
        times.append(time.perf_counter() - started)
    return quantile(times, 0.99)
