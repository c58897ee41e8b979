"""What a replica needs to serve clients; and no time passes while nobody leads."""

import pytest

from oncemq.broker.expiry import Calendar
from oncemq.cluster.serving import Serving, down_for
from oncemq.protocol.limits import ServerLimits
from oncemq.protocol.names import LeaderEpoch, Micros, Serial
from oncemq.server.clock import DOWN_MICROS
from oncemq.server.events import Events
from tests.harness.replica_logs import LeaderLog, opened

NEWEST = 2_000  # the timestamp of the second topic
LATER = 10_000_000_000


@pytest.mark.parametrize(
    ("now", "calendar", "passed"),
    [
        (NEWEST + DOWN_MICROS, Calendar(), 0),
        (NEWEST + DOWN_MICROS + 1, Calendar(), 1),
        (NEWEST, Calendar(), 0),
        (NEWEST + LATER, Calendar(), LATER - DOWN_MICROS),
        (NEWEST, Calendar(timestamps=LATER), LATER - DOWN_MICROS),  # the date is that far ahead
        (NEWEST + LATER, Calendar(passed=1_000_000), LATER - DOWN_MICROS - 1_000_000),
    ],
)
def test_what_was_quiet_for_longer_than_a_server_is_down_makes_nothing_older(
    now: int, calendar: Calendar, passed: int
) -> None:
    directory = opened(LeaderLog(topics=2).own_home())
    directory.apply_to(Serial(3))
    assert down_for(directory, calendar, Micros(now)) == passed


def test_a_log_without_a_timestamp_was_not_quiet() -> None:
    directory = opened(LeaderLog().own_home())
    directory.apply_to(Serial(1))
    assert down_for(directory, Calendar(), Micros(LATER)) == 0


def test_the_driver_of_a_leader_has_the_whole_log_and_waits_for_others() -> None:
    leader = LeaderLog(topics=2)
    directory = opened(leader.own_home())
    serving = Serving(ServerLimits(), feed="tcp://a:2", events=Events())
    calendar = Calendar(timestamps=5)
    driver = serving.driver(directory, LeaderEpoch(1), calendar, lambda _: "too few", Micros(LATER))
    assert sorted(driver.shard.by_name) == ["t1", "t2"]
    assert driver.settled_serial == 3
    assert not driver.is_alone
    assert driver.events is serving.events
    assert (driver.reaches, driver.takes) == (serving.reaches, serving.takes)
    assert driver.connections is serving.connections
    assert driver.calendar == calendar
    assert driver.broker.listeners.feed == "tcp://a:2"
    refusal = driver.admission.replicas_refusal
    assert refusal is not None
    assert refusal(Micros(0)) == "too few"


def test_before_the_loop_binds_it_nobody_is_reached_and_everything_is_taken() -> None:
    serving = Serving(ServerLimits())
    assert serving.reaches(b"route", []) is False
    assert serving.takes(b"route") is True
    assert serving.connections() == {}
