"""Signal handlers that raise, at any moment of a verb: nothing is lost, nothing is stuck.

Two ways to get at every moment: a tracer that sends the signal before each line of the client's
code in turn, and a real timer in a process of its own.
"""

import signal
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from linecache import getline
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import oncemq.client
from oncemq import Client
from tests.integration.lone import alone

HOME = str(Path(oncemq.client.__file__).parent)


class Interrupted(Exception):
    """Raised by the handler."""


NUMBERS = (signal.SIGALRM, signal.SIGVTALRM)  # in turn: what is put off does not depend on it
FINALIZER = weakref.finalize.__call__.__code__  # what a handler raises there, Python drops
SHORT = 3  # gets in a row without that line: one that has what another left is a short one


@pytest.fixture
def handler() -> Iterator[None]:
    def handle(_number: int, _frame: FrameType | None) -> None:
        raise Interrupted

    before = [signal.signal(number, handle) for number in NUMBERS]
    yield
    for number, old in zip(NUMBERS, before, strict=True):
        signal.signal(number, old)


def is_in_finalizer(frame: FrameType | None) -> bool:
    while frame is not None and frame.f_code is not FINALIZER:
        frame = frame.f_back
    return frame is not None


def interrupted_at(line: int, verb: Callable[[], Any]) -> tuple[bool, Any]:
    """Carry out a verb, with a signal before so-many lines of the client; whether there were."""
    seen = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal seen
        if not frame.f_code.co_filename.startswith(HOME):
            return None
        if event == "call" and is_in_finalizer(frame):
            return None  # of an object of before, which a collection found now
        # At a `try` no handler runs, and the `with` around it does not hold there.
        if event == "line" and getline(frame.f_code.co_filename, frame.f_lineno).strip() != "try:":
            seen += 1
            if seen == line:
                sys.settrace(None)
                signal.raise_signal(NUMBERS[line % 2])
        return trace

    result: Any = None
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        result = verb()
    except Interrupted:
        pass
    finally:
        sys.settrace(before)
    return seen >= line, result


@pytest.fixture(params=["lasting", "anonymous"])
def mq(request: pytest.FixtureRequest, server: str, tmp_path: Path) -> Iterator[Client]:
    options = {"id": "ada", "state": tmp_path / "ada"} if request.param == "lasting" else {}
    with Client(server, timeout=10, **options) as client:
        client.subscribe("orders")
        yield client


@pytest.mark.usefixtures("handler")
def test_a_get_that_is_interrupted_at_any_line_loses_and_doubles_nothing(mq: Client) -> None:
    got: list[bytes] = []
    line = put = short = 0
    while short < SHORT:
        if put < len(got) + 10:
            mq.put_many("orders", [b"%d" % number for number in range(put, put + 50)])
            put += 50
        line += not short
        reached, messages = interrupted_at(line, lambda: mq.get("orders", limit=3))
        short = 0 if reached else short + 1
        got += [each.payload for each in messages or ()]
    assert line > 50
    while messages := mq.get("orders", limit=100):
        got += [each.payload for each in messages]
    assert got == [b"%d" % number for number in range(put)]


@pytest.mark.usefixtures("handler")
def test_what_an_interrupted_get_left_keeps_its_order_when_a_block_with_some_of_it_raises(
    mq: Client,
) -> None:
    got: list[bytes] = []
    line = put = short = 0
    while short < SHORT:
        if put < len(got) + 10:
            mq.put_many("orders", [b"%d" % number for number in range(put, put + 50)])
            put += 50
        line += not short
        reached, messages = interrupted_at(line, lambda: mq.get("orders", limit=3))
        short = 0 if reached else short + 1
        got += [each.payload for each in messages or ()]
        with suppress(Interrupted), mq.consume("orders", limit=1, wait=0):
            raise Interrupted
    assert line > 50
    while messages := mq.get("orders", limit=100):
        got += [each.payload for each in messages]
    assert got == [b"%d" % number for number in range(put)]


@pytest.mark.usefixtures("handler")
def test_a_consume_that_is_interrupted_at_any_line_loses_nothing(mq: Client) -> None:
    applied: list[int] = []

    def work() -> None:
        with mq.consume("orders", limit=3) as messages:
            applied.extend(int(each.payload) for each in messages)

    line = put = 0
    goes_on = True
    while goes_on:
        if put < len(set(applied)) + 10:
            mq.put_many("orders", [b"%d" % number for number in range(put, put + 50)])
            put += 50
        line += 1
        goes_on, _ = interrupted_at(line, work)
    assert line > 50
    while messages := mq.get("orders", limit=100):
        applied += [int(each.payload) for each in messages]
    assert list(dict.fromkeys(applied)) == list(range(put))  # a block cut short comes again


