"""Wildcards: what they match, the index against the definition, subscriptions by pattern (G6)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncemq.broker.pattern_subscriptions import derived_by
from oncemq.broker.state import snapshot
from oncemq.broker.state.shard import Shard
from oncemq.protocol.limits import ServerLimits
from oncemq.protocol.names import NO_SUBSCRIPTION, ClientId, Epoch, Micros, Serial, SubscriptionId
from oncemq.protocol.patterns import Patterns, among, is_pattern, matches, pattern_fault
from oncemq.protocol.records import (
    PatternSubscribed,
    PatternUnsubscribed,
    Retention,
    SubscriptionDerived,
    SubscriptionEnded,
    TopicAwaited,
)
from oncemq.protocol.replies import RefusedReply, Subscribed, SubscriptionList, Unsubscribed
from oncemq.protocol.requests import ListSubscriptions, Start, Subscribe, Unsubscribe

BILLING = ClientId("billing")

# ------------------------------------------------------------------ names


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("orders.*", "orders.new orders.", "orders orders.new.eu order.new xorders.new"),
        ("orders.>", "orders.new orders.new.eu orders.a.b.c", "orders refunds.new"),
        ("*", "orders refunds", "orders.new _system"),
        (">", "orders orders.new a.b.c", "_system _system.a"),
        ("*.new", "orders.new refunds.new", "new orders.new.eu _system.new"),
        ("orders.*.eu", "orders.new.eu", "orders.eu orders.new.us orders.a.b.eu"),
        ("*.*.>", "a.b.c a.b.c.d", "a.b a"),
    ],
)
def test_a_pattern_matches_by_whole_segments(pattern: str, yes: str, no: str) -> None:
    assert [each for each in yes.split() if not matches(pattern, each)] == []
    assert [each for each in no.split() if matches(pattern, each)] == []


@pytest.mark.parametrize("name", ["orders", "a*b", "orders.x*", ">>", "a.**", "", "a.b.c"])
def test_these_are_no_patterns(name: str) -> None:
    assert not is_pattern(name)


@pytest.mark.parametrize("pattern", ["orders.>.eu", "a*.*", "*.x>", "", "*\0", "x" * 255 + ".*"])
def test_these_patterns_are_refused(pattern: str) -> None:
    assert pattern_fault(pattern) is not None


SEGMENTS = st.sampled_from(["a", "b", "", "*"])
NAMES = st.lists(st.sampled_from(["a", "b", "c", ""]), min_size=1, max_size=4).map(".".join)
PATTERNS = st.tuples(st.lists(SEGMENTS, max_size=3), st.sampled_from(["*", ">", "a"])).map(
    lambda parts: ".".join([*parts[0], parts[1]])
)


@given(st.lists(st.tuples(st.integers(0, 3), PATTERNS, st.booleans()), max_size=30), NAMES)
def test_the_index_finds_what_the_definition_says(changes, name: str) -> None:
    patterns, there = Patterns(), set()
    for client, pattern, added in changes:
        if added:
            patterns.add(ClientId(f"c{client}"), pattern, SubscriptionId(1))
            there.add((f"c{client}", pattern))
        else:
            patterns.remove(ClientId(f"c{client}"), pattern)
            there.discard((f"c{client}", pattern))
    expected = {client for client, pattern in there if matches(pattern, name)}
    assert sorted(patterns.wanting(name)) == sorted(expected)
    assert patterns.count == len(there)
    assert patterns.names == sorted({pattern for _, pattern in there})


@given(st.sets(NAMES, max_size=12), PATTERNS.filter(is_pattern))
def test_among_sorted_names_all_that_match_are_found(names: set[str], pattern: str) -> None:
    assert among(pattern, sorted(names)) == sorted(n for n in names if matches(pattern, n))


# ------------------------------------------------------------------ subscribing


def topics_of(desk, client: str = "billing") -> dict[str, int]:
    topics = desk.shard.by_client.get(ClientId(client), {}).values()
    return {topic.name: topic.subscriptions[ClientId(client)].cursor for topic in topics}


def test_a_pattern_includes_the_topics_there_are_and_those_made_later(desk) -> None:
    desk.subscribe("orders.old", "audit")
    desk.put("orders.old", b"before")
    reply = desk.subscribe("orders.*")
    assert isinstance(reply, Subscribed)
    assert reply.made
    desk.put("orders.new", b"the first")
    desk.put("orders.deep.er", b"not matched")
    assert topics_of(desk) == {"orders.old": 1, "orders.new": 0}
    desk.sync()
    assert desk.spans("orders.new") == {"orders.new": range(1)}


def test_a_put_to_a_new_topic_that_matches_is_stored(desk) -> None:
    assert desk.put("orders.new", b"nobody").stored is False
    desk.subscribe("orders.>")
    assert desk.put("orders.newer", b"somebody").stored is True


def test_from_the_earliest_it_begins_with_what_is_kept(desk) -> None:
    desk.subscribe("orders.old", "audit")
    desk.put("orders.old", b"kept")
    desk.subscribe("orders.*", start=Start("earliest"))
    assert topics_of(desk) == {"orders.old": 0}


@pytest.mark.parametrize("start", [Start("offset", 3), Start("time", 3)])
def test_many_topics_have_no_offset_in_common(desk, start: Start) -> None:
    refused = desk.subscribe("orders.*", start=start)
    assert isinstance(refused, RefusedReply)
    assert desk.records[1:] == []  # the hello


def test_subscribed_again_it_is_there_already(desk) -> None:
    first = desk.subscribe("orders.*")
    again = desk.subscribe("orders.*")
    assert (again.made, again.subscription_id) == (False, first.subscription_id)


def test_a_topic_cannot_have_the_name_of_a_pattern(desk) -> None:
    for name in ("orders.*", ">", "a*b", "a>b"):
        for answer in (desk.put(name, b"x"), desk.create(name)):
            assert isinstance(answer, RefusedReply)
            assert answer.code == "name_invalid"
    assert isinstance(desk.subscribe("order*"), RefusedReply)


def test_get_takes_a_pattern_as_some_of_the_subscribed_topics(desk) -> None:
    desk.subscribe("orders.*")
    desk.subscribe("refunds")
    for topic in ("orders.a", "orders.b", "refunds"):
        desk.put(topic, b"x")
    desk.sync()
    assert desk.spans("orders.*") == {"orders.a": range(1), "orders.b": range(1)}
    assert desk.spans("*.a") == {"orders.a": range(1)}
    assert set(desk.spans()) == {"orders.a", "orders.b", "refunds"}
    assert isinstance(desk.get("other.*"), RefusedReply)


def test_a_get_waits_for_a_topic_that_is_not_made_yet(desk) -> None:
    desk.subscribe("orders.*")
    assert desk.step(desk.getting("orders.*", wait=9)).replies == []
    desk.put("refunds", b"not this")
    desk.sync()
    desk.put("orders.new", b"this")
    (owed,) = desk.sync()
    assert [span.topic for span in owed.answer.spans] == ["orders.new"]


def test_the_end_of_a_pattern_ends_what_it_made(desk) -> None:
    pattern = desk.subscribe("orders.*").subscription_id
    desk.put("orders.a", b"x")
    made = desk.shard.by_name["orders.a"].subscriptions["billing"].id
    reply = desk.unsubscribe("orders.*")
    assert reply == Unsubscribed(True, ("orders.a",), (pattern, made))
    assert topics_of(desk) == {}
    assert desk.unsubscribe("orders.*") == Unsubscribed(False)
    assert desk.put("orders.b", b"x").stored is False


def test_what_was_asked_for_by_name_as_well_stays(desk) -> None:
    desk.subscribe("orders.before")
    desk.subscribe("orders.*")
    desk.put("orders.derived", b"x")
    desk.put("orders.named", b"x")
    assert desk.subscribe("orders.named").made is False
    made = desk.subscribe("orders.made")
    assert made.made is True
    assert desk.unsubscribe("orders.*").topics == ("orders.derived",)
    assert topics_of(desk) == {"orders.before": 0, "orders.named": 0, "orders.made": 0}


def test_what_another_pattern_holds_stays(desk) -> None:
    one = desk.subscribe("orders.*").subscription_id
    rest = desk.subscribe("orders.>").subscription_id
    desk.put("orders.a", b"x")
    made = desk.shard.by_name["orders.a"].subscriptions["billing"].id
    assert desk.unsubscribe("orders.*") == Unsubscribed(True, (), (one,))
    assert topics_of(desk) == {"orders.a": 0}
    assert desk.unsubscribe("orders.>") == Unsubscribed(True, ("orders.a",), (rest, made))


def test_a_topic_left_by_name_stays_left(desk) -> None:
    desk.subscribe("orders.*")
    desk.put("orders.a", b"x")
    made = desk.shard.by_name["orders.a"].subscriptions["billing"].id
    assert desk.unsubscribe("orders.a") == Unsubscribed(True, (), (made,))
    desk.put("orders.a", b"y")
    desk.put("orders.b", b"z")
    assert topics_of(desk) == {"orders.b": 0}


def test_a_topic_deleted_and_made_again_is_included_from_its_first_message(desk) -> None:
    desk.subscribe("orders.*")
    desk.put("orders.a", b"x")
    desk.delete("orders.a")
    desk.sequences.clear()
    desk.resume("orders.a")
    desk.put("orders.a", b"y")
    assert topics_of(desk) == {"orders.a": 0}


def test_a_waiting_get_hears_that_its_pattern_ended(desk) -> None:
    desk.subscribe("orders.*")
    desk.step(desk.getting("orders.*", wait=9))
    unsubscribe = Unsubscribe(ClientId("billing"), desk.epoch("billing"), "orders.*")
    told = [owed.answer for owed in desk.step(unsubscribe).replies]
    assert [each.code for each in told if isinstance(each, RefusedReply)] == ["not_subscribed"]


@pytest.mark.parametrize(
    ("others", "topic", "only", "told"),
    [
        ((), "", (), True),
        (("refunds",), "", (), False),  # of any: another may come
        (("refunds.*",), "", (), False),  # and so may one that another pattern makes
        (("refunds",), "orders.*", (), True),
        (("refunds",), "", ("orders.*", "refunds"), False),
        (("refunds.*",), "", ("orders.*", "refunds.*"), False),
    ],
)
def test_a_get_that_waits_for_more_than_the_pattern_that_ended_waits_on(
    desk, others: tuple[str, ...], topic: str, only: tuple[str, ...], told: bool
) -> None:
    for each in ("orders.*", *others):
        desk.subscribe(each)
    assert desk.step(desk.getting(topic, only=only, wait=9)).replies == []
    unsubscribe = Unsubscribe(BILLING, desk.epoch("billing"), "orders.*")
    answers = [owed.answer for owed in desk.step(unsubscribe).replies]
    assert any(isinstance(each, RefusedReply) for each in answers) is told
    assert len(desk.broker.waiting) == (not told)


def test_patterns_are_listed_with_the_subscriptions(desk) -> None:
    desk.subscribe("orders.*")
    desk.subscribe("orders.*", "audit")
    desk.put("orders.a", b"x")
    desk.subscribe("zebra")
    listed = desk.ask(ListSubscriptions())
    assert isinstance(listed, SubscriptionList)
    named = [(each.topic, each.client, each.pattern) for each in listed.subscriptions]
    assert named == [
        ("orders.*", "audit", True),
        ("orders.*", "billing", True),
        ("orders.a", "audit", False),
        ("orders.a", "billing", False),
        ("zebra", "billing", False),
    ]
    pages: list[tuple[str, str]] = []
    more = True
    while more:
        page = desk.ask(ListSubscriptions(after=pages[-1] if pages else ("", ""), limit=2))
        pages += [(each.topic, each.client) for each in page.subscriptions]
        more = page.more
    assert pages == [(topic, client) for topic, client, _ in named]
    mine = desk.ask(ListSubscriptions(client="audit")).subscriptions
    assert [each.topic for each in mine] == ["orders.*", "orders.a"]
    only = desk.ask(ListSubscriptions(topic="orders.*")).subscriptions
    assert [each.client for each in only] == ["audit", "billing"]


@pytest.mark.parametrize("clients", [("a", "b"), ("zoe", "~last")])  # before, and behind, topics
def test_every_page_of_patterns_begins_behind_the_one_before(desk, clients) -> None:
    for client in clients:
        for pattern in ("m.*", "n.*", "o.*"):
            desk.subscribe(pattern, client)
    expected = [(pattern, client) for pattern in ("m.*", "n.*", "o.*") for client in clients]
    for number, after in enumerate(expected):
        page = desk.ask(ListSubscriptions(after=after, limit=9)).subscriptions
        assert [(each.topic, each.client) for each in page] == expected[number + 1 :]
        page = desk.ask(ListSubscriptions(client=after[1], after=after, limit=9)).subscriptions
        mine = [each for each in expected[number + 1 :] if each[1] == after[1]]
        assert [(each.topic, each.client) for each in page] == mine


def test_a_pattern_is_there_as_long_as_one_client_has_it(desk) -> None:
    for client in ("a", "b"):
        desk.subscribe("orders.*", client)
    patterns = desk.shard.patterns
    assert (patterns.names, patterns.count) == (["orders.*"], 2)
    desk.unsubscribe("orders.*", "a")
    assert (patterns.names, patterns.count) == (["orders.*"], 1)
    desk.unsubscribe("orders.*", "b")
    assert (patterns.names, patterns.count, patterns.bytes) == ([], 0, 0)


def test_a_pattern_outlives_a_restart_and_a_checkpoint(desk) -> None:
    desk.subscribe("orders.*")
    desk.put("orders.a", b"x")
    desk.sync()
    after = desk.crash()
    assert topics_of(after) == {"orders.a": 0}
    after.put("orders.b", b"y")
    assert topics_of(after) == {"orders.a": 0, "orders.b": 0}
    restored = Shard(7)
    for blob in snapshot.capture(after.shard):
        snapshot.restore(restored, blob)
    restored.serial = restored.checkpointed = after.shard.serial
    billing = ClientId("billing")
    assert restored.patterns.of(billing) == after.shard.patterns.of(billing)
    derived = [each.subscriptions[billing].derived for each in restored.topics.values()]
    assert derived == [True, True]
    assert restored.next_identity() == after.shard.next_identity()


def test_replaying_over_a_checkpoint_changes_nothing(desk) -> None:
    for change in (desk.subscribe, desk.unsubscribe, desk.subscribe):
        change("orders.*")
    desk.put("orders.a", b"x")
    restored = Shard(7)
    for blob in snapshot.capture(desk.shard):
        snapshot.restore(restored, blob)
    restored.checkpointed = Serial(len(desk.records))
    for serial, record in enumerate(desk.records, start=1):
        restored.apply(record, Serial(serial))
    assert restored.patterns.by_client == desk.shard.patterns.by_client
    assert restored.patterns.names == desk.shard.patterns.names


def test_there_is_a_limit(make_desk) -> None:
    desk = make_desk(ServerLimits(subscriptions_max=2))
    desk.subscribe("a.*")
    desk.subscribe("b.*")
    refused = desk.subscribe("c.*")
    assert isinstance(refused, RefusedReply)
    assert refused.code == "limit"


def test_a_guest_that_stays_away_loses_its_patterns(desk) -> None:
    guest = "_anonymous-1"
    desk.subscribe("orders.*", guest)
    desk.put("orders.a", b"x")
    desk.now += 2 * 86_400_000_000
    desk.note(desk.broker.forget_guests(Micros(desk.now)))
    assert desk.shard.patterns.count == 0
    assert [type(each) for each in desk.records[-2:]] == [PatternUnsubscribed, SubscriptionEnded]


def test_the_facts(desk) -> None:
    desk.subscribe("orders.*")
    desk.put("orders.a", b"x")
    kinds = [type(record) for record in desk.records]
    assert kinds.count(PatternSubscribed) == kinds.count(TopicAwaited) == 1
    assert SubscriptionDerived not in kinds


# ------------------------------------------------------------------ power that fails in the middle


def torn(desk, before: int, last: type):
    """A server that starts from a log that ends behind the first fact of a kind after `before`."""
    later = range(before, len(desk.records))
    desk.durable = next(n for n in later if isinstance(desk.records[n], last)) + 1
    return desk.crash()


def test_a_topic_is_made_with_every_subscription_that_awaits_it_or_not_at_all(desk) -> None:
    for client in ("billing", "audit"):
        desk.subscribe("orders.*", client)
    before = len(desk.records)
    desk.put("orders.a", b"x")
    after = torn(desk, before, TopicAwaited)
    assert sorted(after.shard.by_name["orders.a"].subscriptions) == ["audit", "billing"]
    ids = {each.id for each in after.shard.by_name["orders.a"].subscriptions.values()}
    assert len({*ids, after.shard.by_name["orders.a"].id, after.shard.next_identity()}) == 4


def test_a_pattern_is_there_only_with_all_it_makes(desk) -> None:
    desk.create("orders.a", Retention(forever=True))
    desk.create("orders.b", Retention(forever=True))
    before = len(desk.records)
    desk.subscribe("orders.*")
    after = torn(desk, before, SubscriptionDerived)
    assert after.shard.patterns.count == 0
    made = after.subscribe("orders.*")
    assert isinstance(made, Subscribed)
    assert made.made
    assert topics_of(after) == {"orders.a": 0, "orders.b": 0}
    ids = [each.subscriptions[BILLING].id for each in after.shard.topics.values()]
    assert min(ids) > made.subscription_id  # none is left over from the first try


def test_what_a_pattern_left_behind_ends_when_it_is_asked_to_end_again(desk) -> None:
    desk.subscribe("orders.*")
    desk.put("orders.a", b"x")
    desk.put("orders.b", b"x")
    before = len(desk.records)
    desk.unsubscribe("orders.*")
    after = torn(desk, before, PatternUnsubscribed)
    assert topics_of(after) == {"orders.a": 0, "orders.b": 0}
    names = "orders.a", "orders.b"
    made = [after.shard.by_name[name].subscriptions["billing"].id for name in names]
    assert after.unsubscribe("orders.*") == Unsubscribed(False, names, (NO_SUBSCRIPTION, *made))
    assert topics_of(after) == {}
    assert after.unsubscribe("orders.*") == Unsubscribed(False)


def test_what_a_pattern_left_behind_is_made_anew_with_it(desk) -> None:
    desk.subscribe("orders.*")
    desk.put("orders.a", b"x")
    before = len(desk.records)
    desk.unsubscribe("orders.*")
    after = torn(desk, before, PatternUnsubscribed)
    after.subscribe("orders.*")
    assert topics_of(after) == {"orders.a": 1}  # only what is put from now on
    assert any(isinstance(record, SubscriptionEnded) for record in after.records)


def test_as_many_patterns_as_one_fact_about_a_new_topic_can_name(desk, monkeypatch) -> None:
    monkeypatch.setattr("oncemq.broker.pattern_subscriptions.AWAITING_BYTES_MAX", 50)
    desk.subscribe(">", "a" * 20)
    desk.subscribe("orders.*", "a" * 20)
    refused = desk.subscribe(">", "b" * 20)
    assert isinstance(refused, RefusedReply)
    assert refused.code == "limit"
    desk.unsubscribe(">", "a" * 20)
    assert isinstance(desk.subscribe(">", "b" * 20), Subscribed)


def test_a_pattern_over_too_many_topics_is_refused(make_desk) -> None:
    desk = make_desk(ServerLimits(pattern_topics_max=2))
    for name in ("a.x", "a.y", "b.x"):
        desk.create(name)
    before = len(desk.records)
    refused = desk.subscribe(">", "_anonymous-1")
    assert (refused.code, "3 topics" in refused.detail) == ("limit", True)
    assert len(desk.records) == before
    assert desk.subscribe("a.*", "_anonymous-1").made


def test_what_may_follow_from_a_request_because_of_patterns_is_counted(desk) -> None:
    """Room is asked for that many facts beside the request's own."""

    def subscribe(topic: str) -> Subscribe:
        return Subscribe(BILLING, Epoch(1), topic, Start("new"))

    desk.subscribe("orders.old", "audit")
    assert derived_by(desk.shard, subscribe("orders.new")) == 0
    desk.subscribe("orders.*", "audit")
    desk.subscribe("orders.>", "shop")
    assert derived_by(desk.shard, subscribe("orders.new")) == 2
    assert derived_by(desk.shard, subscribe("orders.old")) == 0
    assert derived_by(desk.shard, subscribe("orders.*")) == 1
    assert derived_by(desk.shard, ListSubscriptions()) == 0
