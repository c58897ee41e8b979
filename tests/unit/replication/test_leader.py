"""A leader: whom it asks, what it sends, what it takes for committed, who is in sync."""

from collections.abc import Sequence

from msgspec import structs

from oncemq.protocol.names import LeaderEpoch, Micros, Serial, ServerId, ShardId
from oncemq.protocol.replicas.leader_epochs import EpochStart, LeaderEpochs
from oncemq.protocol.replicas.messages import (
    AnswerNumber,
    Appended,
    Cut,
    Life,
    Mismatch,
    Place,
    Stale,
)
from oncemq.replication.actions import (
    AskCoordinator,
    BeginEpoch,
    CommitTo,
    LeaderAction,
    SendFrames,
    SendToMember,
    ServeClients,
    StartRefill,
    StepDown,
)
from oncemq.replication.leader import Leader
from oncemq.replication.view import (
    SECOND,
    Ask,
    Expand,
    Propose,
    ReplicationLimits,
    Resign,
    ShardView,
    Shrink,
    Withdraw,
)

A, B, C = ServerId("a"), ServerId("b"), ServerId("c")
SHARD = ShardId(7)
LIVES = {name: Life(name.encode(), 1) for name in (A, B, C)}
VIEW = ShardView(4, A, LeaderEpoch(3), (A, B, C), frozenset((A, B, C)), None, LIVES)
TWO = structs.replace(VIEW, in_sync=frozenset((A, B)))
EARLIER = LeaderEpochs(
    [EpochStart(LeaderEpoch(1), Serial(1)), EpochStart(LeaderEpoch(2), Serial(6))]
)
BEGIN = Serial(11)


