"""What time does: guests are forgotten after a day, and nothing a promise rests on ever is."""

from oncemq.broker.expiry import (
    BATCH,
    DAY,
    FACT_BYTES_MAX,
    GONE_MICROS,
    TOPICS_A_LOOK,
    UPKEEP_BYTES,
    Calendar,
    Rounds,
    size_of,
)
from oncemq.protocol.names import ClientId, Micros, Offset, ProducerId, TopicId
from oncemq.protocol.records import (
    KeysForgotten,
    PatternUnsubscribed,
    ProducersForgotten,
    Retention,
    SubscriptionEnded,
)

TAG = 7 << 32
ORDERS = TopicId(TAG | 1)


def forget(desk, seconds: float = 0):
    """What the broker writes about guests, so much later."""
    desk.now += int(seconds * 1_000_000)
    return [w.record for w in desk.note(desk.broker.forget_guests(Micros(desk.now))).writes]


def guest(name: bytes) -> ProducerId:
    return ProducerId(name.ljust(16, b"."))


def test_an_anonymous_producer_is_forgotten_a_day_after_its_last_word(desk) -> None:
    desk.create("orders")
    desk.put("orders", b"a", producer=b"guest", lasting=False)
    last_word = desk.shard.guests[ORDERS, guest(b"guest")]
    desk.now = last_word + DAY - 1
    assert forget(desk) == []
    desk.now = last_word + DAY
    assert forget(desk) == [ProducersForgotten(ORDERS, (guest(b"guest"),))]
    assert desk.shard.by_name["orders"].producers == {}
    assert forget(desk) == []


def test_a_word_gives_it_another_day(desk) -> None:
    desk.put("orders", b"a", producer=b"guest", lasting=False)
    desk.now += DAY - 1
    desk.put("orders", b"b", producer=b"guest", lasting=False)
    assert forget(desk, 10) == []


def test_a_producer_with_state_is_kept_as_long_as_its_topic(desk) -> None:
    desk.put("orders", b"a")
    assert forget(desk, 10 * 86_400) == []
    assert desk.put("orders", b"a", first=1).duplicate


def test_a_producer_that_ever_lasted_is_kept_though_it_began_as_a_guest(desk) -> None:
    desk.put("orders", b"a", lasting=False)
    desk.put("orders", b"b", lasting=True)
    assert forget(desk, 10 * 86_400) == []
    assert desk.put("orders", b"b", first=2).duplicate


def test_a_producer_with_state_is_no_guest_for_one_put_that_does_not_last(desk) -> None:
    desk.put("orders", b"a", lasting=True)
    desk.put("orders", b"b", lasting=False)
    assert forget(desk, 10 * 86_400) == []


def test_guests_are_forgotten_a_batch_at_a_time(desk) -> None:
    for number in range(BATCH + 1):
        desk.put("orders", b"a", producer=b"%d" % number, lasting=False)
    assert [len(record.producers) for record in forget(desk, 86_401)] == [BATCH]
    assert [len(record.producers) for record in forget(desk)] == [1]


def test_guests_of_a_deleted_topic_are_gone_with_it(desk) -> None:
    desk.put("orders", b"a", producer=b"guest", lasting=False)
    desk.delete("orders")
    assert forget(desk, 86_401) == []


def test_a_guests_subscriptions_end_two_minutes_after_its_last_word(desk) -> None:
    desk.subscribe("orders", "_anonymous-1")
    desk.subscribe("refunds", "_anonymous-1")
    desk.subscribe("orders", "billing")
    desk.now += GONE_MICROS - 1
    desk.get("orders", "_anonymous-1")
    assert forget(desk, 119) == []
    ended = forget(desk, 1)
    topics = [TopicId(TAG | 1), TopicId(TAG | 3)]
    assert ended == [SubscriptionEnded(each, ClientId("_anonymous-1")) for each in topics]
    assert desk.get("orders", "_anonymous-1").code == "not_subscribed"
    assert list(desk.shard.by_name["orders"].subscriptions) == ["billing"]


def test_a_guest_that_is_silent_is_looked_for_and_stays_as_long_as_it_is_found(desk) -> None:
    desk.subscribe("orders", "_anonymous-1")
    assert desk.broker.silent_guests(Micros(desk.now)) == []
    for _ in range(100):
        desk.now += 60_000_000
        assert desk.broker.silent_guests(Micros(desk.now)) == [("_anonymous-1", b"route")]
        desk.broker.guest_is_there(ClientId("_anonymous-1"), b"route", Micros(desk.now))
        assert forget(desk) == []
    assert [type(record) for record in forget(desk, 120)] == [SubscriptionEnded]


