"""A server of a cluster as a whole: it starts with everything or with nothing, and so it ends."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from select import select
from socket import socket

import pytest

from oncemq.cluster.cluster_server import ClusterIdentity, ClusterServer
from oncemq.coordination.coordinator import Coordinator, ReadEntries, Ring
from oncemq.coordination.local import LocalStore
from oncemq.coordination.values import ClusterConfig
from oncemq.errors import StorageRefused
from oncemq.protocol.limits import ServerLimits
from oncemq.storage.disk import LockingDisk
from oncemq.storage.log.log import LogOptions
from oncemq.testing.faulty_disk import FaultyDisk
from oncemq.transport.router import RouterSocket
from tests.harness.agreement import KEYS, A, B, server_in, shard_in
from tests.harness.waiting import until_true

ALONE = ClusterConfig("", replicas=1, min_in_sync=1)
ANY_PORT = "tcp://127.0.0.1:*"
OPTIONS = LogOptions(segment_bytes=1 << 16, allocate_bytes=1 << 14, reserve_bytes=1 << 14)


class Made:
    """How a server is made, over a store and a disk in memory."""

    def __init__(self) -> None:
        self.store = LocalStore()
        self.disk = FaultyDisk(Random(1))

    def server(
        self, bind: str = ANY_PORT, *, advertise: str = "", disk: LockingDisk | None = None
    ) -> ClusterServer:
        return ClusterServer(
            Path("/data"), bind, ClusterIdentity("one", A, advertise, ALONE), self.coordinator,
            rules=ServerLimits(), options=OPTIONS, disk=disk or self.disk,
        )  # fmt: skip

    def coordinator(self, prefix: str, ring: Ring) -> Coordinator:
        return self.store.coordinator(prefix, ring)

    @contextmanager
    def running(self, server: ClusterServer) -> Iterator[list[BaseException]]:
        """Inside the block; what it ended with is in the list after that."""
        ended: list[BaseException] = []

        def run() -> None:
            try:
                server.run()
            except BaseException as error:
                ended.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield ended
        finally:
            server.stop()
            thread.join()

    def leads(self) -> bool:
        found = self.store.decide(ReadEntries((KEYS.shard(1),)))
        return bool(getattr(found, "entries", {})) and shard_in(self.store).leader == A


@pytest.fixture
def made() -> Made:
    return Made()


def is_free(address: str) -> bool:
    """Whether nobody listens there."""
    RouterSocket(address, frame_bytes_max=1 << 20).close()
    return True


def test_the_feed_leaves_the_next_port_to_the_next_server(made: Made) -> None:
    with socket() as probe, socket() as after:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        after.bind(("127.0.0.1", port + 1))
    server = made.server(f"tcp://127.0.0.1:{port}")
    with made.running(server):
        assert server.feed not in ("", f"tcp://127.0.0.1:{port + 1}")
        assert is_free(f"tcp://127.0.0.1:{port + 1}")


def test_it_runs_leads_and_ends_with_nothing_open(made: Made) -> None:
    server = made.server()
    with made.running(server) as ended:
        until_true(made.leads, "it leads")
        state = server_in(made.store, A)
        assert state is not None
        assert state.address == server.address
    assert ended == []
    made.disk.lock("/data/lock").release()
    assert is_free(server.address)
    alive = made.store.decide(ReadEntries((KEYS.alive(A),)))
    assert getattr(alive, "entries", None) == {}


def test_it_comes_back_with_what_it_had(made: Made) -> None:
    with made.running(made.server()):
        until_true(made.leads, "it leads")
    again = made.server()
    assert again.recovered > 0
    with made.running(again):
        until_true(lambda: shard_in(made.store).leader_epoch > 1, "it leads again")


def test_others_are_told_the_address_that_it_was_given(made: Made) -> None:
    with made.running(made.server(advertise="tcp://a.example:5556")):
        until_true(lambda: server_in(made.store, A), "it says where it is")
        state = server_in(made.store, A)
        assert state is not None
        assert state.address == "tcp://a.example:5556"


def test_what_a_coordinator_has_to_say_wakes_the_loop(made: Made) -> None:
    server = made.server()
    bell = server._loop._bell
    bell.silence()
    assert select([bell.descriptor], [], [], 0)[0] == []
    made.store.put(KEYS.alive(B), b"{}")
    assert select([bell.descriptor], [], [], 0)[0] == [bell.descriptor]
    server.stop()
    server.run()


def test_each_start_has_a_claim_of_its_own(made: Made) -> None:
    claims: set[str] = set()
    for _ in range(2):
        with made.running(made.server()):
            until_true(
                lambda: made.leads() and shard_in(made.store).in_sync[A].claim not in claims,
                "it is known",
            )
            claims.add(shard_in(made.store).in_sync[A].claim)
    assert len(claims) == 2


def test_who_cannot_reach_a_coordinator_leaves_nothing_open(made: Made) -> None:
    taken: list[str] = []

    def none(_prefix: str, _ring: Ring) -> Coordinator:
        raise OSError("no etcd")

    def door(*args: object, **options: object) -> RouterSocket:
        made_door = RouterSocket(*args, **options)  # type: ignore[arg-type]
        taken.append(made_door.address)
        return made_door

    with pytest.raises(OSError, match="no etcd"):
        ClusterServer(
            Path("/data"), ANY_PORT, ClusterIdentity("one", A, "", ALONE), none,
            rules=ServerLimits(), options=OPTIONS, disk=made.disk, door=door,
        )  # fmt: skip
    assert is_free(taken[0])


def test_a_directory_that_another_process_has_open_ends_the_start(made: Made) -> None:
    with made.running(made.server()):
        until_true(made.leads, "it leads")
    lock = made.disk.lock("/data/lock")
    with pytest.raises(StorageRefused, match="is held by"):
        made.server()
    lock.release()
    alive = made.store.decide(ReadEntries((KEYS.alive(A),)))
    assert getattr(alive, "entries", None) == {}
    with made.running(made.server()):
        until_true(lambda: shard_in(made.store).leader_epoch > 1, "it leads again")


def test_a_failing_disk_ends_it_in_words(made: Made) -> None:
    server = made.server()
    made.disk.faults.failing_syncs = 1_000
    with made.running(server) as ended:
        until_true(lambda: ended, "it ends")
    (error,) = ended
    assert isinstance(error, StorageRefused)
    assert error.code == "disk_failed"
    assert "Look after the disk" in str(error)
    assert is_free(server.address)
