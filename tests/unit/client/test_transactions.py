"""Transactions over a line that loses answers: all or nothing, and never twice."""

import contextlib
from itertools import count

import pytest
from msgspec import structs

from oncemq.client.engine.stage_puts import StageLine
from oncemq.client.engine.transactions import ROTATE_COMMITS
from oncemq.client.verbs import messages, staged_commits
from oncemq.client.verbs.keyed_puts import put_keyed
from oncemq.client.verbs.transaction_work import STAGE_MESSAGES, TransactionWork, ask_once
from oncemq.errors import Fenced, InvalidRequest, Refused, StorageFull
from oncemq.protocol.names import Micros
from oncemq.protocol.requests import StatusRequest
from oncemq.session.publisher import GUEST_MICROS
from oncemq.wire import batch


def items(*payloads: bytes) -> list[batch.Item]:
    return [batch.Item(payload) for payload in payloads]


def carry_out(node, *, topic: str = "in", limit: int = 2, to: str = "out", fail: bool = False):
    """Consume, transform, put, in one transaction; the payloads it got."""
    work = TransactionWork(node.engine)
    with contextlib.ExitStack() as stack:
        stack.callback(work.abort)
        got = node.run(work.take(topic, limit, 0))
        node.run(work.put([to], items(*(message.payload.upper() for message in got))))
        if not fail:
            node.run(work.commit())
    return [message.payload for message in got]


@pytest.fixture
def job(world):
    """A client with state that subscribes to `in`, where four messages wait; `out` is wanted."""
    job = world.client("job")
    job.run(messages.subscribe(job.engine, "in", "new"))
    job.run(messages.subscribe(job.engine, "out", "new"))
    job.put("in", b"a", b"b", b"c", b"d")
    job.turn()
    return job


def begin_generation(world) -> None:
    """The server's log goes on from an earlier state, as after a restore."""
    world.server.log.generation = 2
    world.server.driver.begin(Micros(world.server.now))
    world.server.commit()


def cursor(world, topic: str = "in") -> int:
    return world.server.driver.broker.shard.by_name[topic].subscriptions["job"].cursor


def test_inputs_are_settled_and_outputs_are_put_together(world, job) -> None:
    assert carry_out(job) == [b"a", b"b"]
    assert (world.server.stored("out"), cursor(world)) == ([b"A", b"B"], 2)
    assert job.engine.state.cursors()["in"][1] == 2
    assert carry_out(job) == [b"c", b"d"]
    assert carry_out(job) == []
    assert world.server.stored("out") == [b"A", b"B", b"C", b"D"]


def test_what_fails_puts_nothing_and_gets_the_messages_again(world, job) -> None:
    assert carry_out(job, fail=True) == [b"a", b"b"]
    assert cursor(world) == 0
    assert carry_out(job, limit=4) == [b"a", b"b", b"c", b"d"]
    assert world.server.stored("out") == [b"A", b"B", b"C", b"D"]


def test_a_lost_answer_is_asked_for_again_and_nothing_is_done_twice(world, job) -> None:
    lost = count()
    job.wire.lose = lambda _: next(lost) < 3
    assert carry_out(job) == [b"a", b"b"]
    assert world.server.stored("out") == [b"A", b"B"]


def test_a_commit_in_doubt_is_made_void_before_anything_is_got(world, job) -> None:
    work = TransactionWork(job.engine)
    got = job.run(work.take("in", 2, 0))
    job.run(work.put(["out"], items(*(message.payload for message in got))))
    late: list[list[bytes]] = []
    send = job.wire.send
    job.wire.send = lambda frames: (late.append([bytes(each) for each in frames]), True)[1]
    verb = work.commit()
    next(verb)  # the outflow is idle
    verb.send(None)
    job.turn(2)
    verb.close()  # the caller gave up waiting
    work.abort()
    job.wire.send = send
    assert carry_out(job) == [b"a", b"b"]
    for frames in late:  # what was under way arrives now
        job.wire.send(frames)
    job.turn()
    assert world.server.stored("out") == [b"A", b"B"]


