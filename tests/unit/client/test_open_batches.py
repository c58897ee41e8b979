"""Puts that nobody waits for: appended to an open batch unseen, within what was granted to it."""

import dis
import sys
import threading
from array import array
from itertools import cycle
from types import FrameType
from typing import Any

import pytest

from oncemq.client.pending import Pending
from oncemq.client.puts import open_batch
from oncemq.client.puts.open_batch import (
    GATHER_MESSAGES,
    GRANTED_PLACES,
    OpenBatch,
    OpenBatches,
)
from oncemq.client.ticket import Ticket
from oncemq.client.values import Receipt, Receipts
from oncemq.client.verbs.messages import subscribe
from oncemq.errors import Forked, OnceMQError, OutboxFull
from oncemq.wire.batch import Item, encode, encode_payloads

LIMIT = 1 << 20  # bytes in the outbox of the clients of this world


class Unwaited:
    def answer(self, ticket: Ticket[Receipts], timeout: float | None) -> Receipts:
        return ticket.result()


no_wait = Unwaited()


def append(
    batches: OpenBatches, payload: Any, *, durable: bool = True, required: bool = False
) -> Pending[Receipt] | None:
    return batches.append("orders", payload, durable, required, no_wait)


def opened(*, granted: int = 100, largest: int = 50) -> tuple[OpenBatches, OpenBatch]:
    batches, batch = OpenBatches(), OpenBatch(lasting=True, required=False)
    batch.add([b"first"], None)
    batches.open("orders", batch)
    batch.grant(granted, durable=True, largest=largest)
    return batches, batch


def test_a_message_is_appended_to_the_open_batch_and_has_its_place_there() -> None:
    batches, batch = opened()
    second, third = append(batches, b"second"), append(batches, b"third")
    assert second is not None
    assert third is not None
    assert batch.payloads == [b"first", b"second", b"third"]
    assert (batch.size, batches.granted) == (16, 100 - 11)
    assert repr(second) == "<Pending: no answer yet>"
    assert not second.done()
    batch.ticket.fill(Receipts(Receipt("orders", 7, stored=True, duplicate=False), 3))
    assert (second.result().offset, third.result().offset) == (8, 9)


def test_without_an_open_batch_the_put_buffer_must_look() -> None:
    assert append(OpenBatches(), b"x") is None


def test_only_bytes_are_appended_for_others_may_change_them() -> None:
    class Odd(bytes): ...

    batches, batch = opened()
    odd: list[Any] = [bytearray(b"x"), memoryview(b"x"), Odd(b"x"), "x", None]
    assert [append(batches, each) for each in odd] == [None] * 5
    assert batch.payloads == [b"first"]


def test_those_of_another_kind_are_looked_at() -> None:
    batches, _ = opened()
    assert append(batches, b"x", durable=False) is None
    assert append(batches, b"x", required=True) is None


def test_no_more_than_was_granted_and_no_message_that_is_too_large() -> None:
    batches, batch = opened(granted=60, largest=50)
    assert append(batches, b"x" * 51) is None
    assert append(batches, b"x" * 50) is not None
    assert append(batches, b"x" * 11) is None
    assert append(batches, b"x" * 10) is not None
    assert batch.size == 65


def test_a_batch_that_is_full_takes_no_more() -> None:
    batches, batch = opened()
    batch.add([b""] * (GATHER_MESSAGES - 2), None)
    batch.grant(100, durable=True, largest=50)
    assert append(batches, b"") is not None
    assert append(batches, b"") is None
    assert batch.full


def test_no_more_messages_than_places_were_granted() -> None:
    batches, batch = opened()
    for _ in range(GRANTED_PLACES):
        assert append(batches, b"") is not None
    assert append(batches, b"") is None
    assert batch.count == len(batch.payloads) == 1 + GRANTED_PLACES


def test_a_python_that_may_come_between_any_two_steps_appends_nothing_unseen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(open_batch, "IS_UNDISTURBED", False)
    batches, batch = opened()
    assert append(batches, b"x") is None
    assert batch.payloads == [b"first"]


