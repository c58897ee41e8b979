"""The server's clock: waits by the steady clock, timestamps by the wall, ages by neither alone."""

import logging

import pytest

from oncemq.server.clock import DOWN_MICROS, SECOND_LOOK_MICROS, STEP_MICROS, SteadyClock

SECOND = 1_000_000
HOUR = 3_600 * SECOND
DAY = 24 * HOUR


class Times:
    """A wall clock that can be set, and a steady one."""

    def __init__(self, last_timestamp: int = 0) -> None:
        self.wall = 100 * DAY
        self.steady = 50
        self.clock = SteadyClock(lambda: self.wall, lambda: self.steady, last_timestamp)

    def after(self, micros: int, *, set_by: int = 0) -> None:
        self.wall += micros + set_by
        self.steady += micros
        self.clock()

    @property
    def now(self) -> int:
        return self.clock() - 100 * DAY

    @property
    def timestamp(self) -> int:
        return self.now + self.clock.calendar.timestamps

    @property
    def aged(self) -> int:
        """The newest timestamp that is as old as nothing."""
        calendar = self.clock.calendar
        return self.now + calendar.timestamps - calendar.passed


def test_as_long_as_nobody_sets_the_clock_all_readings_are_the_walls() -> None:
    times = Times()
    for passed in (0, 7, 1_000):
        times.after(passed)
    assert (times.now, times.timestamp, times.aged) == (1_007, 1_007, 1_007)


def test_set_forward_by_a_little_timestamps_follow_and_ages_do_not() -> None:
    times = Times()
    times.after(10, set_by=30 * SECOND)
    assert (times.now, times.timestamp, times.aged) == (10, 30 * SECOND + 10, 10)


def test_set_forward_for_a_moment_nothing_follows(caplog) -> None:
    times = Times()
    times.after(SECOND, set_by=8 * DAY)
    assert (times.now, times.timestamp, times.aged) == (SECOND, SECOND, SECOND)
    times.after(SECOND, set_by=-8 * DAY)
    times.after(2 * SECOND_LOOK_MICROS)
    passed = 2 * SECOND + 2 * SECOND_LOOK_MICROS
    assert (times.now, times.timestamp, times.aged) == (passed, passed, passed)
    assert [record.message for record in caplog.records] == [
        "clock set forward seconds=691200; looking again"
    ]


def test_set_forward_for_good_timestamps_follow_at_the_second_look_and_ages_never(caplog) -> None:
    caplog.set_level(logging.WARNING)
    times = Times()
    times.after(SECOND, set_by=8 * DAY)
    times.after(SECOND_LOOK_MICROS - 1)
    assert times.timestamp == SECOND + SECOND_LOOK_MICROS - 1
    times.after(1)
    passed = SECOND + SECOND_LOOK_MICROS
    assert (times.now, times.timestamp, times.aged) == (passed, passed + 8 * DAY, passed)
    assert "clock followed seconds=691200" in caplog.text


def test_set_back_timestamps_go_on_at_half_speed_and_waits_take_their_time() -> None:
    times = Times()
    times.after(10, set_by=-HOUR)
    before = times.timestamp
    times.after(HOUR)
    assert times.now == 10 + HOUR
    assert times.timestamp == before + HOUR // 2
    assert times.aged == times.timestamp  # a new timestamp is never older than it is
    times.after(2 * HOUR)
    assert times.timestamp == 10 + 2 * HOUR  # the wall's time again


@pytest.mark.parametrize("set_by", [-8 * DAY, -HOUR, -SECOND, SECOND, HOUR, 8 * DAY])
def test_however_the_clock_is_set_nothing_grows_older_than_it_is(set_by: int) -> None:
    times = Times()
    made: list[tuple[int, int]] = []
    for step in range(400):
        times.after(SECOND, set_by=set_by if step in (50, 200, 201) else 0)
        made.append((times.timestamp, times.now))
        assert made[-1][0] >= made[max(0, step - 1)][0]
        for timestamp, moment in made[:: 1 + step // 10]:
            assert times.aged - timestamp <= times.now - moment


def test_while_the_server_is_down_things_grow_older_by_an_hour_at_most() -> None:
    assert Times(100 * DAY - HOUR).aged == 0
    assert Times(92 * DAY).aged == -8 * DAY + DOWN_MICROS
    assert Times(120 * DAY).aged == 0  # the wall was set back: its time counts, which is earlier


def test_a_step_is_what_no_slow_machine_makes() -> None:
    assert STEP_MICROS >= 60 * SECOND
