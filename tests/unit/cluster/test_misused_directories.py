"""Directories that are where they should not be: a copy under another id, one id on two disks."""

from random import Random

import pytest

from oncemq.protocol.names import ServerId
from oncemq.testing.faulty_disk import FaultyDisk
from tests.harness.trio import SERVERS, Trio

OTHER, LEADER, THIRD = SERVERS
TWIN = ServerId("twin")  # what a test calls the process that had an id first


@pytest.fixture
def trio() -> Trio:
    made = Trio()
    made.until(made.are_in_sync)
    made.subscribe("kept")
    for _ in range(20):
        made.put("kept")
    return made


def kept(trio: Trio) -> int:
    return {each.messages["kept"][1] for each in trio.until_equal().values()}.pop()


@pytest.mark.parametrize("seed", range(6))
def test_a_copy_of_a_running_servers_directory_is_another_servers_replica(
    trio: Trio, seed: int
) -> None:
    """`cp -a` while it runs: torn, with its incarnation, its promise and its count of openings."""
    chance = Random(seed)
    source = chance.choice((OTHER, LEADER))
    trio.kill(THIRD)
    for _ in range(10):
        trio.put("kept")
    trio.disks[THIRD] = trio.disks[source].fork(chance)
    for _ in range(chance.randrange(5)):
        trio.put("kept")
    number = trio._sequences["kept"]
    trio.start(THIRD)
    trio.until(trio.are_in_sync)
    for name in (OTHER, LEADER):
        trio.kill(name)
        trio.until_led()
        trio.put("kept")
        trio.start(name)
        trio.until(trio.are_in_sync)
    assert not trio.ended
    assert kept(trio) == number + 2


@pytest.mark.parametrize("is_copy", [False, True], ids=["empty", "copy"])
@pytest.mark.parametrize("name", SERVERS)
def test_of_two_servers_with_one_id_the_newer_counts_and_the_other_says_so(
    trio: Trio, name: ServerId, *, is_copy: bool
) -> None:
    """They are on disks of their own; the others reach the one that started last."""
    before = trio.running[TWIN] = trio.running.pop(name)
    disk = trio.disks[TWIN] = trio.disks[name]
    trio.disks[name] = disk.fork(Random(1)) if is_copy else FaultyDisk(Random("new"))
    trio.start(name)
    for _ in range(10):
        trio.put("kept")
    trio.until(lambda: trio.are_in_sync(*SERVERS))
    agreement = before.replica._agreement
    trio.until(lambda: agreement.declined)
    assert f"another process, or another directory, runs as {name}" in str(agreement.declined)
    trio.running.pop(TWIN)
    before.coordinator.close()
    assert not trio.ended
    assert kept(trio) == 30
