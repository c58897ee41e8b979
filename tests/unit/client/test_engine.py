"""The engine against a real driver: crashes of either side, lost answers, twins, and order."""

from itertools import count

import pytest

from oncemq.client.engine.current_server import CONNECT_PATIENCE
from oncemq.client.engine.engine import FULL_MICROS
from oncemq.client.engine.survival import surviving
from oncemq.client.ticket import Ticket
from oncemq.client.values import Receipt
from oncemq.client.verbs import messages as verbs
from oncemq.client.verbs.keyed_puts import check_key, put_keyed
from oncemq.errors import (
    Corrupt,
    Fenced,
    HistoryLost,
    InvalidRequest,
    NotSubscribed,
    Refused,
    StaleState,
    StorageFull,
    StorageUnsure,
    Unreachable,
)
from oncemq.protocol.generations import FIRST
from oncemq.protocol.limits import ServerLimits
from oncemq.protocol.names import Generation, Micros
from oncemq.protocol.records import Retention
from oncemq.protocol.replies import Done, Unsubscribed
from oncemq.protocol.requests import CreateTopic
from oncemq.wire import batch
from tests.harness.client import World


def ids(ticket) -> list[str | None]:
    return [receipt.id for receipt in ticket.result()]


@pytest.fixture
def reader(world):
    """An anonymous subscriber of orders."""
    reader = world.client()
    assert reader.run(verbs.subscribe(reader.engine, "orders", "new")) is True
    return reader


@pytest.fixture
def shop(world, reader):
    """A publisher with state, let in."""
    shop = world.client("shop")
    shop.turn()
    return shop


# ------------------------------------------------------------------ putting


def test_a_put_gets_its_receipt_and_is_stored(world, shop) -> None:
    ticket = shop.put("orders", b"a", b"b")
    shop.turn()
    assert ids(ticket) == ["orders@0", "orders@1"]
    assert world.server.stored("orders") == [b"a", b"b"]
    assert shop.engine.outflow.idle


def test_a_put_whose_answer_was_lost_is_stored_once(world, shop) -> None:
    shop.wire.lose = lambda number: True
    ticket = shop.put("orders", b"a")
    shop.turn()
    assert not ticket.done
    shop.wire.lose = lambda number: False
    world.server.now += 2_000_000
    shop.turn()
    assert ticket.result()[0].duplicate is True
    assert (ids(ticket), world.server.stored("orders")) == (["orders@0"], [b"a"])
    assert shop.engine.outflow.duplicates == 1


def test_puts_made_while_the_server_is_away_go_out_once_when_it_is_back(world, shop) -> None:
    shop.wire.cut()
    tickets = [shop.put("orders", b"%d" % number) for number in range(20)]
    shop.turn()
    assert not any(ticket.done for ticket in tickets)
    shop.wire.mend()
    shop.turn(30)
    assert all(ticket.done for ticket in tickets)
    assert world.server.stored("orders") == [b"%d" % number for number in range(20)]


def test_a_put_lost_by_a_crash_of_the_server_is_sent_again(world, shop) -> None:
    ticket = shop.put("orders", b"a")
    shop.pump()  # it arrives, and is not durable yet
    world.server.crash()
    shop.wire.cut()
    shop.wire.mend()
    shop.turn()
    assert ids(ticket) == ["orders@0"]
    assert world.server.stored("orders") == [b"a"]


@pytest.mark.parametrize("moment", ["recorded", "sent", "stored", "answered"])
def test_a_client_killed_at_any_point_of_a_put_has_it_stored_once(world, shop, moment) -> None:
    shop.put("orders", b"first")
    shop.turn()
    shop.put("orders", b"second")
    if moment != "recorded":
        shop.pump()
    if moment in ("stored", "answered"):
        world.server.commit()
    if moment == "answered":
        shop.pump()
    after = world.crashed("shop")
    after.turn(10)
    assert after.engine.outflow.idle
    assert world.server.stored("orders") == [b"first", b"second"]
    after.put("orders", b"third")
    after.turn()
    assert world.server.stored("orders") == [b"first", b"second", b"third"]


def test_an_outbox_is_sent_after_a_restart_without_anyone_asking(world, shop) -> None:
    shop.wire.cut()
    shop.put("orders", b"a")
    shop.put("refunds", b"r")
    after = world.crashed("shop")
    assert after.engine.outflow.unsent == 2
    after.turn()
    assert world.server.stored("orders") == [b"a"]


def test_a_put_nobody_wants_says_so(world, shop) -> None:
    ticket = shop.put("unwanted", b"a")
    shop.turn()
    (receipt,) = ticket.result()
    assert (receipt.stored, receipt.offset, receipt.id) == (False, None, None)


def test_puts_with_and_without_a_record_keep_their_order(world, shop) -> None:
    for number in range(6):
        shop.put("orders", b"%d" % number, lasting=bool(number % 2))
    shop.turn(20)
    assert world.server.stored("orders") == [b"%d" % number for number in range(6)]


def test_gathered_puts_with_and_without_a_record_keep_their_order(world, shop) -> None:
    for number in range(6):
        shop.gather("orders", b"%d" % number, lasting=bool(number % 2))
    shop.turn(20)
    assert world.server.stored("orders") == [b"%d" % number for number in range(6)]


def test_a_gathered_put_goes_before_the_one_gathered_after_it(world, shop) -> None:
    shop.gather("orders", b"first", lasting=False)
    shop.gather("orders", b"second", lasting=True)
    shop.put("orders", b"third")
    shop.turn(20)
    assert world.server.stored("orders") == [b"first", b"second", b"third"]


def test_single_puts_are_gathered_into_batches_with_a_receipt_each(world, shop) -> None:
    tickets = {id(shop.gather("orders", b"%d" % number)) for number in range(10)}
    ticket = shop.gather("orders", b"10")
    assert tickets == {id(ticket)}
    shop.turn()
    assert ids(ticket) == [f"orders@{number}" for number in range(11)]


