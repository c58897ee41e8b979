"""A replica that leads: what it sends and when, what it commits, whom it answers."""

import pytest
from msgspec import structs

from oncemq.cluster import leading as leading_module
from oncemq.cluster.replica_directory import link, place
from oncemq.errors import Corrupt
from oncemq.protocol.limits import ServerLimits
from oncemq.protocol.names import Epoch, LeaderEpoch, Micros, Serial
from oncemq.protocol.replicas.messages import (
    AnswerNumber,
    Append,
    Cut,
    Mismatch,
    Place,
    Stale,
)
from oncemq.protocol.replies import (
    Messages,
    RefusedReply,
    StatusReport,
    Subscribed,
    TopicList,
)
from oncemq.protocol.requests import (
    Get,
    ListTopics,
    Start,
    StatusRequest,
    Subscribe,
)
from oncemq.replication.actions import SendFrames
from oncemq.replication.view import SECOND, Propose, ReplicationLimits, Resign, Shrink
from oncemq.server.driver import Driver
from oncemq.wire.codec import encode_request
from tests.harness.agreement import A, B, C
from tests.harness.leading import EPOCH, LIVES, VIEW, LeadingServer
from tests.harness.replica_logs import SHARD, LeaderLog, topics
from tests.harness.replicas import epoch_starts
from tests.harness.server import GUEST

SUBSCRIBE = Subscribe(GUEST, Epoch(0), "t9", Start())
BEGIN = 4  # behind EpochBegan of epoch 1, and two topics


@pytest.fixture
def server() -> LeadingServer:
    return LeadingServer()


@pytest.fixture
def serving(server: LeadingServer) -> LeadingServer:
    return server.serve()


# ------------------------------------------------------------------ the beginning


def test_it_begins_with_a_record_of_its_epoch_and_asks_every_member(server: LeadingServer) -> None:
    before = server.directory.tail
    server.leading.begin(server.now)
    assert server.directory.epochs().starts == epoch_starts((1, 1), (4, BEGIN))
    heads = [(name, message) for name, message, _ in server.take_sent()]
    append = Append(SHARD, EPOCH, before, 1, Serial(0))
    assert heads == [(B, append), (C, append)]
    assert server.directory.log.durable_serial == BEGIN - 1
    assert server.leading.driver is None


def test_who_has_to_ask_first_writes_nothing_before_it_was_answered() -> None:
    server = LeadingServer(is_proven=False)
    server.leading.begin(server.now)
    assert server.leading.commit(server.now) is None
    assert server.directory.log.last_serial == BEGIN - 1
    server.has(C, BEGIN - 1)
    assert server.directory.log.last_serial == BEGIN


def test_clients_are_let_in_when_all_in_sync_have_its_first_record(server: LeadingServer) -> None:
    server.leading.begin(server.now)
    server.write()
    server.has(B, BEGIN)
    assert server.leading.driver is None
    assert topics(server.directory) == []  # of earlier leaders: not known to be committed
    server.has(C, BEGIN)
    assert server.leading.driver is not None
    assert server.rules.commit == BEGIN
    assert topics(server.directory) == [1, 2]


def test_clients_are_not_let_in_before_it_is_on_the_own_disk(server: LeadingServer) -> None:
    server.leading.begin(server.now)
    group = server.leading.commit(server.now)
    server.has(B, BEGIN)
    server.has(C, BEGIN)
    assert server.leading.driver is None
    assert group is not None
    server.directory.log.write(group)
    server.leading.written(group, server.now)
    assert server.leading.driver is not None


# ------------------------------------------------------------------ frames and commits


def test_a_group_is_sent_when_it_is_taken_and_before_it_is_on_the_disk(
    serving: LeadingServer,
) -> None:
    before = serving.directory.tail
    serving.ask(SUBSCRIBE)
    group = serving.leading.commit(serving.now)
    assert group is not None
    log = serving.directory.log
    assert log.durable_serial == before.serial
    count = log.last_serial - before.serial
    append = Append(SHARD, EPOCH, before, count, Serial(BEGIN))
    (to_b, first, frames), (to_c, second, copy) = serving.take_sent()
    assert ((to_b, first), (to_c, second)) == ((B, append), (C, append))
    assert place(log.check_frames(frames, link(before)).last) == serving.directory.tail
    assert copy == frames


