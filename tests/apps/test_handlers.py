"""What a handler may ask for, what it is given, and what is refused when it is decorated."""

import functools
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

import msgspec
import pydantic
import pytest

from oncemq import App, ConfigError, Message
from oncemq.apps import payloads, signature


class Order(msgspec.Struct):
    id: int
    cups: int = 1


@dataclass
class Tea:
    leaf: str


class Cake(TypedDict):
    slices: int


class Coffee(pydantic.BaseModel):
    beans: int


class Plain:
    """A class that no JSON becomes."""


@dataclass
class Tray:
    inside: list[Plain]


@pytest.mark.parametrize(
    ("wanted", "payload", "expected"),
    [
        (bytes, b"\xff\x00", b"\xff\x00"),
        (str, "süß".encode(), "süß"),
        (Order, b'{"id": 7}', Order(7)),
        (Tea, b'{"leaf": "oolong"}', Tea("oolong")),
        (Cake, b'{"slices": 3}', {"slices": 3}),
        (dict, b'{"a": [1, 2]}', {"a": [1, 2]}),
        (dict[str, int], b'{"a": 1}', {"a": 1}),
        (Coffee, b'{"beans": 9}', Coffee(beans=9)),
        (int | None, b"null", None),
        (Any, b"[1]", [1]),
    ],
    ids=str,
)
def test_a_payload_becomes_what_the_handler_takes(
    wanted: Any, payload: bytes, expected: Any
) -> None:
    assert payloads.decoder(wanted)(payload) == expected


@pytest.mark.parametrize(
    ("wanted", "payload", "why"),
    [
        (str, b"\xff", "utf-8"),
        (Order, b"{", "truncated"),
        (Order, b'{"id": "7"}', r"at `\$.id`"),
        (Coffee, b'{"beans": "many"}', "valid integer.* - at beans"),
        (Coffee, b"many", "Invalid JSON"),
    ],
    ids=str,
)
def test_a_payload_that_does_not_fit_is_malformed(wanted: Any, payload: bytes, why: str) -> None:
    with pytest.raises(payloads.MalformedPayload, match=why) as told:
        payloads.decoder(wanted)(payload)
    assert "many" not in str(told.value)


@pytest.mark.parametrize(
    ("value", "payload"),
    [
        (b"\xff", b"\xff"),
        (bytearray(b"x"), b"x"),
        ("süß", "süß".encode()),
        (Order(7), b'{"id":7,"cups":1}'),
        (Tea("oolong"), b'{"leaf":"oolong"}'),
        (Coffee(beans=9), b'{"beans":9}'),
        ({"a": None}, b'{"a":null}'),
        (7, b"7"),
    ],
    ids=str,
)
def test_what_a_handler_returns_becomes_a_payload(value: Any, payload: bytes) -> None:
    assert payloads.encode(value) == payload


def test_what_is_no_payload_is_refused_by_name() -> None:
    with pytest.raises(TypeError, match="returned a Plain, which is no payload"):
        payloads.encode(Plain())