def test_whatever_a_guest_says_shows_that_it_is_there(desk) -> None:
    guest_id = ClientId("_anonymous-1")
    desk.subscribe("orders", guest_id)
    for word in (
        lambda: desk.put("orders", b"a", client=guest_id, lasting=False),
        lambda: desk.settle(client=guest_id),
        lambda: desk.step(desk.getting("", guest_id, wait=60)),
        lambda: desk.resume("orders", guest_id),
    ):
        assert forget(desk, 100) == []
        word()


def test_the_pattern_of_a_guest_ends_before_what_it_made(desk) -> None:
    """What it made would else be missed by nobody, if the power failed in between."""
    desk.create("orders")
    desk.subscribe("*", "_anonymous-1")
    ended = forget(desk, 120)
    assert [type(record) for record in ended] == [PatternUnsubscribed, SubscriptionEnded]
    assert forget(desk, 120) == []


def test_the_end_of_many_subscriptions_is_written_a_part_at_a_time(desk) -> None:
    for number in range(3_000):
        desk.create(f"t{number}")
    client = "_anonymous-" + "x" * 200
    desk.subscribe(">", client)
    steps: list[int] = []
    desk.now += GONE_MICROS
    while records := forget(desk, 1):
        assert sum(map(size_of, records)) <= UPKEEP_BYTES
        steps.append(len(records))
    assert len(steps) > 1
    assert sum(steps) == 3_001
    assert not desk.shard.subscribes(ClientId(client))


def test_a_guest_that_only_asks_leaves_nothing_behind_to_remember(desk) -> None:
    for number in range(10):
        desk.get("orders", f"_anonymous-{number}")
    assert desk.broker._upkeep._visits == {}


def test_after_a_restart_every_guest_has_two_minutes_to_come_back(desk) -> None:
    desk.subscribe("orders", "_anonymous-1")
    desk.put("orders", b"a", producer=b"guest", lasting=False)
    desk.sync()
    after = desk.crash()
    after.now += 2 * DAY
    after.broker.recovered(Micros(after.now))
    assert [type(record) for record in forget(after)] == [ProducersForgotten]
    assert [type(record) for record in forget(after, 120)] == [SubscriptionEnded]


def test_a_clock_set_forward_makes_timestamps_later_and_nothing_older(desk) -> None:
    desk.create("orders")
    desk.put_keyed("orders", "order-7", b"pay 10")
    desk.put("orders", b"a", producer=b"guest", lasting=False)
    desk.note(desk.broker.keep_time(Calendar(8 * DAY, passed=8 * DAY), Micros(desk.now)))
    desk.put("orders", b"b")
    assert desk.shard.last_timestamp == desk.now + 8 * DAY + 1
    assert forget(desk, 60) == []
    assert desk.put_keyed("orders", "order-7", b"pay 10").duplicate
    assert [type(record) for record in forget(desk, 86_400)] == [ProducersForgotten]
    assert [type(record) for record in forget(desk, 6 * 86_400)] == [KeysForgotten]


def test_a_tick_looks_at_so_many_topics_and_a_round_at_all_of_them() -> None:
    rounds, topics = Rounds(), dict.fromkeys(map(TopicId, range(2 * TOPICS_A_LOOK + 5)))
    looks = [rounds.some(topics) for _ in range(4)]
    assert [len(each) for each in looks] == [TOPICS_A_LOOK, TOPICS_A_LOOK, 5, TOPICS_A_LOOK]
    assert sorted([*looks[0], *looks[1], *looks[2]]) == list(topics)


def test_a_sweep_of_stages_asks_once_for_the_lowest_cursor_of_a_topic(desk) -> None:
    desk.create("orders", Retention(forever=True))
    for number in range(1, 51):
        desk.stage(b"%d" % number, b"x")
        desk.commit(("orders", b"%d" % number, 0, 1), number=number)
    asked: list[TopicId] = []

    def low_of(topic_id: TopicId) -> Offset | None:
        asked.append(topic_id)
        return desk.shard.low_of(topic_id)

    desk.shard.stages.release(low_of)
    assert len(desk.shard.stages) == 50
    assert asked == [ORDERS]


def test_no_more_is_forgotten_in_one_go_than_there_is_room_for(desk) -> None:
    for number in range(4):
        topic = f"t{number}"
        desk.create(topic)
        desk.put(topic, b"a", producer=b"guest", lasting=False)
    desk.now += 2 * DAY
    room = FACT_BYTES_MAX + size_of(ProducersForgotten(ORDERS, (guest(b"guest"),))) + 1
    gone = [len(desk.note(desk.broker.forget_guests(Micros(desk.now), room)).writes)]
    while sum(gone) < 4:
        gone.append(len(desk.note(desk.broker.forget_guests(Micros(desk.now), room)).writes))
    assert gone == [2, 2]
    assert forget(desk) == []
