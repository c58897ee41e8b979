"""Worlds aimed at bugs that ordinary worlds meet too seldom.

A change of the shipped code shifts what becomes of every seed. A bug that one ordinary world in
hundreds shows is then missed, though nothing is wrong. So such a bug has worlds of its own: those
of all seeds, with some of the options set so that what the bug breaks happens often.

Law: an aimed world is drawn and judged like any other; it only has more of some things, and nothing
that hides them. At least one of thirty shows the bug, by a finding of the kinds that are named.
"""

from typing import NamedTuple

from msgspec import structs

from simulator.schedule.options import LISTENING, WorldOptions, options_of


class Aim(NamedTuple):
    """What sets the worlds of a bug apart."""

    options: dict[str, object]  # in place of those that the seed has
    shows: tuple[str, ...]  # kinds of findings, one of which tells of this bug


def _only(*faults: str, **options: object) -> dict[str, object]:
    """These faults alone, and of what some worlds have besides only what is named."""
    none = dict.fromkeys(("deals", "sinks", "wild", "required", "churn", "leases"), 0)
    return {"faults": faults, "inbox": False, "back": False, **none, **options}


MISSED = ("lost_prefix", "lost_middle", "lost_tail")
TOLD_LATE = ("went on",)  # who knew of lost history was not told

AIMS: dict[str, Aim] = {
    # Leases and keys have a time, and a clock that is set forward by hours or days passes over it.
    "believes_a_clock_that_is_set_forward": Aim(
        _only("clock_jump", mishaps=8, leases=20, deals=40), ("boundary", "changed", *MISSED)
    ),
    # The same, where the server restarts between the clock's step and the look at what is old.
    "forgets_that_the_clock_was_set_forward": Aim(
        _only("clock_jump", "server_kill", mishaps=14, deals=60, guests=1, chaos_ms=3_000),
        ("changed", "failed_but_delivered", "stuck"),  # stuck: the stage of a commit is gone
    ),
    "forgets_what_a_deleted_topic_had": Aim(
        _only("client_disk", wild=60, churn=25, deeds=0), ("duplicate",)
    ),
    "hands_out_a_push_after_the_unsubscribe": Aim(
        _only(
            LISTENING, "left_feed", mishaps=14, deeds=10, topics=3, chaos_ms=15_000, late_ms=1_500
        ),
        ("redelivered", "reordered", *MISSED),
    ),
    "listens_on_after_the_unsubscribe": Aim(
        _only(LISTENING, "moving", deeds=120, subscribers=3, chaos_ms=3_000), ("boundary",)
    ),
    "gives_messages_before_their_subscription_is_durable": Aim(
        _only("unsure_subscription", mishaps=5, deeds=10, subscribers=3, chaos_ms=8_000),
        ("boundary",),
    ),
    "trusts_a_recovered_tail": Aim(
        _only("recovered_cut", mishaps=10, deeds=5, chaos_ms=8_000),
        ("lost", "stuck", "changed_receipt", *MISSED),  # stuck: a publisher is beyond what is left
    ),
    "shows_messages_before_sync": Aim(
        _only("server_cut", "slow_disk", mishaps=14, deeds=120, chaos_ms=8_000),
        ("changed_receipt", "phantom", "redelivered", "broke"),
    ),
    "compacts_before_cursors_are_durable": Aim(
        _only(
            *("server_cut", "server_trap", "slow_disk"),
            mishaps=20,
            deeds=120,
            size_max=3_000,
            segment_bytes=8 << 10,
            checkpoint_records=15,
        ),
        ("broke", "lost", *MISSED),  # broke: what the log says it keeps is in no segment
    ),
    "does_not_note_which_pattern_it_ended": Aim(
        _only(back=True, leaving=True, wild=4, deeds=10, chaos_ms=8_000), TOLD_LATE
    ),
    "forgets_a_cursor_that_another_one_replaces": Aim(
        _only(back=True, leaving=True, wild=4, deeds=10, chaos_ms=8_000), ("redelivered",)
    ),
    "hands_out_what_it_fetched_before_the_server_went_back": Aim(
        _only(back=True, deeds=120, topics=1, subscribers=3, chaos_ms=3_000, delay_us=500),
        ("redelivered", "phantom", *MISSED),
    ),
    "takes_an_answer_to_its_older_epoch_for_its_own": Aim(
        _only("double", "reset", LISTENING, back=True, mishaps=80, deeds=80, chaos_ms=8_000),
        ("fenced",),
    ),
    "takes_another_branch_of_history_for_its_own": Aim(
        _only("client_kill", "server_kill", back=True, mishaps=8, deeds=40, chaos_ms=3_000),
        ("redelivered", "reordered", *MISSED),
    ),
}


def aimed(bug: str, seed: int) -> WorldOptions:
    """The world of a seed, as it is for this bug."""
    options = options_of(seed)
    return structs.replace(options, **AIMS[bug].options) if bug in AIMS else options
