"""`oncemq.App`: handlers for topics, and the process that runs them."""

import asyncio
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from oncemq.apps.handler import Handler, HandlerOptions, make
from oncemq.apps.retrying import Backoff, Wait
from oncemq.apps.running import Background, Hook, Setup, nothing, serve
from oncemq.client.verbs.messages import Where
from oncemq.databases.connections import is_connection
from oncemq.errors import ConfigError
from oncemq.protocol.names import is_system, name_fault

F = TypeVar("F", bound=Callable[..., Any])
H = TypeVar("H", bound=Hook)

BACKOFF = Backoff()


class App:
    """Handlers of topics, in one process.

        app = App("tcp://127.0.0.1:5556", id="shop")

        @app.handler("orders", into="sqlite:///shop.db")
        def order(order: Order, connection) -> None:
            connection.execute("INSERT INTO orders VALUES (?, ?)", (order.id, order.cups))

        app.run()                       # or: once run module:app

    Each handler has a subscription of its own, that of the client `APP.TOPIC` (`shop.orders`; or
    `APP.NAME`, with `name=`), and gets each message of its topic in order. What "exactly once"
    means depends on its kind:

    - with `into=`: **effect once**. What it writes to that connection and the cursor are one
      commit of your database.
    - with `to=` or a parameter `transaction`: **output once**. What it returns (or puts into the
      transaction) and the cursor are one commit of the server.
    - otherwise it is plain: **at-least-once effect with a stable id**. A message is settled when
      the handler returned. After a crash the message in hand comes again; `message.id`
      (`orders@42`) is the same then: use it to recognize a repeat.

    A handler may take as long as it needs: no lease runs out, and no heartbeat is needed.
    """

    def __init__(
        self,
        server: str | Sequence[str] = "",
        *,
        id: str,
        state: str | Path | None = None,
        timeout: float = 10.0,
    ) -> None:
        fault = name_fault(id, what="app id")
        if fault is None and is_system(id):
            fault = f"the app id {id!r} begins with '_', which is the system's"
        if fault is not None:
            raise ConfigError(fault)
        self.id = id
        self.server = server  # the one it runs on, once it was told another to run on
        self.state = None if state is None else Path(state)
        self._timeout = timeout
        self._handlers: dict[str, Handler] = {}
        self._startup: list[Hook] = []
        self._shutdown: list[Hook] = []

    def __repr__(self) -> str:
        return f"<App {self.id!r} handlers: {', '.join(self._handlers) or 'none'}>"

    @property
    def handlers(self) -> tuple[Handler, ...]:
        """In the order they were decorated."""
        return tuple(self._handlers.values())

    def handler(
        self,
        topic: str,
        *,
        name: str | None = None,
        to: str | None = None,
        required: bool = True,
        into: Any = None,
        limit: int = 100,
        retries: int = 5,
        backoff: float | Wait = BACKOFF,
        crashes: int = 10,
        give_up_on: type[Exception] | tuple[type[Exception], ...] = (),
        dead: str | None = None,
        start: Where = "new",
    ) -> Callable[[F], F]:
        """Decorate a function that handles the messages of a topic; it stays as it is.

        Its first parameter's annotation says what it takes: bytes, str, a msgspec Struct, a
        dataclass, a TypedDict, dict or a pydantic model (from JSON), the `Message` itself, or
        a list of one of these, for many messages at once. It may also ask for a `Message` by
        annotation, and for `connection` or `transaction` by name. It may be `async`.

        `into`: a connection, a function that opens one, or a URL: handle in its transactions.
        `to`: put what it returns (or yields) into this topic, together with the settling. While
        nobody subscribes to that topic and it keeps nothing, the handler waits, and its messages
        with it; `required=False` lets such a topic discard what it is given.
        `limit`: messages in one transaction, or in one list, at most.
        `retries`: how often to try again when it raises; `backoff`: seconds before the first
        retry, growing and jittered, or a function of (attempt, chance); those of `give_up_on`
        are not retried. Then the message goes to the dead letters (`dead`, or TOPIC.dead), as do
        at once one that is malformed, and one that was in hand in more than `crashes` crashes.
        Until then the messages behind it wait; other handlers go on.
        `start`: where a subscription that is made now begins ('new', 'earliest', an offset, a
        time); one that was there goes on where it was.
        """
        given_up_on = give_up_on if isinstance(give_up_on, tuple) else (give_up_on,)
        options = HandlerOptions(
            name=name,
            to=to,
            required=required,
            into=into,
            limit=limit,
            retries=retries,
            backoff=backoff,
            crashes=crashes,
            give_up_on=given_up_on,
            dead=dead,
            start=start,
        )

        def decorate(function: F) -> F:
            self._add(make(topic, function, options))
            return function

        return decorate

    def on_startup(self, hook: H) -> H:
        """Decorate a function to be called before the first message; it may be async."""
        self._startup.append(hook)
        return hook

    def on_shutdown(self, hook: H) -> H:
        """Decorate a function to be called after the last; it may be async."""
        self._shutdown.append(hook)
        return hook

    def run(
        self,
        *,
        server: str | Sequence[str] | None = None,
        ready: Callable[[], None] = nothing,
    ) -> None:
        """Run until SIGTERM or SIGINT: the message in hand is finished and settled. A second
        signal ends the process at once. `ready` is called when every handler is subscribed."""
        asyncio.run(serve(self._setup(server), signals=True, ready=ready))

    async def serve(self, *, server: str | Sequence[str] | None = None) -> None:
        """Run in an event loop of yours, until cancelled; the message in hand is finished."""
        await serve(self._setup(server))

    @contextmanager
    def running(self, *, server: str | Sequence[str] | None = None) -> Generator["App"]:
        """Run on a thread beside the block, subscribed when it begins: for tests."""
        background = Background(self._setup(server))
        try:
            yield self
        finally:
            background.stop()

    def _add(self, handler: Handler) -> None:
        client = f"{self.id}.{handler.name}"
        if fault := name_fault(client, what="client id"):
            raise ConfigError(f"handler {handler.signature.name}: {fault}")
        if handler.name in self._handlers:
            raise ConfigError(
                f"handler {handler.signature.name}: the app has a handler named '{handler.name}' "
                "already, which has that subscription; give this one a name= of its own"
            )
        same = [each for each in self.handlers if _shared(each, handler)]
        if same:
            raise ConfigError(
                f"handler {handler.signature.name}: its connection is that of handler "
                f"{same[0].signature.name}, and their transactions would mix; give each one of "
                "its own, or a function that opens one"
            )
        self._handlers[handler.name] = handler

    def _setup(self, server: str | Sequence[str] | None) -> Setup:
        if not self._handlers:
            raise ConfigError(f"app '{self.id}' has no handlers; decorate one with @app.handler")
        self.server = server or self.server
        return Setup(
            id=self.id,
            server=self.server,
            state=self.state,
            timeout=self._timeout,
            handlers=self.handlers,
            startup=tuple(self._startup),
            shutdown=tuple(self._shutdown),
        )


def _shared(one: Handler, other: Handler) -> bool:
    """Whether two handlers were given the very same connection."""
    given = one.options.into
    return given is not None and given is other.options.into and is_connection(given)