def test_several_at_once_stand_between_those_that_came_before_and_after() -> None:
    batches, batch = opened(granted=1_000)
    assert append(batches, b"two")
    view = memoryview(array("H", [1, 2]))
    odd: list[Any] = [b"3", bytearray(b"four"), view]
    assert batch.add(odd, None) == 2
    odd[1][:] = b"XXXX"  # it is its owner's again
    batch.grant(100, durable=True, largest=50)
    assert append(batches, b"six")
    batch.add([b"7", b""], None)
    expected = [b"first", b"two", b"3", b"four", bytes(view), b"six", b"7", b""]
    assert batch.payloads == expected
    assert (batch.count, batch.size) == (8, sum(map(len, expected)))
    assert batch.encode() == (0, encode_payloads(expected))
    batch.add([b"with"], Item(b"with", b"a key", {"a": "b"}))
    items = [*map(Item, expected), Item(b"with", b"a key", {"a": "b"})]
    assert batch.encode() == encode(items)
    wrong: list[Any] = [[b"x", "y"], [7, b"x"]]
    for payloads in wrong:
        with pytest.raises(TypeError, match="a payload is bytes, not"):
            batch.add(payloads, None)
    assert batch.count == 9


def test_withdrawn_grants_let_nothing_in_not_even_what_is_empty() -> None:
    batches, batch = opened()
    batches.withdraw_grants()
    assert append(batches, b"") is None
    assert append(batches, b"", durable=False) is None
    assert (batch.size, batches.granted) == (5, 0)


def test_what_was_taken_out_has_no_place_left_for_who_had_found_it() -> None:
    batches, batch = opened()
    assert batches.take_out("orders") is batch
    with pytest.raises(IndexError):
        batch.places[batch.count] = b"late"


def test_what_was_taken_out_gets_nothing_more_and_nothing_is_lost() -> None:
    batches, _ = opened(granted=1 << 40)
    taken: list[OpenBatch] = []
    over = threading.Event()

    def put(who: int) -> None:
        for number in range(2_000):
            while append(batches, b"%d %d" % (who, number)) is None:
                pass

    def seal() -> None:  # alone, as under the client's lock
        while not over.is_set() or batches.by_topic:
            batch = batches.take_out("orders")
            if not over.is_set():
                following = OpenBatch(lasting=True, required=False)
                batches.open("orders", following)
                following.grant(1 << 40, durable=True, largest=50)
                following.add([b"more"], None)
                following.grant(1 << 40, durable=True, largest=50)
            if batch is not None:
                taken.append(batch)

    sealing = threading.Thread(target=seal)
    putting = [threading.Thread(target=put, args=(who,)) for who in range(3)]
    for thread in (sealing, *putting):
        thread.start()
    for thread in putting:
        thread.join()
    over.set()
    sealing.join()
    payloads = [payload for batch in taken for payload in batch.payloads]
    found = [payload.split() for payload in payloads if b" " in payload]
    for who in range(3):
        assert [int(n) for name, n in found if name == b"%d" % who] == list(range(2_000))


LINES = [
    line - OpenBatches.append.__code__.co_firstlineno
    for _, _, line in OpenBatches.append.__code__.co_lines()
    if line
]


