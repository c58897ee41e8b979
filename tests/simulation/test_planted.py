"""Planted bugs: a promise no simulation ever saw broken is one no simulation tests."""

import pytest
from msgspec import structs

from oncemq.testing import proof
from oncemq.testing.campaign import PLANTED_SEEDS, catch
from oncemq.testing.options import options_of
from oncemq.testing.planted import PLANTED
from oncemq.testing.schedule import schedule_of
from oncemq.testing.simulation import run

# The seed that caught each when we last looked (`python -m oncemq.testing.campaign planted`): tried
# first, for it takes long to find some of them. One that catches no more is searched for again.
CAUGHT_BY = {
    "shows_messages_before_sync": 2,
    "ignores_a_failed_sync": 67,
    "syncs_again_after_a_failed_sync": 67,
    "trusts_a_recovered_tail": 114,
    "keeps_a_torn_tail": 40,
    "compacts_before_cursors_are_durable": 81,
    "accepts_an_old_epoch": 7,
    "grants_an_epoch_twice": 7,
    "accepts_another_payload": 8,
    "accepts_a_gap": 298,
    "sends_before_recording": 7,
    "forgets_before_the_receipt": 547,
    "claims_without_recording": 34,
    "stores_what_was_sent_before_a_resume": 72,
    "gives_messages_before_their_subscription_is_durable": 392,
    "settles_though_fenced": 15,
    "keeps_what_was_fetched_when_it_unsubscribes": 20,
    "takes_a_fetch_that_was_put_back": 3,
    "commits_though_another_process_took_over": 137,
    "believes_the_server_before_the_database": 137,
    "hands_out_a_push_after_the_unsubscribe": 838,
}


# What a sink's staging protocol rests on, each found by the drivers of sinks alone.
STAGING = (
    "forgets_the_number_of_a_commit",
    "shows_a_stage_before_its_commit",
    "expires_a_stage_that_is_put_to",
    "frees_a_published_stage",
    "forgets_owners_on_recovery",
)


def test_there_are_at_least_sixteen() -> None:
    assert len(PLANTED) >= 16


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_caught(bug: str) -> None:
    found = catch(bug, hint=CAUGHT_BY.get(bug))
    counts = {"planted": 1, "caught": int(found is not None)}
    proof.record(f"planted-{bug.replace('_', '-')}", "make test", counts)
    assert found is not None, f"{bug} was not caught within {PLANTED_SEEDS} seeds"
    print(f"{bug}: caught by seed {found[0]}: {found[1]}")


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("bug", STAGING)
def test_drivers_of_sinks_alone_catch_what_staging_rests_on(bug: str) -> None:
    """Without the transactions and commits of other worlds."""
    for seed in (seed for seed in range(200) if options_of(seed).sinks):
        schedule = schedule_of(seed, structs.replace(options_of(seed), deals=0))
        with PLANTED[bug]():
            findings = run(schedule).findings
        if findings:
            assert run(schedule).findings == []
            return
    pytest.fail(f"no driver of a sink came to harm by {bug}")