def test_a_topic_deleted_and_made_again_is_put_to_again(world, shop, reader) -> None:
    shop.put("orders", b"a", b"b")
    shop.turn()
    reader.run(verbs.delete_topic(reader.engine, "orders"))
    reader.run(verbs.subscribe(reader.engine, "orders", "new"))
    tickets = [shop.put("orders", b"c"), shop.put("orders", b"d")]
    shop.turn(12)
    assert [ids(ticket) for ticket in tickets] == [["orders@0"], ["orders@1"]]
    assert world.server.stored("orders") == [b"c", b"d"]


def test_new_numbers_are_on_disk_before_they_are_used(world, shop, reader) -> None:
    shop.put("orders", b"a", b"b")
    shop.turn()
    reader.run(verbs.delete_topic(reader.engine, "orders"))
    reader.run(verbs.subscribe(reader.engine, "orders", "new"))
    shop.put("orders", b"c")
    for _ in range(12):
        shop.pump()
        after = world.crashed("shop")  # at every point of the renumbering
        after.wire.cut()
        world.server.commit()
    after = world.crashed("shop")
    after.turn(12)
    assert world.server.stored("orders") == [b"c"]


def test_a_refused_put_fails_and_those_behind_it_go_on_in_its_place(world, shop) -> None:
    good = shop.put("orders", b"a")
    bad = shop.put("orders", b"x" * (17 << 20))
    after = shop.put("orders", b"b")
    shop.turn(12)
    assert world.server.stored("orders") == [b"a", b"b"]
    assert (good.result()[0].stored, ids(after)) == (True, ["orders@1"])
    with pytest.raises(InvalidRequest, match="over the limit"):
        bad.result()


def test_a_put_before_a_refused_one_gets_its_own_receipt(world, shop) -> None:
    unwanted = shop.put("unwanted", b"a")
    shop.put("unwanted", b"x" * (17 << 20))
    shop.turn(12)
    assert unwanted.result()[0].stored is False


def test_every_put_to_a_topic_that_cannot_be_made_is_refused(world, shop) -> None:
    tickets = [shop.put("_system", b"%d" % number) for number in range(3)]
    shop.turn(30)
    for ticket in tickets:
        with pytest.raises(InvalidRequest, match="the system's"):
            ticket.result()
    assert shop.engine.outflow.idle
    assert len(shop.engine.exchanges) == 0


def test_a_put_that_waits_for_room_is_not_sent_again_at_once(world, shop, monkeypatch) -> None:
    shop.wire.cut()
    shop.put("orders", b"a")
    after = world.crashed("shop")
    room = world.server.log.has_room
    monkeypatch.setattr(world.server.log, "has_room", lambda size, *, now_ms, fact=False: fact)
    after.turn(5)
    before = after.wire.sent
    after.turn(50)
    often = after.wire.sent - before
    due = after.engine.next_deadline()  # nobody else wakes it
    assert due is not None
    assert world.server.now < due <= world.server.now + 1_000_000
    monkeypatch.setattr(world.server.log, "has_room", room)
    world.server.now += 10_000_000
    after.turn()
    assert world.server.stored("orders") == [b"a"]
    assert often <= 2


@pytest.mark.parametrize("lasting", [True, False])
def test_copies_of_a_refused_put_and_of_those_behind_it_are_stored_never_and_once(
    world, shop, monkeypatch, lasting
) -> None:
    copies: list[list[bytes]] = []
    send = shop.wire.send

    def sends(frames) -> bool:
        copies.append([bytes(frame) for frame in frames])
        return send(frames)

    shop.wire.send = sends
    monkeypatch.setattr(world.server.log, "has_room", lambda size, *, now_ms, fact=False: fact)
    refused = shop.put("orders", b"refused", lasting=lasting)
    behind = shop.put("orders", b"behind", lasting=lasting)
    shop.pump()
    monkeypatch.undo()
    shop.turn(12)
    with pytest.raises(StorageFull):
        refused.result()
    assert ids(behind) == ["orders@0"]
    for frames in copies:  # in any order they are too late
        world.server.driver.receive(b"old route", frames, Micros(world.server.now))
    world.server.commit()
    assert world.server.stored("orders") == [b"behind"]


def test_a_resume_that_is_answered_late_and_sent_often_is_enough(world, shop, reader) -> None:
    shop.put("orders", b"a")
    shop.turn()
    reader.run(verbs.delete_topic(reader.engine, "orders"))
    reader.run(verbs.subscribe(reader.engine, "orders", "new"))
    ticket = shop.put("orders", b"b")
    for _ in range(12):  # every answer takes longer than a client waits before it asks again
        for _ in range(3):
            shop.engine.pump()
            world.server.now += 4_000_000
        shop.turn(1)
    assert ids(ticket) == ["orders@0"]


# ------------------------------------------------------------------ getting


def test_messages_are_settled_on_disk_before_they_are_returned(world, shop) -> None:
    shop.run(verbs.subscribe(shop.engine, "orders", "new"))
    shop.put("orders", b"a", b"b", b"c")
    shop.turn()
    assert shop.get("orders", limit=2) == ["orders@0=a", "orders@1=b"]
    after = world.crashed("shop")
    after.turn()
    assert after.get("orders") == ["orders@2=c"]


def test_a_server_that_lost_the_cursor_in_a_crash_is_told_again(world, shop, reader) -> None:
    for payload in (b"a", b"b", b"c"):
        shop.put("orders", payload)
    shop.turn()
    assert reader.get("orders", limit=2) == ["orders@0=a", "orders@1=b"]
    reader.engine.subscriber.prefetched.put_back("orders")
    reader.engine.fetch("orders", 1, 0)
    reader.pump()
    reader.pump()  # the cursor is told, and the answer was here before it is durable
    reader.engine.subscriber.prefetched.put_back("orders")
    world.server.crash()
    reader.wire.cut()
    reader.wire.mend()
    assert reader.get("orders", limit=1, wait_ms=1_000) == ["orders@2=c"]
    assert reader.get("orders") == []
    subscription = world.server.driver.broker.shard.by_name["orders"].subscriptions
    assert [each.cursor for each in subscription.values()] == [3]


