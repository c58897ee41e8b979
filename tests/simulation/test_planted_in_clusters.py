"""Planted bugs in the shell of a replica: each is caught by a world of three servers."""

import pytest

from simulator import proof
from simulator.planted.clusters import IN_CLUSTERS, caught

SEEDS = 40  # of the worlds that are aimed at a bug
# A seed that caught each when we last looked: tried first.
CAUGHT_BY = {
    "replies_before_the_commit": 1,
    "answers_what_is_open_when_it_steps_down": 5,
    "makes_checkpoints_of_what_is_only_durable": 1,
    "folds_before_the_commit": 18,
    "takes_a_followers_state_for_its_logs_end": 0,
    "acknowledges_before_its_disk_has_it": 76,
    "acknowledges_what_its_full_disk_did_not_take": 1,
    "opens_anew_while_its_disk_is_at_work": 10,
    "waits_until_tcp_sends_again": 6,
    "answers_without_a_round": 10,
    "begins_to_lead_with_permits_that_it_has_forgotten": 3,
    "compacts_by_what_is_only_durable": 107,
    "takes_a_disk_that_was_set_back_for_the_one_in_sync": 0,
}


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("bug", IN_CLUSTERS)
def test_a_bug_planted_in_a_replica_is_caught(bug: str) -> None:
    found = caught(bug, seeds=SEEDS, hint=CAUGHT_BY.get(bug))
    counts = {"planted": 1, "caught": int(found is not None)}
    proof.record(f"planted-in-clusters-{bug.replace('_', '-')}", "make test", counts)
    assert found is not None, f"{bug} was not caught within {SEEDS} seeds"
    print(f"{bug}: caught by seed {found[0]}: {found[1]}")


def test_every_hint_is_of_a_bug_that_is_planted() -> None:
    assert set(CAUGHT_BY) <= set(IN_CLUSTERS)
