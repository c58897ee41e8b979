"""A log that went back in time: who knows more than it has is told, topic by topic; nobody else."""

import msgspec
import pytest

from oncemq.broker.state import snapshot
from oncemq.broker.state.shard import Shard
from oncemq.broker.state.topic import ENDS_KEPT, Topic
from oncemq.protocol.client_replies import ClientInfo, LostCursor, LostNumbers, ThereAgain
from oncemq.protocol.client_requests import Compare, ForgetClient, KnownNumbers, ListClients
from oncemq.protocol.generations import KEPT, Generations, continued, in_words
from oncemq.protocol.names import (
    EPOCH_MAX,
    ClientId,
    Epoch,
    Generation,
    Micros,
    Offset,
    ProducerId,
    Sequence,
    Serial,
    SubscriptionId,
    TopicId,
)
from oncemq.protocol.records import (
    ClientForgotten,
    ClientOpened,
    GenerationBegan,
    PatternUnsubscribed,
    SubscriptionEnded,
)
from oncemq.protocol.replies import ClientList, Compared, Done, RefusedReply, Resumed, Welcome
from oncemq.protocol.requests import Hello, Resume, Settle, WatchEnds
from tests.harness.broker import Desk

BILLING = ClientId("billing")
P = ProducerId(b"p".ljust(16, b"."))


def gone_back(desk: Desk, upto: int, *, tag: int = 8, generation: int = 2) -> Desk:
    """The server on an earlier state of its log, with the generation raised."""
    after = Desk(desk.broker.rules)
    after.shard.__init__(tag)
    after.records = list(desk.records[:upto])
    for serial, record in enumerate(after.records, start=1):
        after.shard.apply(record, Serial(serial))
    after.broker.recovered(Micros(0))
    after.now, after.tokens = desk.now + 1, desk.tokens
    after.note(after.broker.begin_generation(Generation(generation), Micros(after.now)))
    after.sync()
    return after


def lost(desk: Desk, *cursors: tuple[str, int, int], generation: int = 1) -> Compared:
    known = tuple(desk.settled(*each) for each in cursors)
    answer = desk.ask(Compare(BILLING, Generation(generation), cursors=known))
    assert isinstance(answer, Compared)
    return answer


def there_again(desk: Desk, question: Compare) -> tuple[ThereAgain, ...]:
    answer = desk.ask(question)
    assert isinstance(answer, Compared)
    return answer.again


def test_a_cursor_beyond_where_its_topic_ended_is_lost_however_much_was_put_since(desk) -> None:
    subscription = desk.subscription("orders")
    desk.put("orders", b"0", b"1")
    upto = len(desk.records)
    desk.put("orders", b"2", b"3", b"4")
    after = gone_back(desk, upto)
    after.hello("publisher", last=1)
    assert lost(after, ("orders", subscription, 2)).cursors == ()
    told = LostCursor("orders", Offset(5), Offset(2), Offset(0), Offset(2))
    assert lost(after, ("orders", subscription, 5)).cursors == (told,)
    after.sequences[("orders", P)] = 2
    after.put("orders", *[b"new"] * 9)
    told = msgspec.structs.replace(told, end=Offset(11))
    assert lost(after, ("orders", subscription, 5)).cursors == (told,)
    assert lost(after, ("orders", subscription, 5), generation=2).cursors == ()  # it knows these


def test_of_several_generations_the_lowest_end_since_counts() -> None:
    topic = Topic(TopicId(1), "orders", msgspec.UNSET, Micros(0))  # type: ignore[arg-type]
    for generation, end in ((2, 50), (3, 20), (4, 70)):
        topic.end = Offset(end)
        topic.began(Generation(generation))
    topic.end = Offset(100)
    assert [topic.agreed(Generation(each)) for each in (1, 2, 3, 4)] == [20, 20, 70, 100]
    assert topic.ends == ((3, 20), (4, 70))  # the second said no more than the third
    topic.end = Offset(70)
    topic.began(Generation(5))
    assert topic.ends == ((3, 20), (5, 70))  # nothing was put meanwhile