def test_a_lost_answer_to_a_get_brings_the_messages_once(world, shop, reader) -> None:
    shop.put("orders", b"a")
    shop.turn()
    lost = [True]
    reader.wire.lose = lambda number: bool(lost and lost.pop())
    assert reader.get("orders", wait_ms=3_000) == ["orders@0=a"]
    assert reader.get("orders") == []


def test_a_get_of_any_topic_gives_each_message_once_whatever_the_order(world, shop, reader) -> None:
    reader.run(verbs.subscribe(reader.engine, "refunds", "new"))
    for topic in ("orders", "refunds", "orders", "orders", "refunds"):
        shop.put(topic, topic[:1].encode())
        shop.turn()
    got = ["orders@0=o", "refunds@0=r", "orders@1=o", "orders@2=o", "refunds@1=r"]
    assert reader.get(limit=3) + reader.get(limit=9) == got
    assert reader.get() == []


def test_going_between_one_topic_and_any_loses_and_repeats_nothing(world, shop, reader) -> None:
    reader.run(verbs.subscribe(reader.engine, "refunds", "new"))
    for number in range(12):
        shop.put("orders", b"%d" % number)
        shop.put("refunds", b"%d" % number)
        shop.turn()
    got: list[str] = []
    for number in range(40):
        got += reader.get(("orders", "", "refunds", "")[number % 4], limit=1 + number % 2)
    for topic in ("orders", "refunds"):
        mine = [each for each in got if each.startswith(topic)]
        assert mine == [f"{topic}@{number}={number}" for number in range(12)]


def test_what_was_put_back_comes_again_with_nothing_missing(world, shop, reader) -> None:
    for number in range(12):
        shop.put("orders", b"%d" % number)
    shop.turn(12)
    got: list[str] = []
    for number in range(12):
        messages = reader.take("orders", 2, wait_ms=1_000)
        if number % 2:
            reader.engine.subscriber.prefetched.put_back("orders")
            reader.turn(number % 3)
            continue
        verbs.settle(reader.engine, messages)
        got += [message.id for message in messages]
    assert got == [f"orders@{number}" for number in range(12)]


def test_a_get_after_a_failed_consume_does_not_say_there_is_nothing(world, shop, reader) -> None:
    for number in range(12):
        shop.put("orders", b"%d" % number)
    shop.turn(12)
    reader.take("orders", 2)
    assert reader.engine._fetches._under_way  # the next ones are on their way
    reader.engine.subscriber.prefetched.put_back("orders")
    assert reader.get("orders", limit=2) == ["orders@0=0", "orders@1=1"]


def test_nothing_of_an_ended_subscription_is_handed_out(world, shop, reader) -> None:
    for number in range(12):
        shop.put("orders", b"%d" % number)
    shop.turn(12)
    reader.take("orders", 2)
    assert reader.run(verbs.unsubscribe(reader.engine, "orders")) is True
    with pytest.raises(NotSubscribed):
        reader.get("orders")
    reader.run(verbs.subscribe(reader.engine, "orders", "new"))
    shop.put("orders", b"new")
    shop.turn()
    assert reader.get("orders", wait_ms=1_000) == ["orders@12=new"]


def test_a_block_that_ends_its_own_subscription_settles_nothing_and_raises_nothing(
    world, shop, reader
) -> None:
    shop.put("orders", b"a")
    shop.turn()
    messages = reader.take("orders")
    reader.run(verbs.unsubscribe(reader.engine, "orders"))
    verbs.settle(reader.engine, messages)


class BrokenJournal:
    """A disk that is full at the wrong moment."""

    def __init__(self, journal) -> None:
        self._journal = journal

    def __getattr__(self, name: str):
        return getattr(self._journal, name)

    def settle(self, *_: object, **__: object) -> None:
        raise OSError("disk full")


def test_messages_whose_cursor_could_not_be_recorded_come_again(world, shop) -> None:
    shop.run(verbs.subscribe(shop.engine, "orders", "new"))
    shop.put("orders", b"a", b"b")
    shop.turn()
    whole, shop.state.journal = shop.state.journal, BrokenJournal(shop.state.journal)
    with pytest.raises(OSError, match="disk full"):
        shop.get("orders", limit=1)
    shop.state.journal = whole
    assert shop.get("orders", limit=1) == ["orders@0=a"]


def test_a_client_that_does_not_know_what_its_disk_has_fails_for_good(
    world, shop, monkeypatch
) -> None:
    shop.run(verbs.subscribe(shop.engine, "orders", "new"))
    shop.put("orders", b"a", b"b")
    shop.turn()

    def unsure(*_: object, **__: object) -> None:
        raise StorageUnsure("nobody knows")

    monkeypatch.setattr(shop.state.journal, "settle", unsure)
    with pytest.raises(StorageUnsure):
        shop.get("orders", limit=1)
    monkeypatch.undo()
    with pytest.raises(StorageUnsure):  # what it says next might be wrong
        shop.get("orders", limit=1)
    other = world.client("other")
    other.run(verbs.subscribe(other.engine, "orders", "new"))
    monkeypatch.setattr(other.state.journal, "forget", unsure)
    with pytest.raises(StorageUnsure):
        other.run(verbs.unsubscribe(other.engine, "orders"))
    assert isinstance(other.engine.failure, StorageUnsure)