def test_much_that_is_asked_while_a_group_is_written_is_sent_at_once_and_once() -> None:
    serving = LeadingServer(limits=ReplicationLimits(ahead_bytes=1)).serve()
    serving.ask(SUBSCRIBE)
    first = serving.leading.commit(serving.now)
    before = serving.directory.tail
    serving.take_sent()
    serving.ask(structs.replace(SUBSCRIBE, topic="t8"))
    serving.leading.send_ahead(serving.now)
    serving.leading.send_ahead(serving.now)
    last = serving.directory.log.last_serial
    append = Append(SHARD, EPOCH, before, last - before.serial, Serial(BEGIN))
    assert [(name, head) for name, head, _ in serving.take_sent()] == [(B, append), (C, append)]
    for name in (B, C):
        serving.has(name, last)
    assert serving.rules.commit == BEGIN  # on their disks, and not on this one
    assert first is not None
    serving.directory.log.write(first)
    serving.leading.written(first, serving.now)
    serving.write()
    assert (serving.take_sent(), serving.rules.commit) == ([], last)


def test_a_little_that_is_asked_while_a_group_is_written_leaves_with_its_own(
    serving: LeadingServer,
) -> None:
    serving.ask(SUBSCRIBE)
    serving.leading.commit(serving.now)
    serving.take_sent()
    serving.ask(structs.replace(SUBSCRIBE, topic="t8"))
    serving.leading.send_ahead(serving.now)
    assert serving.take_sent() == []


def test_who_stepped_down_sends_nothing_ahead() -> None:
    serving = LeadingServer(limits=ReplicationLimits(ahead_bytes=1)).serve()
    serving.ask(SUBSCRIBE)
    serving.says(B, Stale(SHARD, EPOCH, LeaderEpoch(5)))
    serving.leading.send_ahead(serving.now)
    assert serving.take_sent() == []


def test_an_answer_with_a_record_leaves_when_all_in_sync_have_it(serving: LeadingServer) -> None:
    token = serving.ask(SUBSCRIBE)
    serving.write()
    last = serving.directory.log.last_serial
    serving.has(B, last)
    assert serving.answers() == {}
    serving.has(C, last)
    assert isinstance(serving.answers()[token], Subscribed)


def test_what_does_not_leave_is_sent_again(serving: LeadingServer) -> None:
    before = serving.directory.tail
    serving.reached = {B}
    serving.ask(SUBSCRIBE)
    serving.write()
    assert [name for name, _, _ in serving.take_sent()] == [B]
    serving.reached = {B, C}
    serving.now = Micros(serving.now + SECOND)
    serving.leading.tick(serving.now)
    to_c = [message for name, message, frames in serving.take_sent() if name == C and frames]
    assert [each.previous for each in to_c if isinstance(each, Append)] == [before]