class Lead:
    """A leader of epoch 3 whose log ended at 10, and what its members say."""

    def __init__(self, view: ShardView = VIEW, *, is_proven: bool = True, kept_from: int = 1):
        self.now = Micros(0)
        self.numbers = 0
        self.view = view
        self.leader = Leader(
            A,
            SHARD,
            view,
            last=Serial(10),
            starts=LeaderEpochs(EARLIER.starts),
            commit=Serial(8),
            kept_from=Serial(kept_from),
            is_proven=is_proven,
            limits=ReplicationLimits(
                window_bytes=100,
                catch_up_bytes=30,
                append_bytes=70,
                ahead_bytes=50,
                turn_bytes=20,
                probe_bytes=10,
            ),
            now=self.now,
        )

    def begin(self) -> "Lead":
        self.leader.tick(self.now)
        self.leader.appended(BEGIN, self.now)
        self.leader.local_synced(BEGIN, self.now)
        return self

    def serve(self) -> "Lead":
        self.begin()
        for name in sorted(self.view.in_sync - {A}):
            self.says(name, 11)
        return self

    def _answered(self, life: Life) -> AnswerNumber:
        self.numbers += 1
        return AnswerNumber(life, self.numbers)

    def says(
        self, name: ServerId, synced: int, *, epoch: int = 3, life: Life | None = None, full=False
    ) -> Sequence[LeaderAction]:
        answered = self._answered(life or LIVES[name])
        serial = Serial(synced)
        message = Appended(SHARD, LeaderEpoch(epoch), serial, serial, full, answered)
        return self.leader.heard(name, message, self.now)

    def misses(
        self, name: ServerId, last: int, epoch: int, *starts: tuple[int, int]
    ) -> Sequence[LeaderAction]:
        tail = Place(Serial(last), LeaderEpoch(epoch), 5)
        table = tuple(EpochStart(LeaderEpoch(e), Serial(s)) for e, s in starts)
        answered = self._answered(LIVES[name])
        return self.leader.heard(
            name, Mismatch(SHARD, LeaderEpoch(3), tail, table, answered), self.now
        )

    def told(self, view: ShardView) -> Sequence[LeaderAction]:
        return self.leader.told(structs.replace(view, revision=view.revision + 1), self.now)

    def pass_time(self, seconds: float, *alive: ServerId, synced: int = 11) -> list[LeaderAction]:
        """Ticks of a tenth of a second, in which these members go on answering."""
        actions: list[LeaderAction] = []
        for _ in range(round(seconds * 10)):
            self.now = Micros(self.now + SECOND // 10)
            for name in alive:
                actions += self.says(name, synced)
            actions += self.leader.tick(self.now)
        return actions


def asks(actions: Sequence[LeaderAction]) -> list[Ask]:
    return [each.ask for each in actions if isinstance(each, AskCoordinator)]


# ------------------------------------------------------------------ the beginning


def test_a_leader_that_was_in_sync_all_the_time_begins_at_once() -> None:
    assert BeginEpoch(LeaderEpoch(3)) in Lead().leader.tick(Micros(0))


def test_a_leader_that_was_restarted_asks_one_member_in_sync_first() -> None:
    lead = Lead(is_proven=False)
    probes = [SendFrames(name, Serial(10), 10) for name in (B, C)]
    assert lead.leader.tick(Micros(0)) == probes
    assert BeginEpoch(LeaderEpoch(3)) in lead.says(B, 10)


def test_one_that_is_not_in_sync_cannot_say_that_nothing_is_lacking() -> None:
    lead = Lead(TWO, is_proven=False)
    assert BeginEpoch(LeaderEpoch(3)) not in lead.says(C, 10)


def test_a_longer_log_is_given_the_shard_and_nothing_is_cut() -> None:
    lead = Lead(is_proven=False)
    lead.leader.tick(lead.now)
    assert asks(lead.misses(B, 12, 2, (1, 1), (2, 6))) == [Resign(B)]
    assert BeginEpoch(LeaderEpoch(3)) not in lead.says(C, 10)


def test_a_newer_epoch_is_longer_than_more_records() -> None:
    lead = Lead(structs.replace(VIEW, leader_epoch=LeaderEpoch(4)), is_proven=False)
    tail = Place(Serial(7), LeaderEpoch(3), 5)
    starts = (EpochStart(LeaderEpoch(1), Serial(1)), EpochStart(LeaderEpoch(3), Serial(6)))
    message = Mismatch(SHARD, LeaderEpoch(4), tail, starts, AnswerNumber(LIVES[B], 1))
    assert asks(lead.leader.heard(B, message, lead.now)) == [Resign(B)]


# ------------------------------------------------------------------ the commit


def test_everybody_in_sync_has_to_sync_it() -> None:
    lead = Lead().begin()
    assert lead.says(B, 11) == []
    assert lead.says(C, 11) == [CommitTo(BEGIN), ServeClients()]


def test_what_the_leader_has_not_synced_is_not_committed() -> None:
    lead = Lead().serve()
    lead.leader.appended(Serial(12), lead.now)
    lead.says(B, 12)
    assert CommitTo(Serial(12)) not in lead.says(C, 12)
    assert lead.leader.local_synced(Serial(12), lead.now) == [CommitTo(Serial(12))]


def test_nothing_of_earlier_leaders_is_committed_before_the_own_first_record() -> None:
    lead = Lead()
    lead.leader.local_synced(Serial(10), lead.now)
    lead.says(B, 10)
    assert not any(isinstance(each, CommitTo) for each in lead.says(C, 10))


def test_answers_to_another_leader_do_not_count() -> None:
    lead = Lead().begin()
    lead.says(B, 11)
    assert lead.says(C, 11, epoch=2) == []
    assert lead.leader.commit == 8


def test_a_directory_that_was_replaced_counts_for_nothing() -> None:
    lead = Lead(TWO).begin()
    lead.says(B, 11, life=Life(b"new", 1))
    assert lead.leader.commit == 8
    assert lead.says(B, 11) == []  # a late answer of the one that is gone
    assert lead.leader.commit == 8


def test_too_few_in_sync_commit_nothing() -> None:
    lead = Lead(structs.replace(VIEW, in_sync=frozenset((A,)))).begin()
    assert lead.leader.commit == 8
    assert "needs 2 servers" in str(lead.leader.refusal(lead.now)) or not lead.leader.is_serving


# ------------------------------------------------------------------ the in-sync set


def test_a_member_that_lags_is_waited_for_until_it_has_left() -> None:
    lead = Lead().serve()
    lead.leader.appended(Serial(12), lead.now)
    lead.leader.local_synced(Serial(12), lead.now)
    assert asks(lead.pass_time(1.5, B, synced=12)) == []
    actions = lead.pass_time(1.0, B, synced=12)
    assert asks(actions)[0] == Shrink(frozenset((C,)))
    assert lead.leader.commit == 11
    assert CommitTo(Serial(12)) in lead.told(TWO)


def test_a_member_returns_in_two_steps_and_is_waited_for_from_the_first() -> None:
    lead = Lead(TWO).serve()
    proposal = asks(lead.says(C, 11))
    assert proposal == [Propose(C, b"c")]
    proposed = structs.replace(TWO, proposed=C)
    lead.leader.appended(Serial(12), lead.now)
    assert asks(lead.told(proposed)) == [Expand(C, b"c")]
    lead.leader.local_synced(Serial(12), lead.now)
    lead.says(B, 12)
    assert lead.leader.commit == 11
    lead.says(C, 12)
    assert lead.leader.commit == 12


def test_a_member_without_what_the_epoch_began_with_does_not_enter() -> None:
    lead = Lead(structs.replace(TWO, proposed=C)).begin()
    assert asks(lead.says(C, 10)) == []  # the commit that is known here is 8
    assert asks(lead.says(C, 11)) == [Expand(C, b"c")]


def test_a_proposed_member_that_falls_behind_is_withdrawn() -> None:
    lead = Lead(structs.replace(TWO, proposed=C)).begin()
    assert Withdraw() in asks(lead.pass_time(2.5, B))


def test_an_ask_without_an_answer_is_repeated_as_it_was() -> None:
    lead = Lead().serve()
    repeated = asks(lead.pass_time(5, B))
    assert len(repeated) > 1
    assert set(repeated) == {Shrink(frozenset((C,)))}


def test_a_leader_that_hears_nobody_gives_the_shard_to_one_that_may() -> None:
    lead = Lead().serve()
    assert asks(lead.pass_time(3))[0] == Resign(C)


def test_a_leader_that_hears_somebody_does_not() -> None:
    lead = Lead(TWO).serve()
    assert Resign(B) not in asks(lead.pass_time(5, C, synced=4))


def test_a_leader_whose_own_disk_hangs_gives_the_shard_to_one_whose_disk_has_more() -> None:
    """It answered and was answered, so nobody took over while its disk hung."""
    lead = Lead().serve()
    lead.leader.appended(Serial(12), lead.now)
    assert asks(lead.pass_time(2.9, B, C, synced=12)) == []
    assert asks(lead.pass_time(0.1, B, C, synced=12)) == [Resign(C)]


def test_where_all_disks_are_slow_leaders_do_not_change_for_that() -> None:
    lead = Lead(TWO).serve()
    lead.leader.appended(Serial(12), lead.now)
    assert asks(lead.pass_time(20, B)) == []


def test_a_leader_that_stood_still_does_not_give_up_for_its_disk() -> None:
    lead = Lead().serve()
    lead.leader.appended(Serial(12), lead.now)
    lead.now = Micros(30 * SECOND)
    assert asks(lead.leader.tick(lead.now)) == []
    assert asks(lead.pass_time(0.1, B, C, synced=12)) == []


def test_a_leader_whose_message_still_arrives_does_not_give_the_shard_away() -> None:
    """A message of 15 MB needs 3 s to two servers at 100 Mbit/s: leaders changed for ever."""
    lead = Lead().serve()
    for _ in range(50):
        lead.leader.takes_in(B, lead.now)
        lead.leader.takes_in(ServerId("nobody"), lead.now)
        assert not [each for each in asks(lead.pass_time(0.1)) if isinstance(each, Resign)]
    assert Resign(B) in asks(lead.pass_time(3))


def test_a_leader_that_stood_still_blames_nobody() -> None:
    lead = Lead().serve()
    lead.now = Micros(30 * SECOND)
    assert asks(lead.leader.tick(lead.now)) == []


def test_a_full_disk_leaves_or_is_the_leaders_refusal() -> None:
    assert asks(Lead().serve().says(B, 11, full=True)) == [Shrink(frozenset((B,)))]
    lead = Lead(TWO).serve()
    assert Shrink(frozenset((B,))) not in asks(lead.says(B, 11, full=True))
    assert "the disk of b is full" in str(lead.leader.refusal(lead.now))


def test_what_waits_too_long_is_refused_in_words() -> None:
    lead = Lead(TWO).serve()
    assert lead.leader.refusal(lead.now) is None
    lead.leader.appended(Serial(12), lead.now)
    lead.pass_time(4)
    assert "waits for b" in str(lead.leader.refusal(lead.now))


def test_a_server_that_drains_gives_the_shard_away_when_all_is_committed() -> None:
    lead = Lead().serve()
    lead.leader.drain()
    assert "another server" in str(lead.leader.refusal(lead.now))
    assert asks(lead.pass_time(0.1, B, C))[0] == Resign(B)


def test_that_another_is_to_lead_is_no_want_of_disks() -> None:
    """Who asks is sent there; a put was refused as if the disks were full."""
    lead = Lead().serve()
    lead.leader.drain()
    assert lead.leader.gives_up(lead.now)
    assert lead.leader.lacks(lead.now) is None


def test_an_operators_wish_to_drain_comes_without_a_new_revision_of_the_shard() -> None:
    """It is a value of its own at the coordinator; the leader passed over it."""
    lead = Lead().serve()
    lead.leader.told(structs.replace(VIEW, draining=frozenset((A, B))), lead.now)
    assert asks(lead.pass_time(0.1, B, C))[0] == Resign(C)
    lead.leader.told(VIEW, lead.now)
    assert lead.leader.refusal(lead.now) is None


def test_a_leader_that_hears_nobody_asks_each_in_turn_until_one_can() -> None:
    """After a refusal of each it waited ten seconds, though both had a lease again at once."""
    lead = Lead().serve()
    found: list[Ask] = []
    for _ in range(59):
        for ask in asks(lead.pass_time(0.1)):
            found.append(ask)
            lead.leader.refused(lead.view.revision)
    assert found == [Resign(C), Resign(B), Resign(C), Resign(B)]


def test_a_member_that_says_nothing_to_a_new_leader_leaves_after_a_second() -> None:
    lead = Lead().begin()
    assert asks(lead.pass_time(1, B)) == []
    assert asks(lead.pass_time(0.1, B)) == [Shrink(frozenset((C,)))]


def test_one_that_says_something_has_the_usual_time_to_catch_up() -> None:
    lead = Lead().begin()
    lead.says(C, 10)
    assert asks(lead.pass_time(2, B)) == []
    assert asks(lead.pass_time(0.1, B)) == [Shrink(frozenset((C,)))]


def test_members_that_say_nothing_to_a_new_leader_stay_where_too_few_would_be_left() -> None:
    assert asks(Lead().begin().pass_time(2)) == []
    assert asks(Lead(TWO).begin().pass_time(2)) == []


def test_a_round_is_asked_without_frames_of_all_that_a_commit_waits_for() -> None:
    lead = Lead(TWO).serve()
    lead.leader.appended(Serial(20), lead.now)
    (asked,) = lead.leader.confirm(lead.now)
    assert asked == SendFrames(B, BEGIN, 0)


def test_how_each_member_is_is_told_in_milliseconds() -> None:
    lead = Lead(TWO).serve()
    lead.now = Micros(5 * SECOND)
    told = {each.name: each.facts for each in lead.leader.standings(lead.now)}
    assert (told[B]["heard_ms"], told[B]["caught_up_ms"]) == (5_000, 5_000)
    assert (told[C]["heard_ms"], told[C]["caught_up_ms"]) == (5_000, -1)


# ------------------------------------------------------------------ the others' logs


def test_frames_follow_each_other_up_to_a_limit_of_bytes() -> None:
    lead = Lead(TWO).serve()
    sends = lead.leader.appended(Serial(20), lead.now)
    assert SendFrames(B, BEGIN, 70) in sends  # in pieces: it syncs one while the next one comes
    more = lead.leader.sent(B, Serial(15), 60, lead.now)
    assert more == [SendFrames(B, Serial(15), 40)]
    assert lead.leader.sent(B, Serial(18), 50, lead.now) == []
    assert SendFrames(B, Serial(18), 50) in lead.says(B, 15)


def test_much_that_waits_for_a_group_is_sent_before_it_is_taken_and_a_little_is_not() -> None:
    lead = Lead(TWO).serve()
    assert lead.leader.gathers(Serial(12), 49, lead.now) == []
    assert SendFrames(B, BEGIN, 70) in lead.leader.gathers(Serial(13), 50, lead.now)
    lead.leader.sent(B, Serial(13), 50, lead.now)
    assert lead.leader.gathers(Serial(13), 50, lead.now) == []
    assert lead.says(B, 13) == []  # on its disk, and not on the leader's
    assert CommitTo(Serial(13)) in lead.leader.local_synced(Serial(13), lead.now)


def test_who_catches_up_is_sent_little_at_a_time_until_commits_wait_for_it() -> None:
    lead = Lead(TWO).serve()
    lead.now = Micros(SECOND)
    assert SendFrames(C, Serial(10), 30) in lead.says(C, 10)
    assert lead.leader.sent(C, BEGIN, 20, lead.now) == []
    lead.leader.appended(Serial(14), lead.now)
    lead.told(structs.replace(TWO, proposed=C))
    assert SendFrames(C, BEGIN, 70) in lead.says(C, 11)


def test_frames_that_do_not_leave_are_tried_again_at_a_heartbeat_and_not_at_each_record() -> None:
    """They are read for it: a member that is away costs clients nothing."""
    lead = Lead(TWO).serve()
    lead.now = Micros(SECOND)
    assert SendFrames(C, Serial(10), 30) in lead.says(C, 10)
    lead.leader.unsent(C)
    assert frames_to(C, lead.leader.appended(Serial(12), lead.now)) == []
    lead.now = Micros(lead.now + SECOND // 5)
    assert frames_to(C, lead.leader.tick(lead.now)) == [SendFrames(C, Serial(10), 30)]
    assert frames_to(C, lead.leader.appended(Serial(13), lead.now)) == []
    assert frames_to(C, lead.leader.reconnected(C, lead.now)) == [SendFrames(C, Serial(10), 10)]


def test_who_took_frames_again_gets_them_with_each_record() -> None:
    lead = Lead(TWO).serve()
    lead.leader.unsent(B)
    assert frames_to(B, lead.leader.appended(Serial(12), lead.now)) == []
    lead.leader.sent(B, Serial(12), 5, lead.now)
    assert frames_to(B, lead.leader.appended(Serial(13), lead.now)) != []
    lead.leader.unsent(B)
    assert frames_to(B, lead.says(B, 12)) != []


class CatchingUp(Lead):
    """A leader whose clients put, and C, which has 10 of 30 records."""

    def __init__(self) -> None:
        super().__init__(TWO)
        self.serve()
        self.now = Micros(SECOND)
        self.leader.appended(Serial(30), self.now, size=19)
        self.first = self.says(C, 10)

    def turn(self, first: int, last: int, *, millis: int, grows: int = 0) -> Sequence[LeaderAction]:
        """C is sent 20 bytes, and has them so much later, when the log has so many more."""
        assert self.leader.sent(C, Serial(last), 20, self.now) == []
        self.now = Micros(self.now + millis * 1_000)
        if grows:
            self.leader.appended(Serial(self.leader.last + 1), self.now, size=grows)
        return self.says(C, last)

    def after(self, millis: float) -> Sequence[LeaderAction]:
        self.now = Micros(self.now + int(millis * 1_000))
        return [each for each in self.leader.sends(self.now) if isinstance(each, SendFrames)]


def frames_to(member: ServerId, actions: Sequence[LeaderAction]) -> list[SendFrames]:
    return [each for each in actions if isinstance(each, SendFrames) and each.member == member]


def test_while_clients_put_who_catches_up_rests_as_long_as_each_piece_took() -> None:
    lead = CatchingUp()
    assert frames_to(C, lead.first) == [SendFrames(C, Serial(10), 20)]
    assert frames_to(C, lead.turn(10, 12, millis=8)) == []
    assert lead.leader.next_deadline(lead.now) == lead.now + 8_000
    assert frames_to(C, lead.after(7)) == []
    assert frames_to(C, lead.after(1)) == [SendFrames(C, Serial(12), 20)]
    assert lead.leader.next_deadline(lead.now) is None


def test_nobody_rests_for_long() -> None:
    lead = CatchingUp()
    lead.turn(10, 12, millis=90)
    assert lead.leader.next_deadline(lead.now) == lead.now + 50_000


def test_when_nobody_puts_any_more_who_catches_up_goes_on_at_once() -> None:
    lead = CatchingUp()
    found = lead.turn(10, 12, millis=100)
    assert frames_to(C, found) == [SendFrames(C, Serial(12), 30)]
    assert lead.leader.next_deadline(lead.now) is None


def test_who_hardly_gains_on_the_log_does_not_rest() -> None:
    lead = CatchingUp()
    found = lead.turn(10, 12, millis=8, grows=11)
    assert frames_to(C, found) == [SendFrames(C, Serial(12), 30)]
    lead = CatchingUp()
    assert frames_to(C, lead.turn(10, 12, millis=8, grows=10)) == []


def test_whom_commits_wait_for_never_rests() -> None:
    lead = CatchingUp()
    lead.turn(10, 12, millis=8)
    sends = lead.told(structs.replace(TWO, proposed=C))
    assert frames_to(C, sends) == [SendFrames(C, Serial(12), 70)]


def test_what_a_member_does_not_answer_is_asked_after_and_sent_again() -> None:
    lead = Lead(TWO).serve()
    lead.leader.appended(Serial(12), lead.now)
    lead.leader.sent(B, Serial(12), 9, lead.now)
    assert SendFrames(B, BEGIN, 0) in lead.pass_time(1.2)
    assert SendFrames(B, BEGIN, 70) in lead.says(B, 11)


def test_a_log_that_parts_is_cut_where_the_epochs_say() -> None:
    lead = Lead().begin()
    actions = lead.misses(B, 12, 1, (1, 1))
    cut = Cut(SHARD, LeaderEpoch(3), Place(Serial(12), LeaderEpoch(1), 5), Serial(5))
    assert actions == [SendToMember(B, cut)]
    assert lead.misses(B, 5, 1, (1, 1)) == [SendFrames(B, Serial(5), 10)]


def test_who_is_behind_what_is_kept_as_frames_gets_files() -> None:
    lead = Lead(TWO, kept_from=9).begin()
    tail = Place(Serial(4), LeaderEpoch(1), 5)
    assert lead.misses(C, 4, 1, (1, 1)) == [StartRefill(C, tail)]
    assert lead.misses(C, 4, 1, (1, 1)) == []
    assert lead.leader.refill_ended(C) == []
    assert SendFrames(C, Serial(8), 10) in lead.leader.tick(lead.now)


def test_a_new_connection_is_asked_at_once_where_the_member_is() -> None:
    lead = Lead(TWO).begin()
    lead.says(B, 11)
    for _ in range(2):  # though it was asked just now, on the one before
        assert lead.leader.reconnected(B, lead.now) == [SendFrames(B, BEGIN, 10)]
    assert lead.leader.reconnected(ServerId("nobody"), lead.now) == []


def test_a_member_that_is_filled_hears_on_a_new_connection_where_to_ask() -> None:
    """It asked on the one before, and began anew after ten seconds."""
    lead = Lead(TWO, kept_from=9).serve()
    lead.misses(C, 4, 1, (1, 1))
    assert lead.leader.reconnected(C, lead.now) == [SendFrames(C, Serial(8), 0)]


# ------------------------------------------------------------------ the end


def test_a_higher_epoch_ends_it() -> None:
    lead = Lead().serve()
    stale = Stale(SHARD, LeaderEpoch(3), LeaderEpoch(5))
    (step,) = lead.leader.heard(B, stale, lead.now)
    assert isinstance(step, StepDown)
    other = structs.replace(VIEW, leader=B, leader_epoch=LeaderEpoch(4))
    (step,) = lead.told(other)
    assert step == StepDown("b leads epoch 4 of shard 7")
    assert lead.leader.challenged(LeaderEpoch(3)) == []


def test_an_older_view_is_passed_over() -> None:
    lead = Lead().serve()
    old = structs.replace(VIEW, revision=2, leader=C, leader_epoch=LeaderEpoch(2))
    assert lead.leader.told(old, lead.now) == []


def test_a_directory_that_was_taken_for_gone_is_back_when_the_other_is_silent() -> None:
    lead = Lead(TWO).begin()
    new = Life(b"new", 1)
    lead.says(C, 4, life=new)
    lead.says(C, 9)  # late: of the directory that was there before
    assert asks(lead.says(C, 11, life=new)) == []
    lead.pass_time(3, B)
    assert asks(lead.says(C, 11, life=new)) == [Propose(C, b"new")]


def test_a_leader_whose_questions_nobody_answers_says_whom_it_waits_for() -> None:
    lead = Lead(TWO).serve()
    lead.leader.confirm(lead.now)
    lead.pass_time(2.9, C)
    assert lead.leader.stalls(lead.now) is None
    lead.pass_time(0.1, C)
    why = lead.leader.stalls(lead.now)
    assert why is not None
    assert "needs 2 servers that store and waits for b" in why


def test_a_leader_whose_records_nobody_syncs_says_whom_it_waits_for() -> None:
    lead = Lead(TWO).serve()
    lead.pass_time(5, B, C)
    assert lead.leader.stalls(lead.now) is None
    lead.leader.appended(Serial(12), lead.now)
    lead.leader.local_synced(Serial(12), lead.now)
    lead.pass_time(3, B, C)
    assert "waits for b" in (lead.leader.stalls(lead.now) or "")
    lead.says(B, 12)
    assert lead.leader.stalls(lead.now) is None