@pytest.mark.parametrize("seals", [False, True])
@pytest.mark.parametrize("line", sorted(set(LINES)))
def test_whatever_comes_between_two_lines_of_an_append_nothing_is_lost_nor_doubled(
    line: int, *, seals: bool
) -> None:
    """A signal handler that puts, and a thread that seals: before a line of the append."""
    code = OpenBatches.append.__code__
    batches, batch = opened()
    taken, promised = [batch], [b"first"]

    def come_between() -> None:
        if append(batches, b"inside"):
            promised.append(b"inside")
        if seals:
            taken.append(sealed(batches))
        if append(batches, b"inside too"):
            promised.append(b"inside too")

    def tracer(frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code is not code:
            return None
        if event == "line" and frame.f_lineno == code.co_firstlineno + line:
            sys.settrace(None)
            frame.f_trace = None
            come_between()
        return tracer

    before = sys.gettrace()
    sys.settrace(tracer)
    pending = append(batches, b"outside")
    sys.settrace(before)
    promised += [b"outside"] if pending is not None else []
    found = [payload for each in taken for payload in each.payloads]
    assert sorted(found) == sorted(promised)
    if pending is not None:
        mine = next(each for each in taken if b"outside" in each.payloads)
        mine.ticket.fill(Receipts(Receipt("orders", 0, stored=True, duplicate=False), 9))
        assert mine.payloads[pending.result().offset or 0] == b"outside"


ADD = OpenBatch.add.__code__
LINES_OF_ADD = sorted(
    {
        line - ADD.co_firstlineno
        for _, line in dis.findlinestarts(ADD)
        if line is not None and line > ADD.co_firstlineno  # Python 3.13 also has code of no line
    }
)


@pytest.mark.parametrize("line", LINES_OF_ADD)
@pytest.mark.parametrize("payloads", [[b"one"], [b"one", b"two"]], ids=["one", "several"])
def test_whatever_is_appended_between_two_lines_of_an_add_has_a_place_of_its_own(
    line: int, payloads: list[bytes]
) -> None:
    """A thread that appends takes no lock, and the one that adds may stop before any line."""
    batches, batch = opened()
    promised = [b"first", *payloads]

    def tracer(frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code is not ADD:
            return None
        if event == "line" and frame.f_lineno == ADD.co_firstlineno + line:
            sys.settrace(None)
            frame.f_trace = None
            if append(batches, b"inside"):
                promised.append(b"inside")
        return tracer

    before = sys.gettrace()
    sys.settrace(tracer)
    place = batch.add(payloads, None)
    sys.settrace(before)
    assert sorted(batch.payloads) == sorted(promised)
    assert batch.payloads[place : place + len(payloads)] == payloads


def sealed(batches: OpenBatches) -> OpenBatch:
    """Another batch is open after this."""
    assert batches.take_out("orders")
    following = OpenBatch(lasting=True, required=False)
    batches.open("orders", following)
    following.grant(100, durable=True, largest=50)
    return following


def test_the_line_that_appends_calls_nothing_and_so_is_not_interrupted() -> None:
    starts, line = dict(dis.findlinestarts(OpenBatches.append.__code__)), None
    by_line: dict[int | None, list[dis.Instruction]] = {}
    for each in dis.get_instructions(OpenBatches.append):
        line = starts.get(each.offset, line)
        by_line.setdefault(line, []).append(each)
    (appending,) = [
        found for found in by_line.values() if any(each.opname == "STORE_SUBSCR" for each in found)
    ]
    names = [each.opname for each in appending]
    assert not [name for name in names if "CALL" in name or "BACKWARD" in name]
    loaded = [each.argval for each in appending if each.opname == "LOAD_ATTR"]
    stored = [each.argval for each in appending if each.opname == "STORE_ATTR"]
    assert (loaded[:2], stored) == (["count", "places"], ["count", "granted"])


# In the put buffer


def test_a_gathered_put_opens_a_batch_that_others_are_appended_to(world: Any) -> None:
    shop = world.client("shop")
    shop.run(subscribe(shop.engine, "orders", "new"))
    ticket = shop.gather("orders", b"1")
    second = append(shop.engine.outflow.open_batches, b"2")
    assert second is not None
    assert (shop.engine.outflow.unsent, shop.engine.outflow.unsent_bytes) == (2, 2)
    shop.turn()
    assert shop.engine.outflow.idle
    assert shop.engine.outflow.unsent_bytes == 0
    assert (ticket.result()[0].offset, second.result().offset) == (0, 1)
    assert world.server.stored("orders") == [b"1", b"2"]


def test_what_is_appended_stays_below_the_limit_of_the_outbox(world: Any) -> None:
    shop = world.client("shop")
    outflow = shop.engine.outflow
    batches, payload = outflow.open_batches, b"x" * 1_000
    topics = [f"orders.{number}" for number in range(50)]
    taken = 0
    for topic in cycle(topics):
        try:
            outflow.check(topic, len(payload))
        except OutboxFull:
            break
        shop.gather(topic, payload)
        taken += 1
        while batches.append(topic, payload, True, False, no_wait):
            taken += 1
    for topic in batches.topics():  # nothing is let in by what was granted before
        assert batches.append(topic, payload, True, False, no_wait) is None
    assert LIMIT - len(payload) < outflow.unsent_bytes == taken * len(payload) <= LIMIT


def test_grants_are_withdrawn_by_a_put_that_needs_their_room_and_by_no_other(world: Any) -> None:
    shop = world.client("shop")
    shop.gather("orders", b"x" * 1_000)
    batches, outflow = shop.engine.outflow.open_batches, shop.engine.outflow
    granted = batches.granted
    room = LIMIT - outflow.unsent_bytes - granted
    assert granted > 0
    outflow.check("bills", room)
    assert batches.granted == granted
    outflow.check("bills", room + 1)
    assert batches.granted == 0
    assert append(batches, b"late") is None


def test_a_client_that_failed_takes_nothing(world: Any) -> None:
    shop = world.client("shop")
    shop.gather("orders", b"1")
    pending = append(shop.engine.outflow.open_batches, b"2")
    shop.engine.fail(OnceMQError("over", code="over"))
    assert append(shop.engine.outflow.open_batches, b"3") is None
    assert pending is not None
    assert "over" in repr(pending)


def test_the_copy_in_a_forked_process_takes_nothing(world: Any) -> None:
    guest = world.client()  # a copy of one with a state would leave that open, for its parent
    guest.gather("orders", b"1")
    guest.engine.disown(Forked("a copy"))
    assert append(guest.engine.outflow.open_batches, b"2") is None
