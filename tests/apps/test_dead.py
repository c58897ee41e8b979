"""Dead letters: when a message becomes one, what is in it, and that each is there once."""

import inspect
import json
import threading
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from oncemq import App, Client, Message
from oncemq.apps import dead_letter_admin, dead_letters
from oncemq.apps.attempts import AttemptNotes
from oncemq.apps.blocking import BlockingHandlerIO, drive
from oncemq.apps.handler_loop import HandlerLoop
from oncemq.apps.retrying import AttemptNote, Trouble
from oncemq.cli.main import cli
from oncemq.protocol.limits import ServerLimits
from oncemq.protocol.records import Retention
from oncemq.testing import Chaos
from oncemq.wire import batch
from tests.e2e.processes import until

Connect = Callable[..., Client]


class Order(msgspec.Struct, frozen=True):
    id: int


def once(*arguments: str) -> Result:
    """The command, on the server of this test (by ONCEMQ_SERVER)."""
    return CliRunner().invoke(cli, arguments)


def settled(mq: Client, client: str) -> int:
    return mq.subscriptions(client=client)[0].cursor


def order(number: int) -> bytes:
    return msgspec.json.encode(Order(number))


Handle = Callable[[Order, Message], None]


def fails_on_odd_ones(order: Order, message: Message) -> None:
    if order.id % 2:
        raise ValueError(f"{message.id}: cannot make {order.id} cups")


async def fails_awaitably(order: Order, message: Message) -> None:
    fails_on_odd_ones(order, message)


@pytest.mark.parametrize("function", [fails_on_odd_ones, fails_awaitably])
def test_what_fails_to_the_end_becomes_a_letter_and_the_next_goes_on(
    app: App, mq: Client, function: Any
) -> None:
    app.handler("orders", retries=2, backoff=0.001)(function)
    with app.running():
        mq.put("orders", order(1), key=b"table 1", headers={"from": "bar"})
        mq.put("orders", order(2))
        until(lambda: settled(mq, "shop.orders") == 2)
    (letter,) = dead_letter_admin.open_letters(mq, "orders.dead")
    assert letter.payload == order(1)
    assert (letter.key, letter.headers) == (b"table 1", {"from": "bar"})
    assert (letter.id, letter.origin, letter.handler) == (
        "orders.dead@0",
        "orders@0",
        "shop.orders",
    )
    assert letter.attempts == 3
    assert letter.reason == "ValueError: orders@0: cannot make 1 cups"
    assert "in fails_on_odd_ones" in letter.traceback
    assert "oncemq/apps" not in letter.traceback, "it begins where the handler does"
    assert letter.time.endswith("+00:00")


def test_a_malformed_payload_is_a_letter_at_once(app: App, mq: Client) -> None:
    called: list[Order] = []

    @app.handler("orders", backoff=600)
    def handle(order: Order) -> None:
        called.append(order)

    with app.running():
        mq.put("orders", b"what?")
        mq.put("orders", order(1))
        until(lambda: called)
    (letter,) = dead_letter_admin.open_letters(mq, "orders.dead")
    assert letter.payload == b"what?"
    assert letter.reason.startswith("malformed payload: JSON is malformed")
    assert letter.attempts == 1
    assert called == [Order(1)]


def test_what_no_retry_mends_is_a_letter_at_once(app: App, mq: Client) -> None:
    app.handler("orders", backoff=600, give_up_on=ValueError, dead="graveyard")(fails_on_odd_ones)
    with app.running():
        mq.put("orders", order(1))
        until(lambda: settled(mq, "shop.orders") == 1)
    assert [each.origin for each in dead_letter_admin.open_letters(mq, "graveyard")] == ["orders@0"]


def test_of_a_list_only_the_bad_one_becomes_a_letter(app: App, mq: Client) -> None:
    got: list[int] = []

    @app.handler("orders", retries=0)
    def handle(orders: list[Order]) -> None:
        if any(each.id == 2 for each in orders):
            raise RuntimeError("not two")
        got.extend(each.id for each in orders)

    with app.running():
        mq.put_many("orders", [order(n) for n in range(3)] + [b"what?"] + [order(4)])
        until(lambda: settled(mq, "shop.orders") == 5)
    assert got == [0, 1, 4]
    found = dead_letter_admin.open_letters(mq, "orders.dead")
    assert [each.origin for each in found] == ["orders@2", "orders@3"]