def test_what_a_topic_remembers_of_generations_is_bounded_and_errs_to_telling() -> None:
    topic = Topic(TopicId(1), "orders", msgspec.UNSET, Micros(0))  # type: ignore[arg-type]
    for generation in range(2, 100):
        topic.end = Offset(generation * 10)
        topic.began(Generation(generation))
    assert len(topic.ends) == ENDS_KEPT
    assert topic.ends == ((84, 20), *((each, each * 10) for each in range(85, 100)))
    assert topic.agreed(Generation(1)) == 20
    assert topic.agreed(Generation(98)) == 990
    assert all(topic.agreed(Generation(each)) <= (each + 1) * 10 for each in range(1, 99))


def test_a_subscription_that_ended_is_not_lost_and_one_of_the_lost_future_is(desk) -> None:
    ended = desk.subscription("orders")
    desk.unsubscribe("orders")
    upto = len(desk.records)
    future = desk.subscription("orders")
    beyond = desk.subscription("new")
    after = gone_back(desk, upto)
    found = lost(after, ("orders", ended, 0), ("orders", future, 3), ("new", beyond, 1)).cursors
    nothing = Offset(-1)
    assert found == (
        LostCursor("orders", Offset(3), nothing, nothing, Offset(0)),
        LostCursor("new", Offset(1), nothing, nothing, Offset(0)),
    )
    after.hello("billing", last=1)
    made = after.subscription("orders")
    assert made >> 32 == 8, "ids of the new generation are other ones"
    assert lost(after, ("orders", made, 0), generation=2).cursors == ()


def test_one_that_ended_with_nothing_taken_and_a_pattern_are_told_when_they_are_there_again(
    desk,
) -> None:
    orders = desk.subscription("orders")
    pattern = desk.subscribe("x.*").subscription_id
    desk.put("x.a", b"0")
    upto = len(desk.records)
    for name in ("orders", "x.*"):
        desk.unsubscribe(name)
    nothing = Offset(-1)
    ended = (desk.settled("orders", orders, nothing), desk.settled("x.*", pattern, nothing))
    question = Compare(BILLING, Generation(1), ended=ended)
    assert there_again(desk, question) == ()
    told = (
        ThereAgain("orders", SubscriptionId(orders), nothing, Offset(0), Offset(0)),
        ThereAgain("x.*", pattern, nothing, nothing, nothing),
    )
    after = gone_back(desk, upto)
    assert there_again(after, question) == told
    another = msgspec.structs.replace(question, client=ClientId("another"))
    assert there_again(after, another) == ()
    after.hello("billing", last=1)
    for name in ("orders", "x.*"):
        after.unsubscribe(name)
        after.subscribe(name)  # other ones, of the same names
    assert there_again(after, question) == ()


def test_a_cursor_beyond_the_end_is_lost_within_a_generation_too_and_nobody_can_say_how_far(
    desk,
) -> None:
    subscription = desk.subscription("orders")
    desk.put("orders", b"0")
    told = LostCursor("orders", Offset(3), Offset(-1), Offset(0), Offset(1))
    assert lost(desk, ("orders", subscription, 3)).cursors == (told,)


def recent_puts(desk: Desk, topic_id: int) -> tuple[tuple[Sequence, int, int], ...]:
    """By which a client knows its own among those of another branch."""
    producer = desk.shard.topics[TopicId(topic_id)].producers[P]
    return tuple((each.first_sequence, each.messages, each.checksum) for each in producer.recent)


def test_numbers_with_receipts_that_are_not_there_are_lost(desk) -> None:
    desk.subscription("orders")
    topic_id = desk.put("orders", b"0", b"1").topic_id  # type: ignore[union-attr]
    upto = len(desk.records)
    desk.put("orders", b"2")
    future = desk.put("other", b"x").topic_id  # type: ignore[union-attr]
    after = gone_back(desk, upto)
    question = Compare(
        BILLING,
        Generation(1),
        numbers=(
            KnownNumbers("orders", topic_id, P, Sequence(2)),
            KnownNumbers("orders", topic_id, P, Sequence(3)),
            KnownNumbers("orders", TopicId(0), P, Sequence(9)),
            KnownNumbers("other", future, P, Sequence(1)),
        ),
    )
    answer = after.ask(question)
    assert isinstance(answer, Compared)
    assert answer.numbers == (
        LostNumbers("orders", P, Sequence(3), Sequence(2), recent_puts(after, topic_id)),
        LostNumbers("other", P, Sequence(1), Sequence(0)),
    )


