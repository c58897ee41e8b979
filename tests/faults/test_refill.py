"""Three servers as processes and a real etcd: disks emptied and damaged, and filled by the others.

The log is compacted all the time, and leaders that are new have no frames in memory: so only files
bring an empty disk up to date.
"""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from oncemq import Client
from oncemq.errors import OnceMQError
from oncemq.protocol.records import Retention
from tests.e2e import storm
from tests.e2e.processes import until
from tests.faults.cast import FaultNursery
from tests.faults.cluster_serving import SERVERS, ClusterServing, must_be_equal
from tests.harness.etcd import running_etcd

SIZE = 500
BATCH = 10

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


class CompactingCluster:
    """Three servers with messages that are kept, among others that nobody wants any more."""

    def __init__(self, serving: ClusterServing, seed: int) -> None:
        self.serving, self.random = serving, random.Random(seed)
        self.stored = 0
        serving.start()
        with self.client() as client:
            client.create_topic("kept", Retention(forever=True))
            client.create_topic("gone", Retention(keep_bytes=SIZE * BATCH))

    def client(self) -> Client:
        return Client(self.serving.address, timeout=60.0)

    def put(self, batches: int = 60) -> None:
        """Every message is stored once; what it says is its number."""
        with self.client() as client:
            for _ in range(batches):
                numbers = range(self.stored, self.stored + BATCH)
                client.put_many("kept", [b"%d " % number + bytes(SIZE) for number in numbers])
                client.put_many("gone", [bytes(SIZE)] * BATCH)
                self.stored += BATCH

    def until_compacted(self) -> None:
        """Who came late has what was put before as one piece, and compacts with what follows."""

        def has_cold() -> bool:
            homes = self.serving.homes.values()
            if all(any((home / "log").glob("*.cold")) for home in homes):
                return True
            self.put(2)
            return False

        until(has_cold, 60.0, what="cold segments everywhere")

    def until_newest_is_proven(self, server: str) -> None:
        """Groups follow the first of its newest segment: what is damaged there is no torn end."""

        def newest() -> Path:
            return max((self.serving.homes[server] / "log").glob("*.log"))

        def stayed() -> bool:
            before = newest()
            self.put(2)
            self.serving.until_in_sync()
            return newest() == before

        until(stayed, 60.0, what="a newest segment that is not rolled at once")

    def restart(self, *servers: str) -> None:
        """They are killed, and are back at once: whoever leads has no frames in memory."""
        self.serving.end(*servers)
        for server in servers:
            self.serving.begin(server)

    def follower(self) -> str:
        leader = self.serving.until_led()
        return self.random.choice([each for each in SERVERS if each != leader])

    def said(self, server: str) -> str:
        """What all lives of a server have said."""
        logs = self.serving.homes[server].parent.glob(f"server-{server}-*.errors")
        return "".join(each.read_text(errors="replace") for each in sorted(logs))

    def flip(self, server: str, kind: str, *, at: float = 0.0) -> None:
        """A bit of a file, or of all such files, at their beginning or further on."""
        home = self.serving.homes[server]
        files = {
            "newest segment": sorted((home / "log").glob("*.log"))[-1:],
            "sealed segments": [
                *sorted((home / "log").glob("*.log"))[:-1],
                *home.glob("log/*.cold"),
            ],
            "cold header": sorted((home / "log").glob("*.cold"))[:1],
            "checkpoint": sorted((home / "checkpoints").glob("*.ckpt"))[-1:],
            "FORMAT": [home / "FORMAT"],
        }[kind]
        assert files
        for each in files:
            data = bytearray(each.read_bytes())
            position = max(30, int(len(data) * at))
            with each.open("r+b") as file:
                file.seek(position)
                file.write(bytes((data[position] ^ 4,)))

    def read(self, client: Client) -> list[int]:
        """The numbers of all messages that are there."""
        found: list[int] = []
        while some := client.read("kept", len(found), limit=1_000):
            found += [int(each.payload.split(b" ")[0]) for each in some]
        return found

    def prove(self) -> None:
        """Everything is there, once, and the replicas are equal."""
        self.serving.until_in_sync()
        with self.client() as client:
            assert self.read(client) == list(range(self.stored))
        self.serving.stop()
        must_be_equal(self.serving.digests())


@pytest.fixture
def cluster(nursery: FaultNursery, tmp_path: Path, seed: int) -> Iterator[CompactingCluster]:
    with running_etcd(1) as etcd:
        serving = ClusterServing(nursery, tmp_path, etcd, **storm.SERVER)
        try:
            made = CompactingCluster(serving, seed)
            made.put()
            made.until_compacted()
            yield made
        finally:
            if serving.processes:
                serving.end(*serving.processes)


def test_an_emptied_disk_is_filled_with_files(cluster: CompactingCluster) -> None:
    serving = cluster.serving
    cluster.restart(*SERVERS)
    serving.until_in_sync()
    server = cluster.follower()
    serving.end(server)
    serving.empty(server)
    serving.begin(server)
    cluster.put(5)
    serving.until_in_sync()
    assert "filled shard=1" in cluster.said(server)
    cluster.prove()


@pytest.mark.parametrize("whose", ["leader", "follower"])
@pytest.mark.parametrize("kind", ["newest segment", "cold header", "checkpoint", "FORMAT"])
def test_a_damaged_disk_is_mended_from_the_others(
    cluster: CompactingCluster, kind: str, whose: str
) -> None:
    serving = cluster.serving
    server = serving.until_led() if whose == "leader" else cluster.follower()
    if kind == "newest segment":
        cluster.until_newest_is_proven(server)
    serving.end(server)
    cluster.flip(server, kind)
    serving.begin(server)
    cluster.put(3)
    serving.until_in_sync()
    assert ("log put aside" in cluster.said(server)) == (kind != "checkpoint")
    aside = serving.homes[server] / "damaged"
    until(lambda: not aside.exists(), 30.0, what="what was put aside is removed")
    cluster.prove()


def test_a_leader_that_cannot_read_a_sealed_segment_lets_another_lead(
    cluster: CompactingCluster,
) -> None:
    serving = cluster.serving
    leader = serving.until_led()
    cluster.flip(leader, "sealed segments", at=0.5)
    with cluster.client() as client:

        def is_read() -> bool:
            try:
                found = cluster.read(client)
            except OnceMQError:
                return False
            return found == list(range(cluster.stored))

        until(is_read, 60.0, what="another server leads, and reads")
    until(lambda: "log put aside" in cluster.said(leader), 60.0, what="it is put aside")
    cluster.put(3)
    cluster.prove()