def test_what_a_full_server_could_not_note_is_told_once_there_is_room(
    world, shop, reader, monkeypatch
) -> None:
    shop.put("orders", b"a", b"b", b"c")
    shop.turn()
    assert reader.get("orders", limit=1) == ["orders@0=a"]
    reader.engine.subscriber.prefetched.put_back("orders")
    monkeypatch.setattr(world.server.log, "has_room", lambda size, *, now_ms, fact=False: False)
    assert reader.get("orders", limit=1) == ["orders@1=b"]  # messages come all the same
    cursors = world.server.driver.broker.shard.by_name["orders"].subscriptions
    assert [each.cursor for each in cursors.values()] == [0]
    monkeypatch.undo()
    reader.run(take_leave(reader))
    assert [each.cursor for each in cursors.values()] == [2]


def test_a_client_that_a_full_server_cannot_let_in_says_so(world, shop, monkeypatch) -> None:
    monkeypatch.setattr(world.server.log, "has_room", lambda size, *, now_ms, fact=False: False)
    late = world.client("late")
    late.turn()
    waiting = late.engine.gave_up(3, "an answer")
    assert isinstance(waiting, StorageFull)
    assert "no room left" in waiting.detail
    late.put("orders", b"a")  # recorded: it goes out later, and was not refused
    waiting = late.engine.gave_up(3, "an answer")
    assert isinstance(waiting, Unreachable)
    assert "no room left" in waiting.detail
    assert "recorded" in waiting.detail
    monkeypatch.undo()
    world.server.now += 10_000_000
    late.turn()
    assert "no room" not in late.engine.gave_up(3, "an answer").detail


def test_who_waits_for_puts_that_a_full_server_puts_off_is_told_why(
    world, shop, reader, monkeypatch
) -> None:
    shop.wire.cut()
    shop.put("orders", b"a")
    monkeypatch.setattr(world.server.log, "has_room", lambda size, *, now_ms, fact=False: fact)
    after = world.crashed("shop")  # nobody waits for the put any more: it waits for room
    after.turn(12)
    told = after.engine.gave_up(3, "what was put")
    assert isinstance(told, Unreachable)
    assert told.detail.startswith(
        "not all that was put is stored within 3 s while waiting for what was put: "
        "the server's disk has no room left"
    )
    assert "1 puts are recorded" in told.detail
    monkeypatch.undo()
    world.server.now += 2_000_000
    after.turn(12)
    assert after.engine.outflow.idle
    assert after.engine.gave_up(3, "x").detail.startswith("no answer from ")


def take_leave(node):
    """As a close does, for a client that keeps its subscriptions."""
    ticket = node.engine.telling.tell()
    assert ticket is not None
    yield ticket


# ------------------------------------------------------------------ who is who


def test_a_newer_client_with_the_same_state_fences_the_older(world, shop) -> None:
    ticket = shop.put("orders", b"a")
    shop.turn()
    newer = world.client("shop")
    newer.turn()
    late = shop.put("orders", b"late")
    shop.turn()
    assert ids(ticket) == ["orders@0"]
    assert isinstance(shop.engine.failure, Fenced)
    with pytest.raises(Fenced):
        late.result()
    newer.put("orders", b"b")
    newer.turn()
    assert world.server.stored("orders") == [b"a", b"b"]


def test_what_a_fenced_client_had_recorded_goes_out_when_its_slot_is_adopted(world, shop) -> None:
    world.client("shop").turn()
    shop.put("orders", b"late")
    shop.turn()
    assert isinstance(shop.engine.failure, Fenced)
    after = world.crashed("shop")
    after.turn(12)
    assert world.server.stored("orders") == [b"late"]


def test_an_old_copy_of_the_state_is_refused(world, shop) -> None:
    copy = world.crashed("shop")  # nothing was said with it yet
    copy.wire.cut()
    for _ in range(2):
        world.client("shop").turn()
    copy.wire.mend()
    copy.turn(10)
    assert isinstance(copy.engine.failure, StaleState)


def test_a_first_start_that_its_twin_overtook_is_fenced_and_locks_nobody_out(world) -> None:
    older = world.client("fresh")
    older.wire.cut()
    older.pump()  # its claim is on disk; its hello comes late
    newer = world.client("fresh")
    newer.turn()
    older.wire.mend()
    older.turn(10)
    assert type(older.engine.failure) is Fenced
    assert newer.run(verbs.subscribe(newer.engine, "orders", "new")) is True
    after = world.client("fresh")
    after.turn()
    assert after.engine.client_epoch is not None


def test_the_newest_of_two_starts_that_are_under_way_wins_though_the_older_is_let_in_first(
    world, shop
) -> None:
    lost = world.client("shop")
    lost.wire.lose = lambda number: True
    lost.turn(2)  # let in, and does not hear of it
    older, newer = world.client("shop"), world.client("shop")
    for each in (older, newer):
        each.wire.cut()
        each.pump()  # their claims are on disk, in this order
    arrival, send = newer.engine._arrival, newer.wire.send
    newer.wire.send = lambda frames: not arrival._greeting.was_good and send(frames)
    newer.wire.mend()
    newer.turn(8)  # it knows by now what was granted last, and is held up before its own claim
    assert arrival._greeting.was_good
    older.wire.mend()
    older.turn(8)
    assert older.engine.client_epoch is not None
    newer.wire.send = send
    world.server.now += 1_000_000
    newer.turn(12)
    assert newer.engine.client_epoch is not None
    older.put("orders", b"late")
    older.turn()
    assert isinstance(older.engine.failure, Fenced)


def test_a_client_that_lost_its_state_takes_its_id_over(world, shop) -> None:
    fresh = world.client("shop", "elsewhere")
    fresh.turn(10)
    assert fresh.engine.client_epoch == 3  # one for the claim it made before it knew
    shop.put("orders", b"a")
    shop.turn()
    assert isinstance(shop.engine.failure, Fenced)
    late = world.client("shop")  # on the state that was replaced
    late.turn(10)
    assert isinstance(late.engine.failure, StaleState)