def test_a_commit_that_arrived_after_all_is_not_repeated(world, job) -> None:
    work = TransactionWork(job.engine)
    got = job.run(work.take("in", 2, 0))
    job.run(work.put(["out"], items(*(message.payload for message in got))))
    job.wire.lose = lambda _: True
    verb = work.commit()
    next(verb)
    verb.send(None)
    job.turn()
    verb.close()
    work.abort()
    job.wire.lose = lambda _: False
    assert carry_out(job) == [b"c", b"d"]
    assert world.server.stored("out") == [b"a", b"b", b"C", b"D"]


def test_a_client_that_crashed_goes_on_where_its_last_commit_was(world, job) -> None:
    carry_out(job)
    work = TransactionWork(job.engine)
    job.run(work.take("in", 2, 0))
    again = world.crashed("job")
    again.turn()
    assert carry_out(again, limit=9) == [b"c", b"d"]


def test_a_journal_that_lags_behind_a_commit_repeats_nothing(world, job) -> None:
    before = world.crashed("job")  # what its disk says before the commit
    before.close()
    world.nodes.remove(before)
    carry_out(job)
    stale = world.client("job", before.state.directory.rpartition("/")[2])
    stale.turn()
    assert carry_out(stale, limit=9) == [b"c", b"d"]
    assert world.server.stored("out") == [b"A", b"B", b"C", b"D"]


def test_a_zombies_transaction_does_nothing(world, job) -> None:
    work = TransactionWork(job.engine)
    job.run(work.take("in", 2, 0))
    job.run(work.put(["out"], items(b"zombie")))
    twin = world.crashed("job")
    twin.turn()
    assert carry_out(twin) == [b"a", b"b"]
    with pytest.raises(Fenced):
        job.run(work.commit())
    work.abort()
    assert world.server.stored("out") == [b"A", b"B"]


def test_a_server_that_starts_again_knows_the_commit(world, job) -> None:
    carry_out(job)
    world.server.crash()
    job.wire.cut()
    job.wire.mend()
    assert carry_out(job) == [b"c", b"d"]
    assert world.server.stored("out") == [b"A", b"B", b"C", b"D"]


def test_a_commit_that_a_server_does_when_it_went_back_is_not_told_as_lost(world, job) -> None:
    work = TransactionWork(job.engine)
    got = job.run(work.take("in", 2, 0))
    job.run(work.put(["out"], items(*(message.payload for message in got))))
    begin_generation(world)  # it has lost nothing that this client knows
    receipt = job.run(work.commit())
    assert receipt.receipts["out"][0].offset == 0
    assert (world.server.stored("out"), cursor(world)) == ([b"a", b"b"], 2)
    assert job.engine.state.cursors()["in"][1] == 2
    assert carry_out(job) == [b"c", b"d"]


def test_of_an_owner_that_never_committed_the_server_need_not_know(world, job) -> None:
    work = TransactionWork(job.engine)
    job.run(work.put(["out"], items(b"b")))
    job.wire.cut()
    begin_generation(world)
    job.wire.mend()
    job.turn()
    assert job.engine.failure is None
    job.run(work.commit())
    assert world.server.stored("out") == [b"b"]


def test_messages_settled_elsewhere_refuse_the_commit(world, job) -> None:
    work = TransactionWork(job.engine)
    job.run(work.take("in", 2, 0))
    job.run(work.put(["out"], items(b"late")))
    shard = world.server.driver.broker.shard
    topic = shard.by_name["in"]
    topic.move("job", 1)  # as another commit of ours would have it
    with pytest.raises(Refused, match="settled before"):
        job.run(work.commit())
    work.abort()
    assert world.server.stored("out") == []
    assert carry_out(job, limit=9) == [b"b", b"c", b"d"]


def test_earlier_puts_of_the_client_come_before(world, job) -> None:
    job.gather("out", b"first")
    carry_out(job)
    assert world.server.stored("out") == [b"first", b"A", b"B"]


