"""How old a timestamp is, whatever the clock was set to since, and whoever was restarted."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from oncemq.broker.expiry import NOTED_MICROS, QUIET_MICROS, Calendar
from oncemq.broker.state import snapshot
from oncemq.broker.state.ages import STEPS_MAX, Ages
from oncemq.broker.state.shard import Shard
from oncemq.protocol.names import Micros, Serial
from oncemq.protocol.records import ClockNoted, KeysForgotten, ProducersForgotten

SECOND = 1_000_000
HOUR = 3_600 * SECOND
DAY = 24 * HOUR


def stepped(*steps: tuple[int, int]) -> Ages:
    ages = Ages()
    for after, passed in steps:
        ages.apply(ClockNoted(Micros(after), passed, Micros(after + passed)))
    return ages


def test_without_a_step_an_age_is_a_difference() -> None:
    assert Ages().at(Micros(100)).before(30) == 70


def test_a_step_is_left_out_of_the_age_of_what_was_before_it() -> None:
    now = stepped((50, 1_000)).at(Micros(1_060))
    assert now.before(10) == 1_050  # since the step
    assert now.before(11) == 49
    assert now.before(30) == 30


def test_steps_add_up() -> None:
    now = stepped((50, 1_000), (1_060, 5_000)).at(Micros(6_070))
    assert [now.before(age) for age in (10, 11, 20, 21)] == [6_060, 1_059, 1_050, 49]


def test_a_step_that_is_known_changes_nothing() -> None:
    ages = stepped((50, 1_000), (50, 1_000), (20, 7))
    assert ages.capture() == ((50, 1_000),)


def test_the_oldest_two_of_too_many_steps_become_one() -> None:
    steps = [(after, 10 + after) for after in range(1, STEPS_MAX + 1)]
    assert stepped(*steps).capture() == tuple(steps)
    more = stepped(*steps, (STEPS_MAX + 1, 7)).capture()
    assert more == ((2, 11 + 12), *steps[2:], (STEPS_MAX + 1, 7))


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(1, 9)), max_size=3 * STEPS_MAX))
def test_nothing_is_taken_for_older_than_it_is_however_many_steps_there_were(spans) -> None:
    ages, stamp, passed = Ages(), 0, 0
    stored: list[tuple[int, int]] = []  # timestamp, and the true time
    for true_span, step in spans:
        stamp += true_span
        stored.append((stamp, stamp - passed))
        ages.apply(ClockNoted(Micros(stamp), step, Micros(stamp + step)))
        stamp, passed = stamp + step, passed + step
    assert len(ages.capture()) <= STEPS_MAX
    for timestamp, true in stored:
        age = stamp - passed - true
        assert ages.at(Micros(stamp)).before(age + 1) < timestamp
    recent = stored[-STEPS_MAX:]
    for timestamp, true in recent:
        assert ages.at(Micros(stamp)).before(stamp - passed - true) >= timestamp
    ages_of = [ages.at(Micros(stamp)).before(age) for age in range(100)]
    assert all(later <= sooner for sooner, later in pairwise(ages_of))


def keep_time(desk, timestamps: int, passed: int) -> list[ClockNoted]:
    step = desk.broker.keep_time(Calendar(timestamps, passed), Micros(desk.now))
    return [write.record for write in desk.note(step).writes]


def test_a_step_is_noted_once_behind_the_newest_timestamp(desk) -> None:
    desk.create("orders")
    desk.put("orders", b"a")
    newest = desk.shard.last_timestamp
    assert keep_time(desk, 8 * DAY, 8 * DAY) == [
        ClockNoted(newest, 8 * DAY, Micros(desk.now + 8 * DAY))
    ]
    assert keep_time(desk, 8 * DAY, 8 * DAY) == []
    assert keep_time(desk, 8 * DAY + 9, 8 * DAY + NOTED_MICROS - 1) == []
    assert len(keep_time(desk, 8 * DAY + 9, 8 * DAY + NOTED_MICROS)) == 1


def test_after_a_restart_nothing_is_older_for_a_step_that_was_made_before(desk) -> None:
    desk.create("orders")
    desk.put_keyed("orders", "order-7", b"pay 10")
    desk.put("orders", b"a", producer=b"guest", lasting=False)
    keep_time(desk, 8 * DAY, 8 * DAY)
    desk.put("orders", b"b")
    desk.sync()
    after = desk.crash()
    after.now = desk.now + 8 * DAY  # the wall's time, from which the server counts anew
    assert forget(after, 3_600) == []
    assert after.put_keyed("orders", "order-7", b"pay 10").duplicate
    assert [type(each) for each in forget(after, 86_400)] == [ProducersForgotten]
    assert [type(each) for each in forget(after, 6 * 86_400)] == [KeysForgotten]


def forget(desk, seconds: float):
    desk.now += int(seconds * SECOND)
    return [w.record for w in desk.note(desk.broker.forget_guests(Micros(desk.now))).writes]


def test_a_checkpoint_keeps_the_steps() -> None:
    before, after = Shard(7), Shard(7)
    before.apply(ClockNoted(Micros(50), 1_000, Micros(1_050)), Serial(1))
    for blob in snapshot.capture(before):
        snapshot.restore(after, blob)
    assert after.ages.capture() == ((50, 1_000),)
    assert after.last_timestamp == 1_050
    after.apply(ClockNoted(Micros(50), 1_000, Micros(1_050)), Serial(1))
    assert after.ages.capture() == ((50, 1_000),)


def test_when_nothing_happens_the_time_is_noted_now_and_then(desk) -> None:
    desk.create("orders")
    newest = desk.shard.last_timestamp
    desk.now += QUIET_MICROS - 1
    assert desk.broker.note_time(Micros(desk.now)).writes == []
    desk.now += 1
    (write,) = desk.note(desk.broker.note_time(Micros(desk.now))).writes
    assert write.record == ClockNoted(newest, 0, Micros(desk.now))
    assert desk.shard.last_timestamp == desk.now
    assert desk.shard.ages.capture() == ()
    assert desk.broker.note_time(Micros(desk.now)).writes == []
