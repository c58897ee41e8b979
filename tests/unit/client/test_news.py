"""What a client tells in its log: each fact once, at a level that says whom it is for."""

import logging
import shutil
import subprocess
import sys

import pytest

from oncemq.client.news import TOLD_MAX
from oncemq.client.verbs import messages
from oncemq.errors import HistoryLost, OutboxFull, StorageFull, Unwanted
from oncemq.protocol.names import Generation, Micros


@pytest.fixture(autouse=True)
def every_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "oncemq")


@pytest.fixture
def told(caplog):
    """The lines so far, with their levels; then they are forgotten."""

    def lines() -> list[str]:
        mine = [each for each in caplog.records if each.name != "oncemq.server"]
        found = [f"{each.levelname} {each.getMessage()}" for each in mine]
        caplog.clear()
        return found

    return lines


@pytest.fixture
def shop(world):
    shop = world.client("shop")
    shop.turn()
    return shop


@pytest.fixture
def reader(world):
    reader = world.client()
    reader.run(messages.subscribe(reader.engine, "orders", "new"))
    return reader


def test_a_start_is_told_with_its_server_epoch_and_generation(world, told) -> None:
    world.client("shop").turn()
    assert told() == [
        "INFO connected server=one client=shop",
        "INFO let in client=shop epoch=1 server=one generation=1",
    ]


def test_a_server_that_goes_and_comes_back_is_told_once_each(world, shop, told) -> None:
    told()
    shop.wire.cut()
    for _ in range(50):
        world.server.now += 2_000_000
        shop.turn()
    assert told() == [
        "WARNING server away server=one client=shop: what waits is sent when it is back"
    ]
    shop.wire.mend()
    shop.turn()
    assert told() == ["INFO server back server=one client=shop"]


def test_a_server_that_was_never_there_is_told_once(world, told) -> None:
    lonely = world.client()
    lonely.wire.events.clear()
    lonely.wire.up = False
    for _ in range(50):
        world.server.now += 1_000_000
        lonely.turn()
    assert [line.partition(" server=")[0] for line in told()] == ["WARNING server away"]
    lonely.wire.mend()
    lonely.turn()
    assert [line.partition(" server=")[0] for line in told()] == ["INFO server back"]


def test_a_fenced_client_is_told(world, shop, told) -> None:
    told()
    newer = world.crashed("shop")
    newer.turn()
    shop.put("orders", b"secret")
    shop.turn()
    fenced = [line for line in told() if "ended" in line]
    assert len(fenced) == 1
    assert fenced[0].startswith("WARNING client ended client=shop code=fenced: ")


def test_a_refused_put_is_told_the_first_time_on_its_topic(shop, told) -> None:
    told()
    for _ in range(3):
        shop.put("orders", b"secret", required=True)
        shop.turn(12)
    lines = told()
    assert len(lines) == 1
    assert lines[0].startswith("WARNING put refused topic=orders code=unwanted: ")
    assert "secret" not in lines[0]


def test_what_was_told_of_one_topic_is_still_known_after_another_was_refused(shop, told) -> None:
    told()
    for topic in ("orders", "bills", "orders", "bills"):
        shop.put(topic, b"secret", required=True)
        shop.turn(12)
    assert [line.split()[3] for line in told()] == ["topic=orders", "topic=bills"]


def test_of_very_many_topics_that_refuse_some_are_told_again(shop, told) -> None:
    told()
    refusal = Unwanted("nobody would get it", code="unwanted")
    for number in range(TOLD_MAX + 1):
        shop.engine.context.news.refused(f"t{number}", refusal, awaited=True)
    assert len(told()) == TOLD_MAX + 1
    shop.engine.context.news.refused("t0", refusal, awaited=True)
    assert len(told()) == 1