def test_outputs_keep_the_order_of_each_topic(world, job) -> None:
    job.run(messages.subscribe(job.engine, "other", "new"))
    work = TransactionWork(job.engine)
    for number in range(6):
        topic = ["out", "other"][number % 2]
        job.run(work.put([topic], items(b"%d" % number)))
    job.run(work.put(["other", "out"], items(b"both")))
    job.run(work.put(["out"], items(b"last")))
    result = job.run(work.commit())
    assert world.server.stored("out") == [b"0", b"2", b"4", b"both", b"last"]
    assert world.server.stored("other") == [b"1", b"3", b"5", b"both"]
    assert [receipt.id for receipt in result.receipts["other"]] == [
        f"other@{offset}" for offset in range(4)
    ]


def test_a_large_transaction_is_staged_as_it_grows(world, job) -> None:
    work = TransactionWork(job.engine)
    payloads = [b"%d" % number for number in range(2 * STAGE_MESSAGES + 3)]
    job.run(work.put(["out"], items(*payloads)))
    job.turn()
    (stage,) = world.server.driver.broker.shard.stages.by_id.values()
    assert stage.end == 2 * STAGE_MESSAGES
    assert world.server.stored("out") == []
    job.run(work.commit())
    assert world.server.stored("out") == payloads


def test_a_transaction_of_large_messages_is_staged_as_it_grows(world, job, monkeypatch) -> None:
    monkeypatch.setattr("oncemq.client.verbs.transaction_work.STAGE_BYTES", 1_000)
    work = TransactionWork(job.engine)
    payloads = [b"%d" % number * 400 for number in range(7)]  # the third of them is over it
    job.run(work.put(["out"], items(*payloads)))
    job.turn()
    (stage,) = world.server.driver.broker.shard.stages.by_id.values()
    assert stage.end == 6
    job.run(work.commit())
    assert world.server.stored("out") == payloads


def test_a_large_transaction_that_fails_gives_its_stage_up(world, job) -> None:
    work = TransactionWork(job.engine)
    job.run(work.put(["out"], items(*[b"x"] * STAGE_MESSAGES)))
    job.turn()
    assert len(world.server.driver.broker.shard.stages.by_name) == 1
    work.abort()
    job.turn()
    assert len(world.server.driver.broker.shard.stages.by_name) == 0


def test_transactions_share_a_stage_and_leave_it_in_time(world, job) -> None:
    for number in range(3):
        work = TransactionWork(job.engine)
        job.run(work.put(["out"], items(b"%d" % number)))
        job.run(work.commit())
    stages_known = world.server.driver.broker.shard.stages
    assert len(stages_known) == 1
    session = job.engine.transactions.lease()
    first = session.stage
    for _ in range(ROTATE_COMMITS):
        session.committed(1)
    assert session.stage is not first
    job.turn()
    assert len(stages_known.by_name) == 0


def test_a_stage_is_used_for_half_of_the_time_that_the_server_keeps_it(world, job) -> None:
    stages_known = world.server.driver.broker.shard.stages
    half = world.server.driver.broker.rules.stage_ms * 1_000 // 2
    for _ in range(3):
        work = TransactionWork(job.engine)
        job.run(work.put(["out"], items(b"x")))
        job.run(work.commit())
        world.server.now += half - 60_000_000
    assert len(stages_known) == 1
    world.server.now += 120_000_000
    work = TransactionWork(job.engine)
    job.run(work.put(["out"], items(b"x")))
    job.run(work.commit())
    job.turn()
    assert len(stages_known.by_name) == 1  # the first was dropped at the server, not left open
    assert world.server.stored("out") == [b"x"] * 4


def test_why_a_batch_was_refused_is_said_and_not_that_it_is_missing(world, job) -> None:
    deciding = world.server.driver.broker._transactions
    deciding._rules = structs.replace(deciding._rules, stages_max=0)
    work = TransactionWork(job.engine)
    job.run(work.put(["out"], items(b"x")))
    with pytest.raises(Refused, match="open stages") as refused:
        job.run(work.commit())
    assert refused.value.code == "limit"


