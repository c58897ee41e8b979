"""How old things are after a failover to a server whose clock is hours ahead."""

from oncemq.broker.expiry import Calendar
from oncemq.protocol.names import Micros
from tests.harness.trio import SERVERS, TURN, Trio

HOUR = 3_600_000_000


def test_nothing_is_older_for_a_new_leader_than_the_time_that_it_followed_for() -> None:
    trio = Trio()
    trio.subscribe("orders")
    trio.put("orders")
    trio.until(trio.are_in_sync)
    first = trio.until_led()
    for name in SERVERS:
        if name != first:
            trio.running[name].replica.keep_time(Calendar(timestamps=9 * HOUR), Micros(trio.now))
    begun = trio.now
    trio.kill(first)
    trio.put("orders")
    opened = trio.running[trio.until_led()].replica._parts.opened
    assert opened is not None
    passed = trio.now - begun
    now = opened.shard.last_timestamp
    assert now > begun + 8 * HOUR, "no clock was ahead"
    topic = opened.shard.by_name["orders"]
    (producer,) = topic.producers.values()
    reading = opened.shard.ages.at(Micros(now))
    assert reading.before(passed + 100 * TURN) < producer.seen_before


def test_a_server_that_comes_back_counts_an_hour_at_most() -> None:
    trio = Trio()
    trio.subscribe("orders")
    trio.put("orders")
    trio.until(trio.are_in_sync)
    for name in SERVERS:
        trio.kill(name)
    for name in SERVERS:
        trio.start(name)
        trio.running[name].replica.keep_time(Calendar(timestamps=9 * HOUR), Micros(trio.now))
    trio.put("orders")
    opened = trio.running[trio.until_led()].replica._parts.opened
    assert opened is not None
    topic = opened.shard.by_name["orders"]
    (producer,) = topic.producers.values()
    reading = opened.shard.ages.at(Micros(opened.shard.last_timestamp))
    assert reading.before(2 * HOUR) < producer.seen_before <= reading.before(HOUR)