def test_a_fenced_client_leaves_the_cursor_of_its_twin_alone(world, shop, reader) -> None:
    shop.run(verbs.subscribe(shop.engine, "orders", "new"))
    verb = verbs.unsubscribe(shop.engine, "orders")
    ticket = next(verb)
    shop.turn()
    assert ticket.done  # the server has ended it; this client has not looked yet
    twin = world.client("shop")
    twin.turn()
    twin.run(verbs.subscribe(twin.engine, "orders", "new"))
    reader.put("orders", b"a")
    reader.turn()
    assert twin.get("orders") == ["orders@0=a"]
    with pytest.raises(StopIteration):
        verb.send(None)
    after = world.crashed("shop")
    after.turn()
    assert after.engine.state.cursors()["orders"][1] == 1


def test_a_client_that_must_say_hello_again_does_so_and_goes_on(world, shop) -> None:
    world.server.driver.broker.shard.clients.began(FIRST)
    ticket = shop.put("orders", b"a")
    shop.turn(10)
    assert ids(ticket) == ["orders@0"]


def test_a_client_that_the_server_has_forgotten_is_told_and_shown_the_way_out(world, shop) -> None:
    world.server.driver.broker.shard.clients.entries.clear()
    ticket = shop.put("orders", b"a")
    shop.turn(10)
    with pytest.raises(HistoryLost, match=r"once client accept --id shop --state .* --server one"):
        ticket.result()


def test_a_twin_does_not_repeat_what_the_older_settled_before_it_was_fenced(world, shop) -> None:
    shop.run(verbs.subscribe(shop.engine, "orders", "new"))
    shop.put("orders", b"a", b"b")
    shop.turn()
    twin = world.client("shop")  # made, and not let in yet
    assert shop.get("orders", limit=1) == ["orders@0=a"]
    twin.turn()
    assert twin.get("orders") == ["orders@1=b"]


def test_a_pattern_ends_with_all_it_made_though_the_answer_that_named_it_was_lost(
    world, shop, reader
) -> None:
    for pattern in ("orders.*", "*.eu"):
        reader.run(verbs.subscribe(reader.engine, pattern, "new"))
    for topic in ("orders.a", "orders.eu"):
        shop.put(topic, b"x")
        shop.turn()
        assert reader.get(topic) == [f"{topic}@0=x"]
    lost = count()
    reader.wire.lose = lambda _: next(lost) < 1
    assert reader.run(verbs.unsubscribe(reader.engine, "orders.*")) is False
    assert next(lost) > 1
    assert "orders.a" not in reader.engine.subscriber.cursors.topics
    assert "orders.eu" in reader.engine.subscriber.cursors.topics  # another pattern has it


# ------------------------------------------------------------------ answers and questions


def test_a_refusal_becomes_the_exception_of_its_kind(world, reader) -> None:
    with pytest.raises(NotSubscribed):
        reader.get("unknown")
    with pytest.raises(Refused) as caught:
        reader.run(verbs.delete_topic(reader.engine, "unknown"))
    assert caught.value.code == "no_such_topic"
    with pytest.raises(InvalidRequest, match="at least 1 message"):
        reader.get("orders", limit=0)


def test_a_request_is_sent_again_until_it_is_answered_and_answered_once(world, reader) -> None:
    lost = count()
    reader.wire.lose = lambda _: next(lost) < 5
    before = reader.wire.sent
    verb = verbs.ask(reader.engine, lambda _: CreateTopic("new"))
    ticket = next(verb)
    for _ in range(8):
        reader.turn(2)
        world.server.now += 11_000_000
    assert isinstance(ticket, Ticket)
    assert ticket.result() == Done(False)  # the first one had made it
    assert reader.wire.sent - before == 6
    verb.close()


def after_the_look(node, verb):
    """The verb, once it has seen how things stand."""
    looked = next(verb)
    node.turn(2)
    assert looked.done
    return verb


def test_a_topic_is_made_though_others_are_deleted_meanwhile(world, reader) -> None:
    other = world.client()
    verb = after_the_look(reader, verbs.create_topic(reader.engine, "new", Retention()))
    other.run(verbs.delete_topic(other.engine, "orders"))
    assert reader.run(verb) is True
    assert [each.name for each in other.run(verbs.topics(other.engine))] == ["new"]


def test_a_configuration_that_somebody_else_changed_meanwhile_is_left_alone(world, reader) -> None:
    other, (first, second) = world.client(), (Retention(keep_ms=1), Retention(keep_ms=2))
    verb = after_the_look(reader, verbs.configure_topic(reader.engine, "orders", first))
    assert other.run(verbs.configure_topic(other.engine, "orders", second)) is True
    with pytest.raises(Refused, match="by somebody else while this was under way") as caught:
        reader.run(verb)
    assert caught.value.code == "outdated"
    assert other.run(verbs.topic(other.engine, "orders")).topic.retention == second
    assert reader.run(verbs.configure_topic(reader.engine, "orders", second)) is False


@pytest.mark.parametrize(
    ("make", "looks", "again"),
    [
        (lambda engine: verbs.subscribe(engine, "refunds", "new"), False, "deleted_since"),
        (lambda engine: verbs.create_topic(engine, "refunds", Retention()), True, "outdated"),
    ],
)
def test_a_deletion_meanwhile_makes_a_verb_ask_again_and_another_refusal_ends_it(
    reader, make, looks: bool, again: str
) -> None:
    def asked() -> Ticket:
        if looks:  # what there is, before it asks
            next(verb)
            reader.turn()
        return next(verb)

    verb = make(reader.engine)
    asked().fail(Refused("its topic was deleted", code=again))
    asked().fail(Refused("there is no room", code="storage_full"))
    with pytest.raises(Refused, match="there is no room"):
        next(verb)


def test_who_waits_in_vain_is_told_of_what_is_recorded_and_of_nothing_else(shop, reader) -> None:
    for node, recorded in ((shop, True), (reader, False)):
        node.wire.cut()
        assert "recorded" not in node.engine.gave_up(3, "an answer").detail
        node.put("orders", b"a")
        assert ("1 puts are recorded" in node.engine.gave_up(3, "an answer").detail) is recorded