def test_two_transactions_at_once_do_not_disturb_each_other(world, job) -> None:
    one, two = TransactionWork(job.engine), TransactionWork(job.engine)
    job.run(one.put(["out"], items(b"1")))
    job.run(two.put(["out"], items(b"2")))
    job.run(two.commit())
    job.run(one.commit())
    assert world.server.stored("out") == [b"2", b"1"]


@pytest.mark.parametrize("topics", [[], ["a"] * 2, [f"t{n}" for n in range(256)], ["\n"]])
def test_topics_that_cannot_be_are_refused(job, topics: list[str]) -> None:
    work = TransactionWork(job.engine)
    with pytest.raises(InvalidRequest):
        job.run(work.put(topics, items(b"x")))
    work.abort()


def test_inside_a_transaction_only_it_gets(job) -> None:
    work = TransactionWork(job.engine)
    job.run(work.take("in", 1, 0))
    with pytest.raises(InvalidRequest, match="a transaction is open"):
        job.take("in")
    with pytest.raises(InvalidRequest, match="any topic once"):
        job.run(work.take("", 1, 0))
    with pytest.raises(InvalidRequest, match="another transaction"):
        job.run(TransactionWork(job.engine).take("in", 1, 0))
    work.abort()
    assert [message.payload for message in job.take("in", 1)] == [b"a"]


def test_a_transaction_is_over_when_it_is_over(job) -> None:
    work = TransactionWork(job.engine)
    job.run(work.commit())
    for verb in (work.commit(), work.take("in", 1, 0), work.put(["out"], items(b"x"))):
        with pytest.raises(InvalidRequest, match="is over"):
            job.run(verb)


def test_a_feed_that_begins_anew_gives_nothing_twice_in_a_transaction(world, job) -> None:
    work = TransactionWork(job.engine)
    first = job.run(work.take("in", 2, 0))
    job.engine.subscriber.prefetched.put_back_all()  # as a new epoch, or a subscription, does
    second = job.run(work.take("in", 2, 0))
    assert [message.payload for message in first + second] == [b"a", b"b", b"c", b"d"]
    job.run(work.commit())
    assert cursor(world) == 4


# ------------------------------------------------------------------ stages by hand


def staged(node, *payloads: bytes):
    line = staged_commits.new_line(node.engine, None)
    body = batch.encode_payloads(payloads)
    node.run(staged_commits.stage_put(node.engine, line, count=len(payloads), columns=0, body=body))
    return node.run(staged_commits.stage_close(line))


def test_stages_of_several_clients_are_committed_by_another_once(world, job) -> None:
    tokens = [staged(world.client(), b"%d" % number) for number in range(3)]
    targets = [("out", token) for token in tokens]
    first = job.run(staged_commits.commit(job.engine, "query-1", 7, targets))
    again = job.run(staged_commits.commit(job.engine, "query-1", 7, targets))
    assert (first.already, again.already) == (False, True)
    assert list(first.receipts["out"])[2].id == "out@2"
    assert world.server.stored("out") == [b"0", b"1", b"2"]
    other = [("out", staged(world.client(), b"another attempt"))]
    assert job.run(staged_commits.commit(job.engine, "query-1", 7, other)).already
    assert job.run(staged_commits.drop(job.engine, other[0][1])) is True
    assert job.run(staged_commits.drop(job.engine, other[0][1])) is False
    assert world.server.stored("out") == [b"0", b"1", b"2"]


def test_a_staged_batch_whose_answer_was_lost_is_stored_once(world, job) -> None:
    lost = count()
    guest = world.client()
    guest.wire.lose = lambda _: next(lost) < 1
    line = StageLine(guest.engine.context, guest.engine.outgoing, b"s" * 16)  # type: ignore[arg-type]
    line.put(1, 0, batch.encode_payloads([b"x"]))
    for _ in range(3):
        guest.turn()
        world.server.now += 2_000_000
    assert line.idle.done
    assert world.server.driver.broker.shard.stages.by_name[line.name].end == 1


