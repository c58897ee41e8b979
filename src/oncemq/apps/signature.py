"""What a handler asks for, read from its parameters when it is decorated.

    def handle(order: Order) -> None                          one message, decoded
    def handle(orders: list[Order]) -> None                   many at once
    async def handle(order: Order, message: Message) -> None  with the message itself
    def handle(order: Order, connection) -> None              in the transaction of `into=`
    def handle(order: Order, transaction) -> None             in a transaction of the server

Law: a handler that could not be called is refused here, by name and with the way out, and not
when its first message comes.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, get_args, get_origin, get_type_hints

from oncemq.apps import payloads
from oncemq.client.values import Message
from oncemq.errors import ConfigError

Function = Callable[..., Any]

MESSAGE, CONNECTION, TRANSACTION = "message", "connection", "transaction"


@dataclass(frozen=True, slots=True)
class Signature:
    """How a handler is called."""

    name: str
    decode: payloads.Decode | None  # None: it takes the Message itself
    batch: bool
    awaitable: bool
    yields: bool
    extras: dict[str, str] = field(default_factory=dict[str, str])  # parameter: what it is given

    def wants(self, extra: str) -> bool:
        """Whether it asks for this."""
        return extra in self.extras.values()

    def payload(self, message: Message) -> Any:
        """What it takes for one message; raises Malformed."""
        return message if self.decode is None else self.decode(message.payload)


def read(function: Function) -> Signature:
    """The signature of a handler, or ConfigError."""
    name = getattr(function, "__name__", None) or type(function).__name__
    hints = _hints(function, name)
    parameters = list(inspect.signature(function).parameters.values())
    if not parameters or parameters[0].kind not in (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
    ):
        raise ConfigError(f"handler {name} takes nothing; its first parameter gets the payload")
    first, *others = parameters
    if first.name not in hints:
        raise ConfigError(
            f"handler {name} does not say what it takes; annotate '{first.name}' with "
            f"{payloads.KNOWN}, or a list of one of them"
        )
    wanted = hints[first.name]
    batch = wanted is list or get_origin(wanted) is list
    if batch:
        (wanted,) = get_args(wanted) or (None,)
        if wanted is None:
            raise ConfigError(f"handler {name} takes a list of what? Write list[...]")
    try:
        decode = None if wanted is Message else payloads.decoder(wanted)
    except ConfigError as error:
        raise ConfigError(f"handler {name}: {error.detail}") from error
    return Signature(
        name=name,
        decode=decode,
        batch=batch,
        awaitable=inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function),
        yields=inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function),
        extras=_extras(name, others, hints, batch=batch),
    )


def _hints(function: Function, name: str) -> dict[str, Any]:
    called = function if inspect.isroutine(function) else type(function).__call__
    try:
        return get_type_hints(called, include_extras=True)
    except NameError as error:
        raise ConfigError(
            f"handler {name} is annotated with a name that cannot be found: {error}; types that "
            "handlers take are defined or imported at the top of the module"
        ) from error


def _extras(
    name: str, parameters: list[inspect.Parameter], hints: dict[str, Any], *, batch: bool
) -> dict[str, str]:
    raw: Any = list[Message] if batch else Message
    extras: dict[str, str] = {}
    for each in parameters:
        if hints.get(each.name) == raw:
            extras[each.name] = MESSAGE
        elif each.name in (CONNECTION, TRANSACTION):
            extras[each.name] = each.name
        elif each.default is inspect.Parameter.empty and each.kind not in (
            inspect.Parameter.VAR_POSITIONAL,
            inspect.Parameter.VAR_KEYWORD,
        ):
            shown = "list[Message]" if batch else "Message"
            raise ConfigError(
                f"handler {name} asks for '{each.name}', which an app does not have; beside the "
                f"payload it can give: a {shown} (by annotation), 'connection' (with into=) and "
                "'transaction' (by name)"
            )
    return extras