def test_numbers_on_a_topic_that_was_deleted_are_named_and_not_those_on_one_that_was_lost(
    desk,
) -> None:
    gone = desk.put("gone", b"x").topic_id  # type: ignore[union-attr]
    desk.delete("gone")
    desk.resume("gone")
    there = desk.put("gone", b"y", first=1).topic_id  # type: ignore[union-attr]
    upto = len(desk.records)
    future = desk.put("future", b"x").topic_id  # type: ignore[union-attr]
    known = tuple(
        KnownNumbers("gone", TopicId(each), P, Sequence(1)) for each in (gone, there, future, 0)
    )
    answer = gone_back(desk, upto).ask(Compare(BILLING, Generation(1), numbers=known))
    assert isinstance(answer, Compared)
    assert answer.deleted == (gone,)


def test_the_only_put_of_a_producer_may_be_lost(desk) -> None:
    desk.subscription("orders")
    upto = len(desk.records)
    desk.put("orders", b"a")
    topic = desk.shard.by_name["orders"].id
    known = tuple(KnownNumbers("orders", topic, P, Sequence(number)) for number in (0, 1))
    answer = gone_back(desk, upto).ask(Compare(BILLING, Generation(1), numbers=known))
    assert isinstance(answer, Compared)
    assert answer.numbers == (LostNumbers("orders", P, Sequence(1), Sequence(0)),)


def test_numbers_on_a_topic_that_was_deleted_are_not_lost(desk) -> None:
    gone = desk.put("gone", b"0", b"1").topic_id  # type: ignore[union-attr]
    again = desk.put("again", b"0", b"1").topic_id  # type: ignore[union-attr]
    desk.delete("gone")
    desk.delete("again")
    desk.create("again")
    after = gone_back(desk, len(desk.records))
    known = KnownNumbers("gone", gone, P, Sequence(2)), KnownNumbers("again", again, P, Sequence(2))
    assert after.ask(Compare(BILLING, Generation(1), numbers=known)).numbers == ()  # type: ignore[union-attr]


def test_a_resume_says_whether_its_topic_was_lost_or_deleted(desk) -> None:
    gone = desk.put("gone", b"x").topic_id  # type: ignore[union-attr]
    desk.delete("gone")
    upto = len(desk.records)
    future = desk.put("future", b"x").topic_id  # type: ignore[union-attr]
    after = gone_back(desk, upto)
    after.hello("publisher", last=1)

    def resumed(topic: str, topic_id: int) -> Resumed:
        about = topic, P, 1, TopicId(topic_id)
        answer = after.ask(Resume(ClientId("publisher"), after.epoch("publisher"), *about))
        assert isinstance(answer, Resumed)
        return answer

    assert resumed("gone", gone).lost is False
    assert resumed("future", future).lost is True


def test_who_was_let_in_before_must_say_hello_and_compare(desk) -> None:
    desk.subscription("orders")
    after = gone_back(desk, len(desk.records))
    after.epochs["billing"] = 1
    refused = after.get("orders")
    assert isinstance(refused, RefusedReply)
    assert refused.code == "unknown_client"
    after.hello("billing", last=1)
    assert after.epochs["billing"] == 2
    assert not isinstance(after.get("orders"), RefusedReply)


def test_that_a_client_must_say_hello_outlives_a_checkpoint(desk) -> None:
    desk.subscription("orders")
    after = gone_back(desk, len(desk.records))
    shard = Shard(8)
    for blob in snapshot.capture(after.shard):
        snapshot.restore(shard, blob)
    assert shard.clients.refusal(BILLING, Epoch(1)).code == "unknown_client"  # type: ignore[union-attr]
    assert shard.generation == 2
    assert shard.by_name["orders"].ends == ((2, 0),)


def test_the_subscriptions_of_guests_end_with_the_generation(desk) -> None:
    guest = ClientId("_anonymous-1")
    desk.subscribe("orders", guest)
    desk.subscribe("ord.*", guest)
    desk.subscribe("orders")
    topic = desk.shard.by_name["orders"].id
    upto = len(desk.records)
    after = gone_back(desk, upto)
    assert after.records[upto:] == [
        PatternUnsubscribed(guest, "ord.*"),
        SubscriptionEnded(topic, guest),
        GenerationBegan(Generation(2), Micros(after.shard.last_timestamp)),
    ]
    assert list(after.shard.by_client) == [BILLING]


def test_a_generation_is_noted_once(desk) -> None:
    after = gone_back(desk, 0)
    assert after.broker.begin_generation(Generation(2), Micros(0)).writes == []
    assert len(after.broker.begin_generation(Generation(3), Micros(0)).writes) == 1