def test_who_waits_for_a_stage_waits_no_more_when_it_is_dropped(job, monkeypatch) -> None:
    monkeypatch.setattr("oncemq.client.engine.stage_puts.FLOW_BYTES", 1)
    job.wire.cut()
    line = staged_commits.new_line(job.engine, None)
    line.put(1, 0, batch.encode_payloads([b"x"]))
    waits = line.flows, line.idle
    assert [each.done for each in waits] == [False, False]
    line.drop()
    assert [each.done for each in waits] == [True, True]


@pytest.mark.parametrize("owner", ["", "_mine", "x" * 256])
def test_an_owner_that_cannot_be_is_refused(job, owner: str) -> None:
    with pytest.raises(InvalidRequest):
        job.run(staged_commits.commit(job.engine, owner, 1, []))


def test_a_batch_that_is_too_large_is_refused_before_it_is_sent(job) -> None:
    line = staged_commits.new_line(job.engine, b"n" * 16)
    body = b"x" * (job.engine.settings.limits.batch_bytes + 1)
    sent = job.wire.sent
    with pytest.raises(InvalidRequest, match="over the limit"):
        job.run(staged_commits.stage_put(job.engine, line, count=1, columns=0, body=body))
    with pytest.raises(InvalidRequest, match="begins with '_'"):
        job.run(staged_commits.commit(job.engine, "_query", 1, []))
    assert (job.wire.sent, line.count) == (sent, 0)
    with pytest.raises(InvalidRequest, match="16 random bytes"):
        staged_commits.new_line(job.engine, b"short")


def test_what_became_of_a_commit_is_learned_though_those_answers_are_lost_too(world, job) -> None:
    """The empty commit that makes it void is repeated: that must not look like the commit."""
    work = TransactionWork(job.engine)
    got = job.run(work.take("in", 2, 0))
    job.run(work.put(["out"], items(*(message.payload for message in got))))
    send = job.wire.send
    job.wire.send = lambda frames: True  # nothing of it arrives
    verb = work.commit()
    next(verb)
    verb.send(None)
    job.turn(2)
    verb.close()
    work.abort()
    job.wire.send = send
    lost = count()
    job.wire.lose = lambda _: next(lost) < 2
    assert carry_out(job) == [b"a", b"b"]
    assert work.result is None
    assert (world.server.stored("out"), cursor(world)) == ([b"A", b"B"], 2)


def test_a_plain_get_waits_for_the_commit_in_doubt_too(world, job) -> None:
    """Else the late commit would settle, with its outputs, what was handed out meanwhile."""
    work = TransactionWork(job.engine)
    got = job.run(work.take("in", 2, 0))
    job.run(work.put(["out"], items(*(message.payload for message in got))))
    late: list[list[bytes]] = []
    send = job.wire.send
    job.wire.send = lambda frames: (late.append([bytes(each) for each in frames]), True)[1]
    verb = work.commit()
    next(verb)
    verb.send(None)
    job.turn(2)
    verb.close()
    work.abort()
    job.wire.send = send
    assert job.get("in", 2) == ["in@0=a", "in@1=b"]
    for frames in late:
        job.wire.send(frames)
    job.turn()
    assert world.server.stored("out") == []


def test_a_transaction_of_a_client_that_failed_says_so(job) -> None:
    work = TransactionWork(job.engine)
    job.engine.fail(Fenced("a newer client uses this id"))
    puts = (work.put(["out"], items(b"a")), work.put(["out"], []))
    for verb in (work.take("in", 1, 0), *puts, work.commit()):
        with pytest.raises(Fenced, match="newer client"):
            job.run(verb)
    assert work.in_doubt is None  # nothing of it was sent