def test_a_client_that_failed_takes_no_put(shop) -> None:
    failure = HistoryLost("the server went back in time")
    shop.engine.fail(failure)
    with pytest.raises(HistoryLost):
        shop.engine.outflow.check("orders", 1)


def test_a_verb_given_up_takes_its_request_back(world, reader) -> None:
    reader.wire.cut()
    verb = verbs.status(reader.engine)
    next(verb)
    assert len(reader.engine.exchanges) == 1
    verb.close()
    assert len(reader.engine.exchanges) == 0


def test_everyone_who_waits_learns_why_a_client_failed_though_one_drops_another(world) -> None:
    client = world.client()
    told: list[str] = []

    def first(reply, _) -> None:
        client.engine.drop(second)  # as a listener does whose pull has failed
        told.append(f"first {reply.code}")

    def request():
        return Done(changed=False), None

    client.engine.begin(request, first)
    second = client.engine.begin(request, lambda reply, _: told.append("second"))
    client.engine.begin(request, lambda reply, _: told.append(f"third {reply.code}"))
    client.engine.fail(HistoryLost("the server went back in time"))
    assert told == ["first history_lost", "third history_lost"]
    assert not len(client.engine.exchanges)


def test_what_is_wanted_and_has_not_left_ends_with_the_client_too(reader) -> None:
    fetch = reader.engine.fetch("orders", 1, 9_000)
    failure = HistoryLost("the server went back in time")
    reader.engine.fail(failure)
    assert fetch.done
    assert isinstance(fetch.error, HistoryLost)


def test_what_a_failed_client_had_put_waits_no_longer(world, shop) -> None:
    shop.wire.cut()
    shop.put("orders", b"sealed")
    shop.gather("orders", b"gathered")
    shop.engine.fail(HistoryLost("the server went back in time"))
    outflow = shop.engine.outflow
    assert (outflow.unsent, outflow.unsent_bytes, outflow.idle) == (0, 0, True)


def test_a_client_that_failed_before_it_was_let_in_says_hello_no_more(world) -> None:
    client = world.client("late")
    client.engine.fail(HistoryLost("the server went back in time"))
    client.turn()
    assert client.engine.outgoing.wanted == []
    assert not len(client.engine.exchanges)
    assert "late" not in world.server.driver.broker.shard.clients.entries


def test_all_pages_of_topics_and_subscriptions_are_read(world, reader, monkeypatch) -> None:
    monkeypatch.setattr(verbs, "PAGE", 2)
    for number in range(5):
        reader.run(verbs.subscribe(reader.engine, f"t{number}", "new"))
    topics = reader.run(verbs.topics(reader.engine))
    assert [topic.name for topic in topics] == ["orders", "t0", "t1", "t2", "t3", "t4"]
    found = reader.run(verbs.subscriptions(reader.engine, None, None))
    assert [each.topic for each in found] == ["orders", "t0", "t1", "t2", "t3", "t4"]
    assert reader.run(verbs.unsubscribe_all(reader.engine)) == 6


def test_a_guest_that_leaves_ends_its_subscriptions(world, reader) -> None:
    reader.run(verbs.leave(reader.engine))
    assert world.server.driver.broker.shard.by_name["orders"].subscriptions == {}


def test_a_client_with_state_that_leaves_tells_what_it_settled(world, shop) -> None:
    shop.run(verbs.subscribe(shop.engine, "orders", "new"))
    shop.put("orders", b"a")
    shop.turn()
    shop.get("orders")
    shop.run(verbs.leave(shop.engine))
    cursors = world.server.driver.broker.shard.by_name["orders"].subscriptions
    assert cursors["shop"].cursor == 1


def test_nonsense_from_the_network_harms_nobody(world, reader) -> None:
    for frames in ([b""], [b"OQ"], [b"\xff" * 50, b"x"]):
        reader.wire.inbox.append(frames)
    reader.turn()
    assert reader.engine.failure is None


def test_what_is_on_its_way_and_wanted_no_more_is_dropped_and_who_waits_asks_anew(reader) -> None:
    engine = reader.engine
    reader.run(verbs.subscribe(engine, "refunds", "new"))
    fetches = [engine.fetch(topic, 1, 9_000) for topic in ("orders", "refunds", "")]
    engine.forget_fetches("orders")
    assert [each.done for each in fetches] == [True, False, True]
    assert len(engine.exchanges) == 1
    engine.meet(Generation(FIRST + 1))
    engine._take_out()
    assert (fetches[1].done, len(engine.exchanges)) == (True, 0)
    again = engine.fetch("orders", 1, 9_000)
    engine._fetches.forget("refunds")
    engine._take_out()
    assert len(engine.exchanges) == 1
    engine._fetches.forget("orders")  # who waited is woken, and asks again
    engine._take_out()
    assert (again.done, len(engine.exchanges)) == (True, 0)


def test_a_refused_fetch_takes_away_what_was_fetched_before_it(world, shop, reader) -> None:
    """The subscription ended elsewhere: nothing of it is handed out any more (G6)."""
    shop.put("orders", *(b"%d" % number for number in range(20)))
    shop.turn()
    assert [len(reader.get("orders", limit=2)) for _ in range(3)] == [2, 2, 2]
    assert reader.engine.subscriber.prefetched.held("orders")[0] == 4  # and more are being fetched
    other = world.client()
    other.run(verbs.delete_topic(other.engine, "orders"))
    reader.turn()
    with pytest.raises(NotSubscribed):
        reader.get("orders", limit=2)


def test_what_came_before_the_server_went_back_cannot_be_settled(world, shop, reader) -> None:
    """The same offsets may be other messages now, which would be passed over."""
    shop.put("orders", b"a")
    shop.turn()
    messages = reader.take("orders")
    reader.engine.meet(Generation(FIRST + 1))
    with pytest.raises(HistoryLost, match="orders@0 was worked on: it is not settled"):
        verbs.settle(reader.engine, messages)
    assert reader.engine.subscriber.told.untold() == ()