@pytest.mark.parametrize(
    ("log_id", "generation", "words"),
    [(b"another", 1, "another log"), (b"mine", 2, "knows generation 2 "), (b"mine", 1, "")],
)
def test_who_knows_another_log_or_a_later_generation_is_refused(log_id, generation, words) -> None:
    desk = Desk()
    desk.shard.log_id = b"mine"
    answer = desk.ask(Hello(BILLING, Epoch(0), 5, log_id, Generation(generation)))
    if words:
        assert isinstance(answer, RefusedReply)
        assert answer.code == "history_lost"
        assert words in answer.detail
        assert desk.records == []
    else:
        assert desk.records == [ClientOpened(BILLING, Epoch(1), 5)]


def test_a_watch_says_how_far_the_readers_generation_agrees(desk) -> None:
    desk.subscription("orders")
    desk.put("orders", b"0", b"1")
    after = gone_back(desk, len(desk.records))
    after.sequences[("orders", P)] = 2
    after.epochs["publisher"] = after.hello("publisher", last=1).client_epoch  # type: ignore[union-attr]
    after.put("orders", b"2")
    after.sync()
    ends = after.ask(WatchEnds((("orders", Offset(0)),), generation=Generation(1)))
    assert (ends.topics[0].agreed, ends.topics[0].end, ends.generation) == (2, 3, 2)  # type: ignore[union-attr]
    assert after.ask(WatchEnds((("orders", Offset(0)),))).topics[0].agreed == -1  # type: ignore[union-attr]


def test_an_id_that_nobody_uses_is_forgotten(desk) -> None:
    desk.hello("billing", nonce=1)
    desk.hello("billing", last=1)
    assert desk.ask(ListClients()) == ClientList((ClientInfo(BILLING, Epoch(2), 0),), more=False)
    assert desk.ask(ForgetClient(BILLING)) == Done(changed=True)
    assert desk.records[-1] == ClientForgotten(BILLING, Epoch(2))
    assert desk.ask(ForgetClient(BILLING)) == Done(changed=False)
    assert desk.hello("billing", last=2).code == "history_lost"
    desk.sync()
    for again in (desk, desk.crash()):  # no epoch is granted twice
        assert again.hello("billing").client_epoch == 3
        assert again.ask(Settle(BILLING, Epoch(2), ())).code == "fenced"
        assert again.hello("billing", last=2).code == "stale_state"


def test_an_id_with_subscriptions_is_forgotten_only_when_they_may_end(desk) -> None:
    desk.subscribe("orders")
    desk.subscribe("a.*")
    refused = desk.ask(ForgetClient(BILLING))
    assert refused.code == "in_use"
    assert "orders, a.*" in refused.detail
    assert desk.ask(ForgetClient(BILLING, ending=True)) == Done(changed=True)
    assert not desk.shard.subscribes(BILLING)
    assert BILLING not in desk.shard.clients.entries


@pytest.mark.parametrize(
    ("count", "names"), [(5, "t0, t1, t2, t3, t4:"), (6, "t0, t1, t2, t3, t4, …:")]
)
def test_an_id_in_use_names_a_few_of_its_subscriptions(desk, count: int, names: str) -> None:
    for number in range(count):
        desk.subscribe(f"t{number}")
    refused = desk.ask(ForgetClient(BILLING))
    assert f"'billing' subscribes to {names} what it has not settled" in refused.detail


def test_clients_are_listed_a_page_at_a_time(desk) -> None:
    for name in ("c", "a", "b"):
        desk.hello(name)
    first = desk.ask(ListClients(limit=2))
    assert [each.client for each in first.clients] == ["a", "b"]
    assert first.more
    rest = desk.ask(ListClients("b", 2))
    assert ([each.client for each in rest.clients], rest.more) == (["c"], False)
    least = desk.ask(ListClients(limit=0))
    assert ([each.client for each in least.clients], least.more) == (["a"], True)


ONE, OTHER = continued(1, 9), continued(1, 5)  # of one state