def test_a_topic_that_would_not_keep_letters_is_told_to(app: App, mq: Client) -> None:
    mq.create_topic("orders.dead")
    app.handler("orders", retries=0)(fails_on_odd_ones)
    with app.running():
        mq.put("orders", order(1))
        until(lambda: settled(mq, "shop.orders") == 1)
    assert mq.topic("orders.dead").topic.retention == Retention(forever=True)
    assert len(dead_letter_admin.open_letters(mq, "orders.dead")) == 1


def test_a_message_that_took_ten_processes_along_is_a_letter(app: App, mq: Client) -> None:
    called: list[int] = []

    @app.handler("orders", start="earliest")
    def handle(order: Order) -> None:
        called.append(order.id)

    mq.create_topic("orders", Retention(forever=True))
    mq.put_many("orders", [order(0), order(1)])
    assert app.state is not None
    micros = int(mq.read("orders", 0)[0].timestamp.timestamp() * 1_000_000)
    notes = AttemptNotes(app.state / "shop.orders", nullcontext)
    notes.write(AttemptNote(0, micros, crashes=10, at_work=True))
    notes.close()
    with app.running():
        until(lambda: called)
    assert called == [1]
    (letter,) = dead_letter_admin.open_letters(mq, "orders.dead")
    assert letter.reason == "the process died 11 times while it handled this message"


@pytest.mark.slow
@pytest.mark.parametrize("knob", ["crash_after_append", "crash_before_sync", "crash_after_sync"])
def test_a_letter_is_there_once_though_the_server_dies_under_it(
    app: App, mq: Client, oncemq_chaos: Chaos, knob: str
) -> None:
    @app.handler("orders", retries=0)
    def handle(order: Order) -> None:
        if order.id:
            getattr(oncemq_chaos, knob)(0.5, times=3)
            raise ValueError("no")

    with app.running():
        mq.put_many("orders", [order(n) for n in (0, 1, 0, 1, 1, 0)])
        until(lambda: settled(mq, "shop.orders") == 6)
        oncemq_chaos.calm()
    found = dead_letter_admin.open_letters(mq, "orders.dead")
    assert [each.origin for each in found] == ["orders@1", "orders@3", "orders@4"]
    assert oncemq_chaos.injected[knob.replace("_", " ")] > 0


def test_the_largest_message_fits_into_a_letter(app: App, mq: Client) -> None:
    largest = b"x" * (ServerLimits().message_bytes_max - len("from" + "bar"))
    app.handler("orders", retries=0)(fails_on_odd_ones)
    with app.running():
        mq.put("orders", largest, headers={"from": "bar"})
        until(lambda: settled(mq, "shop.orders") == 1)
    (letter,) = dead_letter_admin.open_letters(mq, "orders.dead")
    assert letter.payload == largest