@pytest.mark.usefixtures("handler")
def test_a_listener_that_is_interrupted_at_any_line_while_it_ends_loses_nothing(
    mq: Client,
) -> None:
    """What it had at hand and did not hand out comes again."""
    applied: list[int] = []
    line = put = 0
    goes_on = True
    while goes_on:
        if put < len(set(applied)) + 10:
            mq.put_many("orders", [b"%d" % number for number in range(put, put + 50)])
            put += 50
        line += 1
        listening = mq.listen("orders", wait=5)
        applied += [int(next(listening).payload) for _ in range(2)]
        goes_on, _ = interrupted_at(line, listening.close)
    assert line > 50
    while messages := mq.get("orders", limit=100):
        applied += [int(each.payload) for each in messages]
    assert list(dict.fromkeys(applied)) == list(range(put))


@pytest.mark.usefixtures("handler")
@pytest.mark.parametrize("wait", [True, False])
def test_a_put_that_is_interrupted_at_any_line_is_stored_once_or_not_at_all(
    mq: Client, wait: bool
) -> None:
    line = 0
    goes_on = True
    certain: set[int] = set()
    while goes_on:
        line += 1
        payload = b"%d" % line
        goes_on, answer = interrupted_at(line, partial(mq.put, "orders", payload, wait=wait))
        if answer is not None:
            certain.add(line)
        mq.flush()
    assert line > 20
    stored: list[int] = []
    while messages := mq.get("orders", limit=100):
        stored += [int(each.payload) for each in messages]
    assert stored == sorted(set(stored))
    assert certain <= set(stored)
    assert mq.put("orders", b"last").stored


@pytest.mark.usefixtures("handler")
def test_what_an_interrupted_get_left_is_given_by_whichever_verb_comes_next(server: str) -> None:
    def left_over(mq: Client, feed: str | None) -> None:
        """Interrupt gets until one was so after it had settled its messages."""
        for line in range(1, 2_000):  # a get takes some six hundred
            interrupted_at(line, lambda: mq.get(feed, limit=2))
            if any(each.messages for each in mq._handouts._open):
                return
            mq.get(feed, limit=2)
            mq.put_many("a", [b"x"] * 2)
        raise AssertionError("never")

    for feed in ("a", None):
        with Client(server, timeout=10) as mq:
            mq.subscribe("a", start="new")
            mq.subscribe("b")
            mq.put_many("a", [b"x"] * 2)
            left_over(mq, feed)
            names = [each.id for each in mq._handouts._open[0].messages]
            assert len(names) == 2
            assert mq.get("b") == []
            with pytest.raises(ZeroDivisionError), mq.consume("a") as messages:
                raise ZeroDivisionError([each.id for each in messages] == names)
            listening = mq.listen("a")
            assert next(listening).id == names[0]
            listening.close()  # nobody asked for the one after it
            assert [each.id for each in mq.get(limit=1)] == names[:1]
            with mq.consume("a") as messages:
                assert [each.id for each in messages] == names[1:]
            assert mq.get("a") == []


TIMER = """
import random, signal, sys, time
from oncemq import Client

class Late(Exception): pass
def raises(*_): raise Late
signal.signal(signal.SIGALRM, raises)
chance = random.Random(7)
put = got = late = 0
last = -1
with Client(sys.argv[1], id="ada", state=sys.argv[2], timeout=10) as mq:
    mq.subscribe("orders")
    deadline = time.monotonic() + 4
    while time.monotonic() < deadline or late < 50:
        mq.put_many("orders", [b"%d" % n for n in range(put, put + 30)]); put += 30
        for _ in range(10):
            messages = []
            try:
                try:
                    signal.setitimer(signal.ITIMER_REAL, chance.uniform(0.00001, 0.0015))
                    messages = mq.get("orders", limit=3)
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
            except Late:  # before the get, in it, or after it
                late += 1
            for each in messages:
                assert int(each.payload) == last + 1, (each.payload, last)
                last += 1
    while messages := mq.get("orders", limit=100):
        for each in messages:
            assert int(each.payload) == last + 1, (each.payload, last)
            last += 1
print(last + 1 - put)
"""


def test_a_timer_that_raises_around_gets_loses_nothing(server: str, tmp_path: Path) -> None:
    assert alone(TIMER, server, str(tmp_path / "ada")) == ["0"]