def test_of_another_branch_nothing_is_believed_and_the_servers_cursor_stands_in(desk) -> None:
    subscription = desk.subscription("orders")
    desk.put("orders", *[b"old"] * 5)
    desk.ask(Settle(BILLING, desk.epoch("billing"), (desk.settled("orders", subscription, 2),)))
    after = gone_back(desk, len(desk.records), generation=ONE)
    told = LostCursor("orders", Offset(4), Offset(-1), Offset(2), Offset(5))
    answer = lost(after, ("orders", subscription, 4), generation=OTHER)
    assert (answer.cursors, answer.parted) == ((told,), True)
    for generation in (1, ONE):
        answer = lost(after, ("orders", subscription, 4), generation=generation)
        assert (answer.cursors, answer.parted) == ((), False)
    answer = lost(after, ("orders", subscription, 2), generation=OTHER)
    assert (answer.cursors, answer.parted) == ((), True)  # it stands where the server has it
    ends = after.ask(WatchEnds((("orders", Offset(0)),), generation=OTHER))
    assert ends.topics[0].agreed == 2  # type: ignore[union-attr]  # all that is held


def test_an_epoch_that_was_not_granted_is_of_another_branch_too(desk) -> None:
    """A copy put back by hand, grown beyond the cursor again."""
    subscription = desk.subscription("orders")
    desk.put("orders", *[b"old"] * 5)
    known = (desk.settled("orders", subscription, 4),)
    told = LostCursor("orders", Offset(4), Offset(-1), Offset(0), Offset(5))
    answer = desk.ask(Compare(BILLING, Generation(1), Epoch(9), known))
    assert isinstance(answer, Compared)
    assert (answer.cursors, answer.parted) == ((told,), True)
    answer = desk.ask(Compare(BILLING, Generation(1), desk.epoch("billing"), known))
    assert isinstance(answer, Compared)
    assert (answer.cursors, answer.parted) == ((), False)
    after = gone_back(desk, len(desk.records), generation=ONE)
    answer = after.ask(Compare(BILLING, Generation(1), Epoch(9), known))
    assert isinstance(answer, Compared)
    assert (answer.cursors, answer.parted) == ((), False)  # a restore says up to where


@pytest.mark.parametrize(("last_epoch", "is_parted"), [(0, False), (1, True)])
def test_a_client_that_was_never_let_in_here_was_let_in_by_another_branch(
    desk, last_epoch: int, is_parted: bool
) -> None:
    question = Compare(ClientId("stranger"), desk.shard.generation, Epoch(last_epoch))
    assert desk.ask(question).parted is is_parted


def test_numbers_of_another_branch_are_not_taken_for_the_clients(desk) -> None:
    desk.subscription("orders")
    desk.put("orders", *[b"old"] * 5)
    topic = desk.shard.by_name["orders"]
    recent = recent_puts(desk, topic.id)
    for acknowledged, generation, is_lost in ((3, 1, False), (3, OTHER, True), (5, OTHER, False)):
        known = KnownNumbers("orders", topic.id, P, Sequence(acknowledged))
        answer = desk.ask(Compare(BILLING, Generation(generation), numbers=(known,)))
        assert isinstance(answer, Compared)
        told = LostNumbers("orders", P, Sequence(acknowledged), Sequence(5), recent)
        assert answer.numbers == ((told,) if is_lost else ())


@pytest.mark.parametrize("anew", [False, True])
def test_numbers_on_a_topic_that_was_deleted_after_it_lost_some_are_lost(desk, anew) -> None:
    desk.subscription("orders")
    topic_id = desk.put("orders", *[b"old"] * 5).topic_id
    upto = len(desk.records)
    desk.put("orders", *[b"lost"] * 3)
    after = gone_back(desk, upto)
    after.delete("orders")
    if anew:
        after.create("orders")
    after.sync()
    told = LostNumbers("orders", P, Sequence(8), Sequence(5))
    fewer = LostNumbers("orders", P, Sequence(3), Sequence(5))
    for topic, acknowledged, generation, expected in (
        (topic_id, 8, 1, (told,)),
        (topic_id, 5, 1, ()),  # all of it was there
        (topic_id, 3, 1, ()),
        (topic_id, 3, OTHER, (fewer,)),  # its own numbers 4 and 5 are other messages
        (0, 8, 1, ()),  # on which topic is not known
        (topic_id - 1, 8, 1, ()),  # an earlier one, of which nothing is kept
    ):
        known = KnownNumbers("orders", TopicId(topic), P, Sequence(acknowledged))
        answer = after.ask(Compare(BILLING, Generation(generation), numbers=(known,)))
        assert isinstance(answer, Compared)
        assert answer.numbers == expected