def test_what_a_full_connection_did_not_take_goes_first_when_it_takes_again(world, shop) -> None:
    send, offered = shop.wire.send, []

    def full_once(frames) -> bool:
        offered.append(frames)
        return len(offered) > 1 and send(frames)

    shop.wire.send = full_once
    tickets = [shop.put("orders", payload) for payload in (b"a", b"b")]
    shop.pump()
    assert len(offered) == 1  # what is behind it would overtake it
    assert shop.engine.next_deadline() == world.server.now + FULL_MICROS
    shop.turn(4)
    assert [ids(ticket) for ticket in tickets] == [["orders@0"], ["orders@1"]]
    assert world.server.stored("orders") == [b"a", b"b"]


def test_what_nobody_expected_ends_the_client_and_not_its_caller(world, reader) -> None:
    asked: Ticket[Done] = Ticket()
    reader.engine.ask(lambda _: CreateTopic("x", Retention()), ticket=asked)
    with surviving(reader.engine):
        raise ZeroDivisionError("a slip")
    assert str(asked.error) == str(reader.engine.failure)
    assert reader.engine.failure.code == "client_failed"
    assert "ZeroDivisionError('a slip')" in reader.engine.failure.detail


def test_what_is_settled_and_refused_ends_the_client_unless_it_has_ended(shop) -> None:
    ticket: Ticket[None] = Ticket()
    ticket.fail(HistoryLost("the server knows less"))
    shop.engine.telling._told(ticket)
    failure = shop.engine.failure
    assert isinstance(failure, HistoryLost)
    assert failure.detail.startswith("the server knows less")
    shop.engine.telling._told(ticket)
    assert shop.engine.failure is failure


def test_a_damaged_batch_is_not_handed_out(world, shop, reader) -> None:
    shop.put("orders", b"payload")
    shop.turn()
    collect = reader.wire.collect

    def flip() -> None:
        collect()
        reader.wire.inbox = [
            [frame.replace(b"payload", b"paYload") for frame in frames]
            for frames in reader.wire.inbox
        ]

    reader.wire.collect = flip
    with pytest.raises(Corrupt, match="not what its publisher sent"):
        reader.get("orders")
    reader.wire.collect = collect
    assert reader.get("orders") == ["orders@0=payload"]


def test_the_next_address_is_tried_when_one_does_not_answer(world) -> None:
    node = world.client()
    addresses: list[str] = []
    node.engine.settings.servers = ["one", "two"]
    node.wire.connect = addresses.append
    node.wire.cut()
    for _ in range(4):
        world.server.now += 2_000_000
        node.turn(1)
    assert addresses == ["two", "one", "two"]
    assert node.engine.connected is False


def test_a_client_whose_server_stays_away_does_not_look_for_it_without_a_pause(world) -> None:
    lonely = world.client()
    lonely.engine.ask(lambda _: CreateTopic("x", Retention()), ticket=Ticket())
    lonely.pump()  # it leaves, and is due to be sent again some time later
    lonely.wire.cut()
    for _ in range(4):
        world.server.now += 20_000_000
        lonely.pump()
        assert lonely.engine.next_deadline() == world.server.now + CONNECT_PATIENCE


def test_which_subscriptions_ended_with_a_pattern_is_noted_where_the_pattern_is_unknown(
    reader,
) -> None:
    """Who hears of a pattern's own end hears of what it had made."""

    def ended(own: int) -> list[tuple[str, int]]:
        reply = Unsubscribed(True, ("a.b", "a.c"), (own, 5, 6))  # type: ignore[arg-type]
        return verbs._ended(reader.engine, "a.*", reply)  # type: ignore[return-value]

    assert ended(0) == [("a.*", 0), ("a.b", 5), ("a.c", 6)]
    assert ended(4) == [("a.*", 4), ("a.b", 0), ("a.c", 0)]


# ------------------------------------------------------------------ idempotency keys


def keyed(node, payload: bytes, key: str = "k-1"):
    body = batch.encode_payloads([payload])
    return node.run(put_keyed(node.engine, "orders", key, count=1, columns=0, body=body))[0]


def test_a_put_under_a_key_whose_answer_was_lost_is_stored_once(world, reader) -> None:
    guest = world.client()
    lost = count()
    guest.wire.lose = lambda _: next(lost) < 1
    assert not keyed(guest, b"a").stored or world.server.stored("orders") == [b"a"]
    again = keyed(world.client(), b"a")
    assert (again.offset, again.duplicate) == (0, True)
    assert world.server.stored("orders") == [b"a"]


def test_a_put_under_a_key_comes_after_what_was_put_before(world, reader) -> None:
    guest = world.client()
    guest.gather("orders", b"first", lasting=False)
    assert keyed(guest, b"second").offset == 1
    assert world.server.stored("orders") == [b"first", b"second"]


def test_a_key_used_for_something_else_is_refused(world, reader) -> None:
    keyed(world.client(), b"a")
    with pytest.raises(Refused, match="another payload"):
        keyed(world.client(), b"b")


def test_a_key_is_known_after_a_restart_of_the_server(world, reader) -> None:
    keyed(world.client(), b"a")
    world.server.crash()
    assert keyed(world.client(), b"a").duplicate
    assert world.server.stored("orders") == [b"a"]


@pytest.mark.parametrize(("key", "wait"), [("", True), ("k" * 256, True), ("k", False)])
def test_a_key_that_cannot_be_is_refused_before_anything_is_sent(key: str, wait: bool) -> None:
    with pytest.raises(InvalidRequest):
        check_key(key, wait=wait)


# ------------------------------------------------------------------ topics made anew, and slots


def made_anew(reader) -> None:
    reader.run(verbs.delete_topic(reader.engine, "orders"))
    reader.run(verbs.subscribe(reader.engine, "orders", "new"))


