"""A verdict stands, and every failure comes to one: whatever a handler raises, and whoever dies."""

import asyncio
import logging
import os
import threading
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest

from oncemq import (
    App,
    AsyncClient,
    Client,
    Fenced,
    HistoryLost,
    InvalidRequest,
    Unreachable,
)
from oncemq.apps import dead_letter_admin
from oncemq.apps.attempts import AttemptNotes
from oncemq.apps.blocking import BlockingHandlerIO
from oncemq.apps.retrying import AttemptNote, Trouble, Verdict
from oncemq.apps.wording import REASON_CHARACTERS, TRACEBACK_CHARACTERS
from oncemq.protocol.records import Retention
from tests.e2e.processes import until

FOREVER = Retention(forever=True)


class Killed(BaseException):
    """What ends a life at a chosen step."""


def settled(mq: Client) -> int:
    return mq.subscriptions(client="shop.orders")[0].cursor


def after_the_letter(patched: pytest.MonkeyPatch, then: Callable[[], None]) -> None:
    """Whoever puts a letter is killed before the message is settled."""
    put = BlockingHandlerIO.bury

    async def bury(*arguments: Any) -> None:
        await put(*arguments)
        then()
        raise Killed

    patched.setattr(BlockingHandlerIO, "bury", bury)


def ended(name: str = "shop-app") -> bool:
    return name not in [each.name for each in threading.enumerate()]


# ------------------------------------------------------------------ it is read again