def test_a_topic_that_cannot_be_is_refused_before_anything_is_gathered(job) -> None:
    work = TransactionWork(job.engine)
    with pytest.raises(InvalidRequest) as refused:
        job.run(work.put(["out", "x" * 1_000], items(b"a")))
    assert refused.value.code == "name_invalid"
    assert work.account == "of 'job' open: took nothing; messages put: 0"
    work.abort()


def test_a_commit_that_overtook_its_stage_is_asked_for_again(world, job) -> None:
    work = TransactionWork(job.engine)
    job.run(work.put(["out"], items(b"a")))
    send = job.wire.send
    lost: list[bool] = []

    def lossy(frames) -> bool:
        lost.append(True)
        return send(frames) if len(lost) > 1 else True  # what is staged goes first

    job.wire.send = lossy
    assert [each.id for each in job.run(work.commit()).receipts["out"]] == ["out@0"]
    assert world.server.stored("out") == [b"a"]


def test_what_a_batch_of_the_stage_met_is_raised_by_whatever_comes_next(job, monkeypatch) -> None:
    monkeypatch.setattr("oncemq.client.verbs.transaction_work.STAGE_MESSAGES", 2)
    work = TransactionWork(job.engine)
    error = work._session.stage.error = Refused("no room for more stages")
    with pytest.raises(Refused) as met:
        job.run(work.put(["out"], items(b"a", b"b")))
    assert met.value is error
    line = staged_commits.new_line(job.engine, b"n" * 16)
    line.error = error
    for verb in (
        staged_commits.stage_put(job.engine, line, count=0, columns=0, body=b""),
        staged_commits.stage_close(line),
    ):
        with pytest.raises(Refused) as met:
            job.run(verb)
        assert met.value is error
    work.abort()


def test_which_commit_is_in_doubt_is_told_until_that_is_learned(world, job, monkeypatch) -> None:
    work = TransactionWork(job.engine)
    job.run(work.put(["out"], items(b"a")))
    assert work.in_doubt is None
    job.wire.lose = lambda _: True
    verb = work.commit()
    next(verb)
    verb.send(None)
    job.turn()
    verb.close()
    work.abort()
    assert work.in_doubt == (work._session.owner, 1)
    job.wire.lose = lambda _: False
    room = world.server.log.has_room
    monkeypatch.setattr(world.server.log, "has_room", lambda size, *, now_ms, fact=False: False)
    with pytest.raises(StorageFull):
        job.run(job.engine.transactions.learn())
    assert work.in_doubt == (work._session.owner, 1)
    monkeypatch.setattr(world.server.log, "has_room", room)
    job.run(job.engine.transactions.learn())
    assert work.in_doubt is None
    assert work.result is not None
    assert [each.id for each in work.result.receipts["out"]] == ["out@0"]


def test_who_asks_of_a_client_that_failed_or_fails_meanwhile_is_told_why(job) -> None:
    error = Fenced("a newer client uses this id")
    asking = ask_once(job.engine, lambda _: StatusRequest())
    next(asking)
    job.engine.fail(error)
    line = staged_commits.new_line(job.engine, b"n" * 16)
    for verb in (
        asking,
        ask_once(job.engine, lambda _: StatusRequest()),
        staged_commits.stage_put(job.engine, line, count=1, columns=0, body=b"x"),
        put_keyed(job.engine, "out", "key", count=1, columns=0, body=b"x"),
        job.engine.listening.take(("in",), 1, 1_000),
    ):
        with pytest.raises(Fenced) as told:
            verb.send(None)
        assert told.value is error


def test_an_owner_that_was_silent_for_long_is_not_taken_for_known(world, job) -> None:
    """The server forgets it; a lost one would be told where nothing was lost."""
    transactions = job.engine.transactions
    assert transactions.acknowledged() == ()
    carry_out(job)
    (known,) = transactions.acknowledged()
    assert known.acknowledged == 1
    world.server.now += GUEST_MICROS - 1_000_000
    assert transactions.acknowledged() == (known,)
    world.server.now += 1_000_000
    assert transactions.acknowledged() == ()