def test_an_outbox_that_is_full_is_told_once_a_minute(world, shop, told) -> None:
    told()
    shop.wire.cut()
    shop.turn()
    told()
    for _ in range(5):
        with pytest.raises(OutboxFull):
            shop.engine.outflow.check("orders", 2 << 20)
    assert told() == [
        (
            "WARNING no room client=shop: 0 bytes wait to be sent, the limit is 1048576; is the "
            "server away?"
        )
    ]
    world.server.now += 61_000_000
    with pytest.raises(OutboxFull):
        shop.engine.outflow.check("orders", 2 << 20)
    assert len(told()) == 1


def test_an_outbox_that_is_taken_over_is_told(world, shop, told) -> None:
    shop.wire.cut()
    shop.put("orders", b"secret", b"secret")
    told()
    world.crashed("shop")
    assert told() == ["INFO outbox of an ended process taken over client=shop state=state unsent=2"]


def begin_generation(world) -> None:
    """The server's log goes on from an earlier state, as after a restore."""
    broker, log = world.server.driver.broker, world.server.log
    step = broker.begin_generation(Generation(2), Micros(world.server.now))
    for write in step.writes:
        log.append(write.record, write.body)
    world.server.commit()


def test_a_new_state_is_not_told_that_the_log_went_back(world, told) -> None:
    begin_generation(world)
    shop = world.client("shop")
    shop.turn(12)
    assert told() == [
        "INFO connected server=one client=shop",
        "INFO let in client=shop epoch=1 server=one generation=2",
    ]


def test_a_state_that_knew_the_log_before_is_told_what_was_compared(world, shop, told) -> None:
    shop.wire.cut()
    begin_generation(world)
    told()
    after = world.crashed("shop")
    after.turn(12)
    assert [line for line in told() if line.startswith("WARNING")] == [
        (
            "WARNING server's log went back in time client=shop generation=2 before=1: all that "
            "this client took is there; what it put is compared when it puts again"
        )
    ]


def test_lost_history_is_an_error_with_the_way_out(world, reader, shop, told) -> None:
    backup = world.directory / "backup"
    shutil.copytree(world.server.directory, backup)
    shop.put("orders", b"secret")
    shop.turn()
    world.server.log.close()
    shutil.rmtree(world.server.directory)
    shutil.copytree(backup, world.server.directory)
    world.server.start()
    shop.wire.cut()
    shop.wire.mend()
    told()
    shop.put("orders", b"secret")
    shop.turn(12)
    assert isinstance(shop.engine.failure, HistoryLost)
    errors = [line for line in told() if line.startswith("ERROR")]
    assert len(errors) == 1
    assert errors[0].startswith("ERROR client ended client=shop code=history_lost: ")
    assert "once client accept --id shop" in errors[0]


def test_a_full_disk_of_the_server_or_of_the_client_is_told(
    world, shop, reader, told, monkeypatch
) -> None:
    told()

    def only_facts(size: int, *, now_ms: int, fact: bool = False) -> bool:
        return fact

    monkeypatch.setattr(world.server.log, "has_room", only_facts)
    shop.wire.cut()
    shop.put("orders", b"secret")
    after = world.crashed("shop")  # nobody waits for the put any more: it waits for room
    for _ in range(5):
        after.turn(12)
        world.server.now += 2_000_000
    assert [line.partition("; ")[0] for line in told() if "no room" in line] == [
        "WARNING no room client=shop: puts wait: the server's disk has no room left"
    ]
    world.server.now += 61_000_000
    monkeypatch.setattr(shop.state.slots[0]._log, "has_room", only_facts)
    with pytest.raises(StorageFull):
        shop.put("orders", b"secret")
    lines = [line for line in told() if "no room" in line]
    assert len(lines) == 1
    assert lines[0].startswith("WARNING no room client=shop: the disk of this client is full: ")


PROGRAM = """
from oncemq.client.puts.discards import Discards
from oncemq.client.news import News
from oncemq.client.values import Receipt

News("shop").linked("tcp://nowhere:1", connected=False)
Discards().note(Receipt("orders", None, stored=False, duplicate=False))
"""


def test_where_logging_is_not_set_up_only_what_is_lost_is_printed() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stderr.startswith("put discarded topic=orders: ")
    assert done.stderr.count("\n") == 1