def test_the_verdict_on_an_exception_with_a_long_text_stands(
    app: App, mq: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The note was read up to 64 KiB, and held the whole text: it was none for the next start."""
    mended = threading.Event()

    @app.handler("orders", to="bills", retries=0, start="earliest")
    def bill(payload: bytes) -> bytes:
        if not mended.is_set():
            raise ValueError(f"cannot read {payload!r}")
        return b"a bill"

    for topic in ("orders", "bills"):
        mq.create_topic(topic, FOREVER)
    mq.put("orders", b"x" * 70_000)
    with monkeypatch.context() as patched, suppress(Killed), app.running():
        after_the_letter(patched, mended.set)
        until(ended)
    with app.running():
        until(lambda: settled(mq) == 1)
    assert mq.read("bills", 0) == [], "a letter and an effect exclude each other"
    (letter,) = dead_letter_admin.open_letters(mq, "orders.dead")
    assert letter.reason == ("ValueError: cannot read b'" + "x" * 70_000)[:REASON_CHARACTERS]
    assert len(letter.traceback) == TRACEBACK_CHARACTERS


# ------------------------------------------------------------------ nobody writes over it


def test_an_older_process_does_not_write_over_the_verdict_of_a_newer_one(
    oncemq_server: str, tmp_path: Path, mq: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A is in a long handler; B takes over and puts a letter; A fails; B is killed; C starts."""
    has_it, go_on = threading.Event(), threading.Event()

    def long(payload: bytes) -> bytes:
        has_it.set()
        go_on.wait()
        raise ValueError("the old one fails")

    def final(payload: bytes) -> bytes:
        raise KeyError("no such customer")

    def good(payload: bytes) -> bytes:
        return b"a bill"

    def start(function: Callable[[bytes], bytes]) -> App:
        app = App(oncemq_server, id="shop", state=tmp_path / "state")
        app.handler("orders", to="bills", give_up_on=KeyError, start="earliest")(function)
        return app

    for topic in ("orders", "bills"):
        mq.create_topic(topic, FOREVER)
    mq.put("orders", b"one cake")

    def the_older_one_fails() -> None:
        go_on.set()
        until(lambda: sum(each.name == "shop-app" for each in threading.enumerate()) == 1)

    def a_newer_one_is_killed() -> None:
        assert has_it.wait(30)
        with monkeypatch.context() as patched, suppress(Killed), start(final).running():
            after_the_letter(patched, the_older_one_fails)
            until(ended)

    with pytest.raises(Fenced), start(long).running():
        a_newer_one_is_killed()
    with start(good).running():
        until(lambda: settled(mq) == 1)
    assert mq.read("bills", 0) == [], "a letter and an output exclude each other"
    (letter,) = dead_letter_admin.open_letters(mq, "orders.dead")
    assert letter.reason == "KeyError: 'no such customer'"


@pytest.mark.parametrize(("owner", "step"), [(BlockingHandlerIO, "subscribe"), (Trouble, "begin")])
def test_a_verdict_that_came_late_is_carried_out(
    app: App, mq: Client, monkeypatch: pytest.MonkeyPatch, owner: type, step: str
) -> None:
    """Of an older process, until this one is let in; or of an earlier version, at any time."""
    called: list[bytes] = []
    app.handler("orders", start="earliest")(called_with(called))
    mq.create_topic("orders", FOREVER)
    mq.put_many("orders", [b"judged", b"good"])
    micros = int(mq.read("orders", 0)[0].timestamp.timestamp() * 1_000_000)
    assert app.state is not None
    notes = AttemptNotes(app.state / "shop.orders", nullcontext)
    real = getattr(owner, step)

    def late(*arguments: Any) -> Any:
        if not called:
            notes.write(AttemptNote(0, micros, verdict=Verdict("it was no good", "", 1, "now")))
        return real(*arguments)

    monkeypatch.setattr(owner, step, late)
    with app.running():
        until(lambda: settled(mq) == 2)
    assert called == [b"good"]
    (letter,) = dead_letter_admin.open_letters(mq, "orders.dead")
    assert letter.reason == "it was no good"


def called_with(called: list[bytes]) -> Callable[[bytes], None]:
    def handle(payload: bytes) -> None:
        called.append(payload)

    return handle


# ------------------------------------------------------------------ whatever its words are


class Rude(Exception):
    """Its words cannot be had."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


def no_such_file(payload: bytes) -> Exception:
    return ValueError(f"no such file: {os.fsdecode(payload)}")  # as any of os.listdir may be


def rude(payload: bytes) -> Exception:
    return Rude()


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (no_such_file, "ValueError: no such file: caf\\udce9"),
        (rude, "Rude: (its words cannot be shown: str() raised RuntimeError)"),
    ],
)
def test_an_exception_with_unspeakable_words_becomes_a_letter_and_the_next_goes_on(
    app: App, mq: Client, error: Callable[[bytes], Exception], reason: str
) -> None:
    @app.handler("orders", retries=1, backoff=0.001, start="earliest")
    def handle(payload: bytes) -> None:
        if payload != b"good":
            raise error(payload)

    mq.create_topic("orders", FOREVER)
    mq.put_many("orders", [b"caf\xe9", b"good"])
    with app.running():
        until(lambda: settled(mq) == 2)
    (letter,) = dead_letter_admin.open_letters(mq, "orders.dead")
    assert (letter.reason, letter.attempts) == (reason, 2)
    assert "in handle" in letter.traceback


def test_a_wait_is_told_in_one_line_whatever_the_handler_raised(
    app: App, mq: Client, caplog: pytest.LogCaptureFixture
) -> None:
    class RudelyAway(Unreachable):
        def __str__(self) -> str:
            return "away\nmessage buried handler=\x1b[31mnobody \udce9"

    calls: list[bytes] = []

    @app.handler("orders", start="earliest")
    def handle(payload: bytes) -> None:
        calls.append(payload)
        if len(calls) == 1:
            raise RudelyAway("")

    mq.create_topic("orders", FOREVER)
    mq.put("orders", b"1")
    with caplog.at_level(logging.WARNING), app.running():
        until(lambda: settled(mq) == 1)
    (said,) = [each.getMessage() for each in caplog.records if "waits" in each.getMessage()]
    assert said.endswith("because=away message buried handler=\\x1b[31mnobody \\udce9")


# ------------------------------------------------------------------ what a commit is refused for


async def put_awaitably(payload: bytes, transaction: Any) -> None:
    await transaction.put(payload.decode(), b"x")


def put(payload: bytes, transaction: Any) -> None:
    transaction.put(payload.decode(), b"x")


@pytest.mark.parametrize("function", [put, put_awaitably])
@pytest.mark.parametrize("name", ["_audit", "bills.*", "bills*"])  # the last: at the commit
def test_what_the_server_refuses_to_commit_is_a_failure_of_the_message(
    app: App, mq: Client, function: Any, name: str
) -> None:
    for topic in ("orders", "good"):
        mq.create_topic(topic, FOREVER)
    mq.put_many("orders", [b"good", name.encode(), b"good"])
    app.handler("orders", retries=1, backoff=0.001, start="earliest")(function)
    with app.running():
        until(lambda: settled(mq) == 3)
    assert len(mq.read("good", 0)) == 2
    (letter,) = dead_letter_admin.open_letters(mq, "orders.dead")
    assert (letter.origin, letter.attempts) == ("orders@1", 2)
    assert letter.reason.startswith("InvalidRequest: ")
    assert repr(name) in letter.reason


@pytest.mark.parametrize("name", ["_audit", "bills.*"])
def test_a_transaction_refuses_what_no_commit_could_name_at_once(
    oncemq_server: str, mq: Client, name: str
) -> None:
    with mq.transaction() as transaction:
        for topic in (name, [name]):
            with pytest.raises(InvalidRequest):
                transaction.put(topic, b"x")
            with pytest.raises(InvalidRequest):
                transaction.put_many(topic, [b"x"])

    async def awaitably() -> None:
        async with AsyncClient(oncemq_server) as client, client.transaction() as transaction:
            for topic in (name, [name]):
                with pytest.raises(InvalidRequest):
                    await transaction.put(topic, b"x")
                with pytest.raises(InvalidRequest):
                    await transaction.put_many(topic, [b"x"])

    asyncio.run(awaitably())


@pytest.mark.parametrize("error", [Fenced("a newer one"), HistoryLost("it is not there")])
def test_what_ends_the_client_of_a_transaction_ends_the_app_and_judges_no_message(
    app: App, mq: Client, error: Exception
) -> None:
    """`transaction.put` tells the handler so, and that is no failure of the handler."""

    @app.handler("orders", retries=0, start="earliest")
    def handle(payload: bytes, transaction: Any) -> None:
        raise error

    mq.create_topic("orders", FOREVER)
    mq.put("orders", b"1")
    with pytest.raises(type(error)), app.running():
        until(ended)
    assert settled(mq) == 0
    assert [each.name for each in mq.topics()] == ["orders"]
