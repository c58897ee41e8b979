"""Planted bugs: a promise no simulation ever saw broken is one no simulation tests."""

from pathlib import Path

import pytest
from msgspec import structs

from simulator import proof
from simulator.campaign import PLANTED_SEEDS, catch
from simulator.planted.aims import AIMS
from simulator.planted.planted import PLANTED, Unsynced
from simulator.schedule.options import options_of
from simulator.schedule.schedule import load, schedule_of
from simulator.world.simulation import run

# A seed that caught each, and in a moment, when we last looked (`python -m simulator.campaign
# planted` searches): tried first. One that catches no more is searched for again. Of a bug with
# worlds of its own (`simulator.planted.aims`) it is a seed of these.
CAUGHT_BY = {
    "sends_before_recording": 7,
    "forgets_before_the_receipt": 14,
    "numbers_a_retry_anew": 2,
    "takes_the_topic_id_from_another_slot": 96,
    "uses_new_numbers_before_they_are_on_disk": 16,
    "forgets_numbers_on_topics_that_are_there": 0,
    "takes_a_failed_record_for_sent": 236,
    "claims_without_recording": 54,
    "ignores_its_cursors": 15,
    "hands_out_before_recording": 15,
    "settles_though_fenced": 49,
    "settles_before_delivery": 0,
    "keeps_what_was_fetched_when_it_unsubscribes": 20,
    "listens_on_after_the_unsubscribe": 1,
    "takes_a_fetch_that_was_put_back": 3,
    "forgets_the_number_of_a_commit": 5,
    "shows_a_stage_before_its_commit": 5,
    "expires_what_was_published": 43,
    "moves_cursors_without_outputs": 3,
    "frees_a_published_stage": 15,
    "forgets_keys_on_recovery": 39,
    "forgets_owners_on_recovery": 1,
    "commits_the_cursor_before_the_effect": 5,
    "commits_though_another_process_took_over": 137,
    "believes_the_server_before_the_database": 131,
    "forgets_patterns_on_recovery": 0,
    "begins_a_new_topic_of_a_pattern_at_its_end": 0,
    "leaves_a_subscription_of_a_pattern_behind": 102,
    "takes_a_star_for_several_segments": 22,
    "takes_the_rest_for_one_segment": 0,
    "does_not_look_for_topics_that_are_there": 0,
    "deletes_a_topic_that_was_made_anew": 120,
    "passes_over_a_gap_of_the_feed": 4,
    "keeps_what_is_pushed_beside_what_was_pulled": 4,
    "hands_out_a_push_after_the_unsubscribe": 30,
    "ends_a_stage_that_lies_elsewhere_too": 105,
    "ends_a_stage_that_is_open": 1,
    "takes_other_rows_for_a_repeat": 1,
    "lets_a_bond_have_two_owners": 1,
    "forgets_what_was_committed_on_recovery": 1,
    "does_not_check_the_bond": 15,
    "forgets_bonds_on_recovery": 1,
    "takes_an_old_batch_for_published": 15,
    "accepts_a_gap_of_numbers": 1,
    "publishes_an_old_number_again": 6,
    "counts_only_the_last_part_of_a_commit": 1,
    "expires_a_stage_that_is_put_to": 5,
    "stores_what_was_sent_before_a_resume": 72,
    "gives_messages_before_their_subscription_is_durable": 1,
    "takes_its_disk_for_full_for_good": 3,
    "believes_a_clock_that_is_set_forward": 0,
    "forgets_that_the_clock_was_set_forward": 8,
    "forgets_what_a_deleted_topic_had": 1,
    "ignores_the_renewal_of_a_lease": 54,
    "judges_what_is_required_before_its_commit": 133,
    "restores_without_raising_the_generation": 338,
    "does_not_compare_its_cursors": 68,
    "does_not_compare_its_numbers": 68,
    "does_not_compare_its_transactions": 168,
    "believes_the_database_of_before_the_server_went_back": 728,
    "keeps_its_cursor_when_a_loss_is_accepted": 8,
    "does_not_note_which_pattern_it_ended": 0,
    "forgets_a_cursor_that_another_one_replaces": 2,
    "hands_out_what_it_fetched_before_the_server_went_back": 6,
    "takes_an_answer_to_its_older_epoch_for_its_own": 0,
    "takes_another_branch_of_history_for_its_own": 32,
    "takes_not_leader_for_an_answer": 19,
    "trusts_a_leader_of_an_older_epoch": 59,
    "acks_before_sync": 0,
    "answers_a_duplicate_before_its_first_copy_is_durable": 2,
    "subscribes_before_sync": 2,
    "shows_messages_before_sync": 0,
    "ignores_a_failed_sync": 67,
    "syncs_again_after_a_failed_sync": 67,
    "skips_the_directory_sync": 1,
    "goes_on_before_a_full_segment_is_synced": 10,
    "trusts_a_recovered_tail": 0,
    "keeps_a_torn_tail": 19,
    "forgets_producers_on_recovery": 2,
    "publishes_a_checkpoint_before_its_log": 14,
    "compacts_before_cursors_are_durable": 1,
    "frees_unsettled_messages": 0,
    "accepts_an_old_epoch": 7,
    "grants_an_epoch_twice": 7,
    "accepts_another_payload": 26,
    "accepts_a_gap": 298,
    "discards_what_is_required": 3,
    "begins_a_subscription_with_old_messages": 4,
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


def test_each_aim_is_at_a_bug_that_is_planted() -> None:
    assert set(AIMS) <= set(PLANTED)


def test_a_bug_that_does_not_fit_the_code_any_more_is_not_taken_for_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One was "caught" for long by an attribute that its stand-in for a file did not have."""
    monkeypatch.delattr(Unsynced, "write")
    with pytest.raises(AssertionError, match="trusts_a_recovered_tail does not fit"):
        catch("trusts_a_recovered_tail", hint=CAUGHT_BY["trusts_a_recovered_tail"])


def test_a_server_that_refuses_for_want_of_room_for_good_is_found() -> None:
    """In the end who is refused for that asks again: the same schedule without the bug passes."""
    name = "a-subscribe-while-the-server-takes-its-disk-for-full.json"
    schedule = load(Path(__file__).parent.parent / "regress" / name)
    with PLANTED["takes_its_disk_for_full_for_good"]():
        findings = run(schedule).findings
    assert findings[0] == "stuck: nobody could subscribe and send what is recorded in time: w0"
    assert run(schedule).findings == []


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
