"""A replica that is filled again and again, while one or the other end of it is killed."""

from random import Random

import pytest

from oncemq.testing.faulty_disk import FaultyDisk
from tests.harness.trio import SERVERS, Trio

OTHER, LEADER, THIRD = SERVERS


@pytest.mark.parametrize("seed", range(4))
def test_a_filling_that_is_interrupted_at_both_ends_ends_with_everything(seed: int) -> None:
    chance, trio = Random(seed), Trio(seed)
    trio.until(trio.are_in_sync)
    trio.fill(200)
    trio.kill(THIRD)
    trio.disks[THIRD] = FaultyDisk(Random(seed))
    for name in (OTHER, LEADER):  # frames that are only in memory are forgotten
        trio.kill(name)
        trio.start(name)
    trio.until(lambda: trio.are_in_sync(OTHER, LEADER))
    trio.start(THIRD)
    fillings = 0
    for _ in range(10):
        for _ in range(chance.choice((20, 100, 400))):
            trio.turn()
            if THIRD in trio.running and "cluster_filled_bytes" in trio.facts(THIRD):
                fillings += 1
                break
        for _ in range(chance.randrange(4)):
            trio.turn()
        leader = trio.leader() or OTHER
        ends = chance.choice(([THIRD], [leader], sorted({THIRD, leader})))
        for name in ends:
            trio.kill(name)
        if THIRD in ends and chance.random() < 0.5:
            trio.disks[THIRD] = FaultyDisk(Random(chance.random()))
        if chance.random() < 0.5:
            for _ in range(chance.choice((5, 400))):
                trio.turn()
        for name in ends:
            trio.start(name)
        if chance.random() < 0.5:
            trio.put("kept")
    assert fillings > 1
    assert not trio.ended
    number = trio._sequences["kept"]
    assert {each.messages["kept"][1] for each in trio.until_equal().values()} == {number}
