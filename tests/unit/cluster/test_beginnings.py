"""A cluster that is just being made: whatever dies then, and when, it begins all the same."""

import pytest

from oncemq.testing.unsynced_changes import PowerCut
from tests.harness.trio import SERVERS, Trio

FIRST_TURNS = 25  # founded, joined and led within so many


@pytest.mark.parametrize("turns", range(FIRST_TURNS))
@pytest.mark.parametrize("power", ["on", "off"])
def test_servers_that_die_while_a_cluster_is_made_make_it_when_they_are_back(
    turns: int, power: str
) -> None:
    trio = Trio(seed=turns)
    for _ in range(turns):
        trio.turn()
    for name in SERVERS:
        trio.kill(name)
        if power == "off":
            trio.disks[name].crash(PowerCut.NOTHING)
    for name in SERVERS:
        trio.start(name)
    trio.put("orders")
    trio.until_equal()