def test_for_who_is_not_reached_nothing_is_read_with_each_record(
    serving: LeadingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    serving.reached = {B}
    read: list[int] = []
    log = serving.directory.log
    frames_after = log.frames_after

    def counted(serial: int, bytes_max: int) -> object:
        read.append(serial)
        return frames_after(serial, bytes_max)

    monkeypatch.setattr(log, "frames_after", counted)
    first = log.last_serial
    for number in range(3):
        serving.ask(structs.replace(SUBSCRIBE, topic=f"new{number}"))
        serving.write()
    assert read.count(first) == 2  # once for B, and once for C
    assert len(read) == 4


def test_a_new_connection_is_asked_where_the_member_is(serving: LeadingServer) -> None:
    serving.leading.reconnected(B, serving.now)
    probe = Append(SHARD, EPOCH, serving.directory.tail, 0, Serial(BEGIN))
    assert serving.take_sent() == [(B, probe, b"")]


def test_a_log_that_parts_is_told_where_to_cut(serving: LeadingServer) -> None:
    tail = Place(Serial(9), LeaderEpoch(2), 77)
    answered = AnswerNumber(LIVES[B], 1_000)
    serving.says(B, Mismatch(SHARD, EPOCH, tail, epoch_starts((1, 1), (2, 3)), answered))
    assert (B, Cut(SHARD, EPOCH, tail, Serial(2)), b"") in serving.take_sent()


@pytest.mark.parametrize("bytes_max", [0, 10])
def test_what_was_compacted_away_is_not_sent_as_frames(
    serving: LeadingServer, monkeypatch: pytest.MonkeyPatch, bytes_max: int
) -> None:
    for name in ("frames_after", "place_of"):
        monkeypatch.setattr(serving.directory.log, name, lambda *_: None)
    serving.leading.do([SendFrames(B, Serial(2), bytes_max)], serving.now)
    assert serving.take_sent() == []


def test_what_is_wanted_of_the_coordinator_is_asked(serving: LeadingServer) -> None:
    serving.has(B, BEGIN, is_full=True)
    assert serving.asked == [(Shrink(frozenset((B,))), VIEW.revision)]


def test_a_member_that_comes_near_is_proposed() -> None:
    two = structs.replace(VIEW, in_sync=frozenset((A, B)))
    server = LeadingServer(view=two)
    server.leading.begin(server.now)
    server.all_have()
    assert (Propose(C, b"c"), VIEW.revision) in server.asked


# ------------------------------------------------------------------ rounds


def rounds(server: LeadingServer) -> list[tuple[str, int]]:
    """Whom it asked in which round since this was last asked."""
    return [
        (name, message.round)
        for name, message, _ in server.take_sent()
        if isinstance(message, Append)
    ]


def test_an_answer_without_a_record_waits_until_all_say_that_it_leads(
    serving: LeadingServer,
) -> None:
    token = serving.ask(ListTopics())
    assert (serving.answers(), rounds(serving)) == ({}, [])
    serving.leading.ask_round(serving.now)
    assert sorted(rounds(serving)) == [(B, 1), (C, 1)]
    serving.has(B, BEGIN, round=1)
    assert serving.answers() == {}
    serving.has(C, BEGIN, round=1)
    assert isinstance(serving.answers()[token], TopicList)


def test_answers_of_one_turn_share_a_round_and_the_next_ones_have_the_next(
    serving: LeadingServer,
) -> None:
    first, second = serving.ask(ListTopics()), serving.ask(ListTopics())
    serving.leading.ask_round(serving.now)
    third = serving.ask(ListTopics())
    serving.leading.ask_round(serving.now)  # one is under way
    assert sorted(rounds(serving)) == [(B, 1), (C, 1)]
    serving.has(B, BEGIN, round=1)
    serving.has(C, BEGIN, round=1)
    assert serving.answers().keys() == {first, second}
    serving.leading.ask_round(serving.now)
    assert sorted(rounds(serving)) == [(B, 2), (C, 2)]
    serving.has(B, BEGIN, round=2)
    serving.has(C, BEGIN, round=1)
    assert serving.answers() == {}
    serving.has(C, BEGIN, round=2)
    assert serving.answers().keys() == {third}


def test_no_round_is_asked_when_nobody_waits(serving: LeadingServer) -> None:
    serving.leading.ask_round(serving.now)
    assert rounds(serving) == []
    assert serving.rules.rounds.newest == 0


def test_a_refusal_waits_for_a_round_as_well(serving: LeadingServer) -> None:
    token = serving.ask(Get(GUEST, Epoch(0), "nothing", (), -1, 1, 1, 0))
    serving.leading.receive(b"client", [b"no message"], serving.now)
    assert serving.answers() == {}
    serving.leading.ask_round(serving.now)
    for name in (B, C):
        serving.has(name, BEGIN, round=1)
    answers = serving.answers()
    assert isinstance(answers[token], RefusedReply)
    assert len(answers) == 2


def test_a_long_poll_that_is_over_waits_for_a_round(serving: LeadingServer) -> None:
    subscribed = serving.ask(Subscribe(GUEST, Epoch(0), "t1", Start()))
    serving.all_have()
    assert subscribed in serving.answers()
    token = serving.ask(Get(GUEST, Epoch(0), "t1", (), -1, 1, 1, 500))
    serving.now = Micros(serving.now + SECOND)
    serving.leading.tick_clients(serving.now)
    assert serving.answers() == {}
    serving.leading.ask_round(serving.now)
    for name in (B, C):
        serving.has(name, serving.rules.commit, round=1)
    answer = serving.answers()[token]
    assert isinstance(answer, Messages)
    assert answer.batches == ()


def test_a_status_is_answered_at_once_and_nothing_else_with_it(serving: LeadingServer) -> None:
    serving.ask(ListTopics())
    serving.leading.tell_of_itself(b"client", encode_request(99, StatusRequest()), serving.now)
    answers = serving.answers()
    assert answers.keys() == {99}
    assert isinstance(answers[99], StatusReport)


def test_nothing_waits_before_clients_are_let_in(server: LeadingServer) -> None:
    server.leading.begin(server.now)
    server.leading.tick_clients(server.now)
    server.leading.ask_round(server.now)
    assert (server.leading.outgoing, server.rules.rounds.newest) == ([], 0)


# ------------------------------------------------------------------ limits


def test_it_is_full_while_too_much_waits_for_a_round(
    serving: LeadingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leading_module, "HELD_BYTES_MAX", 1)
    assert not serving.leading.is_full
    serving.ask(ListTopics())
    assert serving.leading.is_full
    serving.leading.ask_round(serving.now)
    assert serving.leading.is_full
    for name in (B, C):
        serving.has(name, BEGIN, round=1)
    assert len(serving.answers()) == 1
    assert not serving.leading.is_full


def test_it_is_full_while_too_much_waits_for_the_disk(serving: LeadingServer) -> None:
    driver = serving.leading.driver
    assert driver is not None
    driver.broker.rules = ServerLimits(held_answers_max=1)
    assert not serving.leading.is_full
    serving.ask(SUBSCRIBE)
    assert serving.leading.is_full


def test_it_is_not_full_before_clients_are_let_in(server: LeadingServer) -> None:
    assert not server.leading.is_full


# ------------------------------------------------------------------ damage, compaction


def test_what_was_compacted_meanwhile_is_known_at_the_next_tick(
    serving: LeadingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(serving.directory.log), "kept_from", property(lambda _: Serial(3)))
    serving.leading.tick(serving.now)
    assert serving.rules.kept_from == 3


def test_damage_that_is_met_anywhere_is_said_the_first_of_it(serving: LeadingServer) -> None:
    serving.directory.log.reclaiming.damage = "a segment"
    serving.leading.tick(serving.now)
    assert serving.leading.driver is not None
    serving.leading.driver.damage = "another"
    serving.leading.tick(serving.now)
    assert (serving.leading.damage, serving.leading.is_unusable) == ("a segment", False)


def test_damage_that_a_reader_met_is_said(serving: LeadingServer) -> None:
    assert serving.leading.driver is not None
    serving.leading.driver.damage = "a batch"
    serving.leading.tick(serving.now)
    assert serving.leading.damage == "a batch"


def test_damaged_frames_are_not_sent(
    serving: LeadingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def damaged(*_: object) -> None:
        raise Corrupt("a frame")

    monkeypatch.setattr(serving.directory.log, "frames_after", damaged)
    serving.leading.do([SendFrames(B, Serial(2), 10)], serving.now)
    assert (serving.take_sent(), serving.leading.damage) == ([], "a frame")


def test_who_lacks_messages_that_are_kept_lets_nobody_in(
    server: LeadingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def damaged(_now: Micros) -> Driver:
        raise Corrupt("a hole")

    monkeypatch.setattr(server.leading, "_serve", damaged)
    server.leading.begin(server.now)
    server.all_have()
    assert (server.leading.driver, server.leading.damage) == (None, "a hole")
    assert server.leading.is_unusable
    assert server.leading.stepped_down == "its log is damaged"


# ------------------------------------------------------------------ the end


def test_who_stepped_down_writes_sends_and_answers_nothing_more(serving: LeadingServer) -> None:
    listed = serving.ask(ListTopics())
    stored = serving.ask(SUBSCRIBE)
    serving.says(B, Stale(SHARD, EPOCH, LeaderEpoch(5)))
    assert serving.leading.stepped_down == "epoch 5 has begun; this leader's was 4"
    assert serving.leading.commit(serving.now) is None
    serving.leading.ask_round(serving.now)
    serving.leading.tick(Micros(serving.now + 9 * SECOND))
    for name in (B, C):
        serving.has(name, BEGIN + 2, round=1)
    assert (serving.take_sent(), serving.asked) == ([], [])
    assert not {listed, stored} & serving.answers().keys()


def test_what_is_under_way_to_the_disk_may_finish_and_commits_nothing(
    serving: LeadingServer,
) -> None:
    token = serving.ask(SUBSCRIBE)
    group = serving.leading.commit(serving.now)
    assert group is not None
    for name in (B, C):
        serving.has(name, group.last_serial)
    serving.says(B, Stale(SHARD, EPOCH, LeaderEpoch(5)))
    serving.directory.log.write(group)
    serving.leading.written(group, serving.now)
    assert token not in serving.answers()
    serving.leading.close()


def test_who_drains_resigns_in_favour_of_a_member(serving: LeadingServer) -> None:
    serving.rules.drain()
    for name in (B, C):
        serving.has(name, BEGIN)
    serving.leading.tick(serving.now)
    assert (Resign(C), VIEW.revision) in serving.asked


def test_another_leaders_epoch_in_the_coordinators_value_ends_it(serving: LeadingServer) -> None:
    view = structs.replace(VIEW, revision=8, leader=B, leader_epoch=LeaderEpoch(5))
    serving.leading.do(serving.rules.told(view, serving.now), serving.now)
    assert serving.leading.stepped_down == "b leads epoch 5 of shard 1"


def test_frames_are_kept_in_memory_from_the_beginning() -> None:
    server = LeadingServer(LeaderLog(topics=30))
    server.leading.begin(server.now)
    assert server.rules.kept_from == server.directory.log.kept_from
    run = server.directory.log.frames_after(31, 1)
    assert run is not None
    assert run.last.serial == 32  # it is not on the disk yet