def test_headers_that_are_none_stop_nobody(
    app: App, mq: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Servers used to store what is in the place of headers without a look."""
    monkeypatch.setattr(batch, "_headers_fault", lambda *_: None)
    columns, body = batch.encode([batch.Item(order(1), None, {"a": "b"})])
    forged = body.replace(msgspec.msgpack.encode({"a": "b"}), bytes([0xC1] * 5))
    assert forged != body
    app.handler("orders", retries=0)(fails_on_odd_ones)
    with app.running():
        outflow = mq._engine.outflow  # type: ignore[attr-defined]
        outflow.put("orders", count=1, columns=columns, body=forged, lasting=True)
        mq.flush()
        mq.put("orders", order(2))
        until(lambda: settled(mq, "shop.orders") == 2)
    (letter,) = dead_letter_admin.open_letters(mq, "orders.dead")
    assert (letter.origin, letter.headers) == ("orders@0", {})


class Killed(BaseException):
    """What ends a life at a chosen step."""


STEPS: list[tuple[type, str, bool]] = [
    (HandlerLoop, "_judge", False),
    (HandlerLoop, "_judge", True),
    (BlockingHandlerIO, "bury", False),
    (BlockingHandlerIO, "bury", True),
    (Trouble, "settled", True),
]


@pytest.mark.parametrize(("owner", "step", "after"), STEPS)
def test_a_letter_or_an_effect_and_never_both_wherever_it_is_killed(
    app: App,
    mq: Client,
    monkeypatch: pytest.MonkeyPatch,
    owner: type,
    step: str,
    after: bool,
) -> None:
    """Killed before or after each step of a burial; in its next life the handler would succeed."""
    effects: list[int] = []
    mended = threading.Event()

    def handle(order: Order) -> None:
        if order.id == 1 and not mended.is_set():
            raise ValueError("no")
        effects.append(order.id)

    app.handler("orders", retries=0)(handle)
    real = getattr(owner, step)

    def killed(*arguments: Any, **named: Any) -> Any:
        answer = real(*arguments, **named) if after else None
        if inspect.iscoroutine(answer):
            drive(answer)
        mended.set()
        raise Killed

    mq.create_topic("orders", Retention(forever=True))
    with monkeypatch.context() as patched, suppress(Killed), app.running():
        patched.setattr(owner, step, killed)
        mq.put_many("orders", [order(1), order(2)])
        until(lambda: "shop-app" not in [each.name for each in threading.enumerate()])
    assert mended.is_set()
    with app.running():
        until(lambda: effects[-1:] == [2])
    has_letter = "orders.dead" in [each.name for each in mq.topics()]
    found = dead_letter_admin.open_letters(mq, "orders.dead") if has_letter else []
    if found:
        assert [each.origin for each in found] == ["orders@0"]
        assert effects == [2]
    else:
        assert (step, after) == ("_judge", False), "the verdict was on disk, and did not stand"
        assert effects == [1, 2]


# ------------------------------------------------------------------ retrying and dropping


def a_letter(app: App, mq: Client, *numbers: int) -> threading.Event:
    """Letters of a handler that fails until the event is set."""
    mended = threading.Event()

    @app.handler("orders", retries=0)
    def handle(order: Order) -> None:
        if not mended.is_set():
            raise RuntimeError("the machine is broken")

    with app.running():
        for number in numbers:
            mq.put("orders", order(number), headers={"from": "bar"}, key=b"k")
        until(lambda: settled(mq, "shop.orders") == len(numbers))
    return mended


def test_a_letter_is_listed_shown_retried_and_then_done(app: App, mq: Client) -> None:
    mended = a_letter(app, mq, 7)
    listed = once("dead", "list", "--json")
    (shown,) = json.loads(listed.stdout)
    assert shown["letter"] == "orders.dead@0"
    assert shown["payload"] == '{"id":7}'
    assert once("dead", "list", "orders").stdout.splitlines()[1].startswith("orders.dead@0")
    assert "RuntimeError: the machine is broken" in once("dead", "show", "orders.dead@0").stdout
    mended.set()
    assert once("dead", "retry", "orders.dead@0").stdout == "orders.dead@0: put back to 'orders'\n"
    assert once("dead", "list").stdout == ""
    with app.running():
        until(lambda: settled(mq, "shop.orders") == 2)
    assert once("dead", "list").stdout == ""
    again = once("dead", "retry", "orders.dead@0")
    assert again.exit_code == 1
    assert "orders.dead@0 was retried at" in again.stderr


def test_a_retry_is_for_the_handler_that_gave_up(app: App, mq: Client) -> None:
    mended = a_letter(app, mq, 7)
    mended.set()
    others: list[str] = []

    @app.handler("orders", name="others")
    def other(message: Message) -> None:
        others.append(message.id)

    @app.handler("orders", name="lists")
    async def many(messages: list[Message]) -> None:
        others.extend(each.id for each in messages)

    with app.running():
        once("dead", "retry", "orders", "--all")
        mq.put("orders", order(8))
        until(lambda: settled(mq, "shop.orders") == 3 and len(others) == 2)
    assert others == ["orders@2", "orders@2"], "the others had it the first time"
    assert dead_letter_admin.open_letters(mq, "orders.dead") == []


@pytest.mark.parametrize("after", [False, True], ids=["before the commit", "after it"])
def test_a_retry_that_is_killed_half_way_and_run_again_puts_once(
    app: App, mq: Client, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    a_letter(app, mq, 7, 8)
    real = Client.commit

    def killed(*arguments: Any) -> None:
        if after:
            real(*arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Client, "commit", killed)
        for letter in dead_letter_admin.open_letters(mq, "orders.dead"):
            with pytest.raises(KeyboardInterrupt):
                dead_letter_admin.retry(mq, letter)
    assert mq.topic("orders").topic.end == (4 if after else 2)
    once("dead", "retry", "orders", "--all")
    assert dead_letter_admin.open_letters(mq, "orders.dead") == []
    assert mq.topic("orders").topic.end == 4


def test_letters_that_many_close_at_once_are_closed_once(
    app: App, mq: Client, oncemq_client: Connect
) -> None:
    a_letter(app, mq, *range(6))
    found = dead_letter_admin.open_letters(mq, "orders.dead")
    closed: list[str] = []

    def close(client: Client, close_it: Callable[[Client, dead_letters.DeadLetter], bool]) -> None:
        closed.extend(each.id for each in found if close_it(client, each))

    threads = [
        threading.Thread(target=close, args=(oncemq_client(), each))
        for each in (dead_letter_admin.retry, dead_letter_admin.drop, dead_letter_admin.retry)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(closed) == [each.id for each in found]
    assert dead_letter_admin.open_letters(mq, "orders.dead") == []
    retried = [each for each in mq.read("orders.dead.done", 0) if each.payload == b"retried"]
    assert mq.topic("orders").topic.end == 6 + len(retried)
    assert mq.topic("orders.dead.done").topic.end == 6


def test_who_closes_a_letter_too_late_leaves_nothing_staged(app: App, mq: Client) -> None:
    a_letter(app, mq, 7)
    (letter,) = dead_letter_admin.open_letters(mq, "orders.dead")
    assert dead_letter_admin.drop(mq, letter)
    assert not dead_letter_admin.retry(mq, letter)
    assert mq.status()["stage_bytes"] == 0
    assert mq.topic("orders").topic.end == 1


def test_a_letter_that_is_dropped_is_done(app: App, mq: Client) -> None:
    a_letter(app, mq, 7, 8)
    assert once("dead", "drop", "orders.dead@0").stdout == "orders.dead@0: dropped\n"
    assert [each.id for each in dead_letter_admin.open_letters(mq, "orders.dead")] == [
        "orders.dead@1"
    ]
    assert once("dead", "drop", "orders", "--all").exit_code == 0
    assert once("dead", "list").stdout == ""
    assert mq.topic("orders").topic.end == 2


REFUSED: list[tuple[list[str], int, str]] = [
    (["list", "teas"], 1, "'teas' has no dead letters"),
    (["show", "orders"], 1, "'orders' is not the name of a letter, as orders.dead@7 is"),
    (["show", "orders.dead@9"], 1, "'orders.dead' holds offsets 0 up to 1, not 9"),
    (["show", "notes@0"], 1, "notes@0 is no dead letter; `once dead list` shows them"),
    (["retry", "orders"], 2, "say --all for every open letter of 'orders'"),
    (["retry"], 2, "missing argument"),
    (["drop", "nothing.dead@0"], 1, "nothing.dead"),
]


def test_what_cannot_be_is_said(app: App, mq: Client) -> None:
    a_letter(app, mq, 7)
    mq.subscribe("notes")
    mq.put("notes", b"hello")
    for arguments, code, said in REFUSED:
        ran = once("dead", *arguments)
        assert (ran.exit_code, said in ran.stderr) == (code, True), ran.stderr


def test_a_retry_that_nobody_would_handle_is_refused(app: App, mq: Client, tmp_path: Path) -> None:
    a_letter(app, mq, 7)
    with Client(app.server, id="shop.orders", state=tmp_path / "state" / "shop.orders") as handler:
        handler.unsubscribe("orders")
    ran = once("dead", "retry", "orders.dead@0")
    assert ran.exit_code == 1
    assert "orders.dead@0 stays: handler shop.orders is not subscribed to 'orders'" in ran.stderr
    assert "nobody subscribes to" in once("dead", "retry", "orders.dead@0", "--for-all").stderr
    mq.subscribe("orders")
    assert once("dead", "retry", "orders.dead@0", "--for-all").exit_code == 0
    (message,) = mq.get("orders", wait=10)
    assert (message.payload, message.headers, message.key) == (order(7), {"from": "bar"}, b"k")


def test_a_letter_of_a_topic_made_anew_is_another_letter(app: App, mq: Client) -> None:
    a_letter(app, mq, 7)
    once("dead", "drop", "orders.dead@0")
    mq.delete_topic("orders.dead")
    with app.running():
        mq.put("orders", order(8))
        until(lambda: settled(mq, "shop.orders") == 2)
    assert [each.payload for each in dead_letter_admin.open_letters(mq, "orders.dead")] == [
        order(8)
    ]


def test_what_somebody_else_put_into_the_topic_is_no_letter(app: App, mq: Client) -> None:
    a_letter(app, mq, 7)
    mq.put("orders.dead", b"hello")
    assert len(dead_letter_admin.open_letters(mq, "orders.dead")) == 1


def test_headers_of_ours_do_not_pile_up(app: App, mq: Client) -> None:
    a_letter(app, mq, 7)
    (letter,) = dead_letter_admin.open_letters(mq, "orders.dead")
    assert dead_letters.retry_headers(letter) == {"from": "bar", "oncemq-only": "shop.orders"}