def test_a_subscription_that_ended_in_the_lost_future_is_told_when_it_is_there_again(desk) -> None:
    subscription = desk.subscription("orders")
    desk.put("orders", *[b"old"] * 5)
    upto = len(desk.records)
    desk.put("orders", *[b"lost"] * 3)
    ended = (desk.settled("orders", subscription, 8),)
    desk.unsubscribe("orders")

    def again(server: Desk, generation: int) -> "tuple[ThereAgain, ...]":
        answer = server.ask(Compare(BILLING, Generation(generation), ended=ended))
        assert isinstance(answer, Compared)
        return answer.again

    assert again(desk, 1) == ()
    after = gone_back(desk, upto, generation=ONE)
    told = ThereAgain("orders", subscription, Offset(8), Offset(5), Offset(0))
    assert again(after, 1) == (told,)
    assert again(after, OTHER) == (msgspec.structs.replace(told, agreed=Offset(-1)),)
    later = gone_back(desk, len(desk.records), generation=ONE)  # it ended there as well
    assert again(later, 1) == ()


def test_no_epoch_is_granted_in_two_branches(desk) -> None:
    desk.hello("billing")
    upto = len(desk.records)
    desk.hello("billing", last=1)  # of the future that is lost
    granted = {2}
    for generation in (ONE, OTHER):
        after = gone_back(desk, upto, generation=generation)
        after.hello("billing", last=1)
        after.hello("new")
        for client in ("billing", "new"):
            assert after.epochs[client] > 2
            assert after.epochs[client] < EPOCH_MAX
            granted.add(after.epochs[client])
        refused = after.shard.clients.refusal(BILLING, Epoch(2))
        assert refused is not None
        assert refused.code == "fenced"
    assert len(granted) == 3  # each branch has its own


def test_a_checkpoint_keeps_the_branch_and_the_epochs_that_belong_to_it(desk) -> None:
    subscription = desk.subscription("orders")
    desk.put("orders", *[b"old"] * 5)
    before = gone_back(desk, len(desk.records), generation=ONE)
    before.hello("billing", last=1)
    after = gone_back(before, len(before.records), generation=continued(ONE, 3))
    again = Desk()
    for blob in snapshot.capture(after.shard):
        snapshot.restore(again.shard, blob)
    for generation in (1, ONE):  # both led to it
        answer = lost(again, ("orders", subscription, 4), generation=generation)
        assert (answer.cursors, answer.parted) == ((), False)
    assert lost(again, ("orders", subscription, 4), generation=OTHER).parted
    assert again.ask(Hello(ClientId("new"), Epoch(0), 7)) == after.ask(
        Hello(ClientId("new"), Epoch(0), 7)
    )


def test_a_client_that_cannot_compare_is_refused_until_it_is_upgraded(desk) -> None:
    desk.hello("billing")
    assert isinstance(desk.ask(Hello(BILLING, Epoch(1), 5)), Welcome)
    after = gone_back(desk, len(desk.records), generation=ONE)
    answer = after.ask(Hello(BILLING, Epoch(2), 6))
    assert isinstance(answer, RefusedReply)
    assert (answer.code, "upgrade the client" in answer.detail) == ("history_lost", True)
    welcome = after.hello("billing", last=2)
    assert isinstance(welcome, Welcome)
    assert isinstance(after.ask(Hello(BILLING, welcome.client_epoch, 7)), Welcome)


def test_the_generations_that_led_to_a_log_are_known_the_newest_at_least() -> None:
    generations, newest = Generations(), Generation(1)
    for number in range(200):
        newest = continued(newest, number)
        generations.began(newest)
    assert generations.newest == newest
    assert len(generations.capture()) == KEPT - 1
    assert generations.has(Generation(1))
    assert generations.has(continued(198 << 24, 198))
    assert not generations.has(continued(99 << 24, 99))  # so long ago: not believed
    again = Generations()
    again.restore(generations.capture(), newest)
    again.began(newest)
    assert again.capture() == generations.capture()
    older = Generations()  # from a checkpoint of before they had names
    older.restore((), Generation(7))
    assert [older.has(Generation(each)) for each in (1, 6, 7)] == [True, False, True]


def test_a_generation_in_words() -> None:
    words = [in_words(each) for each in (1, 4711, continued(1, 0xABC), continued(ONE, 0))]
    assert words == ["1", "4711", "2-000abc", "3-000000"]