def again(world, *nodes):
    """The client starts anew, on the same directory."""
    for node in nodes:
        node.close()
        world.nodes.remove(node)
    node = world.client("shop")
    node.turn()
    return node


def stored_and_killed(world, node, payload: bytes):
    """A put is stored and its client killed before it hears of that; what starts after it."""
    node.put("orders", payload)
    for _ in range(12):
        node.pump()
        world.server.commit()
        if payload in world.server.stored("orders"):
            return world.crashed("shop")
    raise AssertionError("it was not stored")


def test_a_new_identity_of_a_topic_is_on_disk_though_the_numbers_stay(world, shop, reader) -> None:
    shop.put("orders", b"x" * (17 << 20))  # refused: the numbers begin at 1 again
    shop.turn(12)
    made_anew(reader)
    after = stored_and_killed(world, again(world, shop), b"ONE")
    after.turn(12)
    assert world.server.stored("orders") == [b"ONE"]
    assert after.engine.outflow.idle


@pytest.mark.parametrize("earlier", [[], [b"a"], [b"a", b"b"]])
def test_what_one_slot_knows_of_a_topic_is_nothing_to_the_other(
    world, shop, reader, earlier
) -> None:
    shop.put("audit", b"first")
    shop.turn()
    twin = world.client("shop")  # a rolling restart: the older still holds its slot
    twin.turn()
    for payload in (b"o1", b"o2"):
        twin.put("orders", payload)
    twin.turn()
    made_anew(reader)
    both = again(world, twin, shop)
    assert len(both.state.slots) == 2
    for payload in earlier:
        both.put("orders", payload)
        both.turn(8)
    after = stored_and_killed(world, both, b"ONE")
    after.turn(12)
    assert world.server.stored("orders") == [*earlier, b"ONE"]
    assert after.engine.outflow.idle


@pytest.mark.parametrize("earlier", [[], [b"a"], [b"a", b"b"]])
@pytest.mark.parametrize("more", [[], [b"after"]])
@pytest.mark.parametrize("has_receipt", [True, False])
def test_what_a_deleted_topic_had_is_not_put_again_to_the_one_made_anew(
    world, shop, reader, earlier, more, has_receipt
) -> None:
    """A put may be stored, and given to a pattern's subscriber, in either topic: not in both."""
    for payload in earlier:
        shop.put("orders", payload)
        shop.turn(8)
    if has_receipt:
        shop.put("orders", b"ONE")
        shop.turn(8)
        after = world.crashed("shop")  # that it was answered is not on disk yet
    else:
        after = stored_and_killed(world, shop, b"ONE")
    made_anew(reader)
    for payload in more:
        after.put("orders", payload)
    after.turn(12)
    assert world.server.stored("orders") == more
    assert after.engine.outflow.idle
    again = world.crashed("shop")  # whatever is on its disk now
    again.turn(12)
    assert world.server.stored("orders") == more
    assert again.engine.outflow.idle


def test_a_put_whose_answer_was_lost_is_answered_though_its_topic_is_gone(
    world, shop, reader
) -> None:
    shop.wire.lose = lambda number: True
    ticket = shop.put("orders", b"ONE")
    shop.turn(4)
    assert world.server.stored("orders") == [b"ONE"]
    made_anew(reader)
    shop.wire.lose = lambda number: False
    shop.wire.cut()
    shop.wire.mend()
    shop.turn(20)
    assert list(ticket.result()) == [Receipt("orders", None, stored=True, duplicate=True)]
    assert world.server.stored("orders") == []


# ------------------------------------------------------------------ what the outbox keeps


def test_acknowledged_puts_leave_a_small_outbox(world, shop, monkeypatch) -> None:
    monkeypatch.setattr("oncemq.client.state.outbox.ROTATE_BYTES", 100_000)
    for number in range(50):
        shop.put("orders", b"%d" % number * 10_000)
        shop.turn(3)
    assert shop.engine.outflow.idle
    segments = (world.directory / "shop" / "outbox").rglob("*.log")
    assert sum(segment.stat().st_size for segment in segments) < 2 << 20
    assert world.crashed("shop").engine.outflow.unsent <= 1


def test_a_batch_over_the_limit_is_refused_before_it_is_recorded(world, shop) -> None:
    limits = shop.engine.settings.limits
    shop.engine.settings.outbox_bytes_max = 2 * limits.batch_bytes
    shop.engine.outflow.check("orders", 10, limits.batch_bytes)
    with pytest.raises(InvalidRequest, match="put it in smaller ones"):
        shop.engine.outflow.check("orders", 10, limits.batch_bytes + 1)
    assert world.crashed("shop").engine.outflow.unsent == 0


@pytest.mark.parametrize("sizes", [(101, 101), (100, 1_001)])
def test_the_limits_are_those_of_the_server_that_let_the_client_in(
    tmp_path, sizes: tuple[int, int]
) -> None:
    rules = ServerLimits(message_bytes_max=100, batch_bytes_max=1_000)
    world = World(tmp_path, rules)
    shop = world.client("shop")
    shop.turn()
    assert shop.engine.settings.limits == rules.limits
    shop.engine.outflow.check("orders", 100, 1_000)
    with pytest.raises(InvalidRequest):
        shop.engine.outflow.check("orders", *sizes)
    world.close()


def test_a_gathered_put_is_what_it_was_when_it_was_put(world, shop, reader) -> None:
    headers, payload, key = {"n": "1"}, bytearray(b"one"), bytearray(b"k1")
    item = batch.Item(bytes(payload), key, headers)  # type: ignore[arg-type]
    shop.engine.outflow.gather("orders", [item.payload], item, lasting=True)
    shop.engine.outflow.gather("orders", [payload], None, lasting=True)
    headers["n"], payload[:], key[:] = "2", b"two", b"k2"
    shop.turn()
    first, second = reader.take("orders")
    assert (first.payload, first.key, first.headers) == (b"one", b"k1", {"n": "1"})
    assert second.payload == b"one"
