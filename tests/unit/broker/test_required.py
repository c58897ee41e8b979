"""What is required is stored or refused: at the put and at the commit, never accepted and gone."""

import pytest

from oncemq.protocol.records import Retention
from oncemq.protocol.replies import CommitDone, PutAccepted, RefusedReply
from oncemq.protocol.requests import CreateTopic


def refusal(answer: object) -> str:
    assert isinstance(answer, RefusedReply), answer
    return answer.code


@pytest.mark.parametrize("there", [False, True], ids=["no topic", "a topic that keeps nothing"])
def test_a_required_put_that_nobody_would_get_is_refused_and_changes_nothing(desk, there) -> None:
    desk.epoch("publisher")
    if there:
        desk.ask(CreateTopic("orders"))
    before = list(desk.records)
    answer = desk.put("orders", b"a", first=1, required=True)
    assert refusal(answer) == "unwanted"
    for way_out in ("Subscribe first", "--retain 7d", "required=False"):
        assert way_out in answer.detail
    assert f"once topic {'config' if there else 'create'} orders" in answer.detail
    assert desk.records == before
    assert ("orders" in desk.shard.by_name) == there


def test_a_refused_put_is_stored_under_its_numbers_once_somebody_subscribes(desk) -> None:
    assert refusal(desk.put("orders", b"a", first=1, required=True)) == "unwanted"
    desk.subscribe("orders")
    answer = desk.put("orders", b"a", first=1, required=True)
    assert isinstance(answer, PutAccepted)
    assert (answer.stored, answer.duplicate, answer.first_offset) == (True, False, 0)
    again = desk.put("orders", b"a", first=1, required=True)
    assert isinstance(again, PutAccepted)
    assert (again.stored, again.duplicate, again.first_offset) == (True, True, 0)


@pytest.mark.parametrize("how", ["subscription", "pattern", "retention"])
def test_a_required_put_is_stored_where_somebody_would_get_it(desk, how) -> None:
    match how:
        case "subscription":
            desk.subscribe("shop.orders")
        case "pattern":
            desk.subscribe("shop.*")
        case _:
            desk.ask(CreateTopic("shop.orders", Retention(keep_ms=1000)))
    answer = desk.put("shop.orders", b"a", required=True)
    assert isinstance(answer, PutAccepted)
    assert answer.stored


def test_a_required_put_does_not_take_a_discarded_one_for_its_receipt(desk) -> None:
    assert not desk.put_keyed("orders", "k", b"a").stored
    desk.subscribe("orders")
    answer = desk.put_keyed("orders", "k", b"a", required=True)
    assert refusal(answer) == "discarded"
    assert "another idempotency key" in answer.detail
    again = desk.put_keyed("orders", "k", b"a")
    assert (again.stored, again.duplicate) == (False, True)


def test_a_required_put_is_refused_for_its_numbers_first(desk) -> None:
    assert refusal(desk.put("orders", b"a", first=5, required=True)) == "sequence_gap"


def test_a_required_commit_that_nobody_would_get_changes_nothing(desk) -> None:
    desk.subscribe("a")
    desk.subscribe("a", client="publisher")
    desk.put("a", b"in")
    desk.sync()
    desk.stage(b"s", b"1", b"2")
    before = list(desk.records)
    pieces = [("a", b"s", 0, 1), ("b", b"s", 1, 1)]
    answer = desk.commit(*pieces, inputs=(("a", 0, 1),), required=True)
    assert refusal(answer) == "unwanted"
    assert "'b'" in answer.detail
    assert desk.records == before
    assert "b" not in desk.shard.by_name

    desk.subscribe("b")
    done = desk.commit(*pieces, inputs=(("a", 0, 1),), required=True)
    assert isinstance(done, CommitDone)
    assert [(each.topic, each.first_offset) for each in done.results] == [("a", 1), ("b", 0)]


def test_a_required_commit_is_judged_by_every_topic_it_names(desk) -> None:
    names = [f"t{n}" for n in range(150)]
    for name in names[:-1]:
        desk.subscribe(name)
    desk.stage(b"s", *[b"x"] * len(names))
    pieces = [(name, b"s", n, 1) for n, name in enumerate(names)]
    assert refusal(desk.commit(*pieces, required=True)) == "unwanted"


def test_a_required_commit_makes_a_topic_that_a_pattern_awaits(desk) -> None:
    desk.subscribe("shop.>")
    desk.stage(b"s", b"1")
    done = desk.commit(("shop.bills", b"s", 0, 1), required=True)
    assert isinstance(done, CommitDone)
    assert done.results[0].first_offset == 0


def test_a_commit_without_outputs_is_never_unwanted(desk) -> None:
    assert isinstance(desk.commit(required=True), CommitDone)


def test_a_required_commit_that_was_done_is_answered_as_before(desk) -> None:
    desk.subscribe("a")
    desk.stage(b"s", b"1")
    first = desk.commit(("a", b"s", 0, 1), required=True)
    desk.unsubscribe("a")
    again = desk.commit(("a", b"s", 0, 1), required=True)
    assert isinstance(again, CommitDone)
    assert again.already
    assert again.results == first.results