def test_pydantic_is_not_imported_for_those_who_do_not_use_it() -> None:
    source = (
        "import sys, oncemq\n"
        "app = oncemq.App(id='shop')\n"
        "@app.handler('orders')\n"
        "def handle(order: dict) -> None: ...\n"
        "print('pydantic' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)
    assert ran.stdout == "False\n"


# ------------------------------------------------------------------ signatures


def one(order: Order) -> None: ...
def many(orders: list[Order]) -> None: ...
def raw(message: Message) -> None: ...
def raws(messages: list[Message]) -> None: ...
def with_message(order: Order, origin: Message) -> None: ...
def with_connection(order: Order, connection: object) -> None: ...
def with_default(order: Order, loud: bool = False) -> None: ...
async def awaitable(order: Order) -> None: ...


def yielding(order: Order) -> Iterator[Order]:
    yield order


class Counter:
    def __call__(self, order: Order) -> None: ...
    def method(self, order: Order) -> None: ...


def named(case: object) -> str | None:
    return getattr(case, "__name__", type(case).__name__) if callable(case) else None


@pytest.mark.parametrize(
    ("function", "batch", "extras"),
    [
        (one, False, {}),
        (many, True, {}),
        (raw, False, {}),
        (raws, True, {}),
        (with_message, False, {"origin": "message"}),
        (with_connection, False, {"connection": "connection"}),
        (with_default, False, {}),
        (awaitable, False, {}),
        (yielding, False, {}),
        (Counter(), False, {}),
        (Counter().method, False, {}),
    ],
    ids=named,
)
def test_a_signature_is_read(
    function: Callable[..., Any], batch: bool, extras: dict[str, str]
) -> None:
    found = signature.read(function)
    assert (found.batch, found.extras) == (batch, extras)
    assert found.awaitable == (function is awaitable)
    assert found.yields == (function is yielding)
    assert (found.decode is None) == (function in (raw, raws))


def nothing() -> None: ...
def unannotated(order) -> None: ...  # type: ignore[no-untyped-def]
def stranger(order: Plain) -> None: ...
def hidden_stranger(tray: Tray) -> None: ...
def bare_list(orders: list) -> None: ...  # type: ignore[type-arg]
def asks_too_much(order: Order, session: object) -> None: ...
def unknown_name(order: "Nobody") -> None: ...  # type: ignore[name-defined]  # noqa: F821
def keyword_only(*, order: Order) -> None: ...


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (nothing, "handler nothing takes nothing; its first parameter gets the payload"),
        (unannotated, "handler unannotated does not say what it takes; annotate 'order' with"),
        (stranger, "handler stranger: a payload cannot be made a Plain; take bytes, str"),
        (hidden_stranger, r"cannot be made a Plain \(in Tray\)"),
        (bare_list, r"takes a list of what\? Write list\[...\]"),
        (asks_too_much, "asks for 'session', which an app does not have"),
        (unknown_name, "annotated with a name that cannot be found: name 'Nobody'"),
        (keyword_only, "takes nothing"),
    ],
    ids=named,
)
def test_a_handler_that_could_not_be_called_is_refused_at_once(
    function: Callable[..., Any], said: str
) -> None:
    app = App(id="shop")
    with pytest.raises(ConfigError, match=said):
        app.handler("orders")(function)
    assert app.handlers == ()


def opens() -> None: ...


@pytest.mark.parametrize(
    ("function", "options", "said"),
    [
        (one, {"topic": ""}, "the topic name is empty"),
        (one, {"topic": "_orders"}, "begins with '_'"),
        (one, {"topic": "orders.>"}, "is a pattern, which would match dead letters too"),
        (one, {"to": "a\nb"}, "control character"),
        (one, {"dead": "orders"}, "its dead letters would come back to it"),
        (one, {"limit": 0}, "at least 1, not 0"),
        (one, {"retries": -1}, "retries and crashes are 0 or more"),
        (one, {"backoff": -1.0}, "backoff is the first wait in seconds"),
        (one, {"into": opens, "to": "bills"}, "oncemq.outbox"),
        (with_connection, {}, "it asks for a connection; say which with into="),
        (yielding, {}, "it yields messages; say with to= which topic"),
        (one, {"name": "x" * 255}, "client id has 260 bytes"),
    ],
)
def test_options_that_make_no_sense_are_refused_at_once(
    function: Callable[..., Any], options: dict[str, Any], said: str
) -> None:
    app = App(id="shop")
    given: dict[str, Any] = {"topic": "orders", **options}
    with pytest.raises(ConfigError, match=said):
        app.handler(**given)(function)


def test_an_id_that_is_no_name_is_refused() -> None:
    with pytest.raises(ConfigError, match="the app id is empty"):
        App(id="")
    with pytest.raises(ConfigError, match="begins with '_'"):
        App(id="_shop")


def test_two_handlers_of_a_topic_need_names() -> None:
    app = App(id="shop")
    app.handler("orders")(one)
    with pytest.raises(ConfigError, match="a handler named 'orders' already"):
        app.handler("orders")(many)
    app.handler("orders", name="statistics")(many)
    assert [each.name for each in app.handlers] == ["orders", "statistics"]


def test_a_decorated_function_stays_what_it_was() -> None:
    def double(order: Order) -> int:
        return 2 * order.cups

    decorated = App(id="shop").handler("orders")(double)
    assert decorated is double
    assert decorated(Order(1, cups=3)) == 6


def test_an_app_without_handlers_does_not_run(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="app 'shop' has no handlers; decorate one"):
        App(id="shop", state=tmp_path).run()


def test_only_a_plain_handler_of_single_messages_gets_them_one_by_one() -> None:
    app = App(id="shop")
    app.handler("a")(one)
    app.handler("b", limit=7)(many)
    app.handler("c", into=functools.partial(opens), limit=8)(one)
    app.handler("d", to="bills", limit=9)(one)
    assert [each.limit for each in app.handlers] == [1, 7, 8, 9]
    assert [each.kind for each in app.handlers] == ["plain", "plain", "inbox", "transactional"]
