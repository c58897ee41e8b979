"""One decorated function: its topic, how it is called, and what happens when it fails."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from oncemq.apps import dead_letters, signature
from oncemq.apps.connecting import opening
from oncemq.apps.retrying import Backoff, RetryLimits, Wait
from oncemq.apps.signature import CONNECTION, TRANSACTION, Function, Signature
from oncemq.client.verbs.messages import Where
from oncemq.errors import ConfigError, DatabaseRefused
from oncemq.protocol.names import is_system, name_fault
from oncemq.protocol.patterns import is_pattern

PLAIN, INBOX, TRANSACTIONAL = "plain", "inbox", "transactional"


@dataclass(frozen=True, slots=True)
class HandlerOptions:
    """What the decorator was told. `limit`: messages in one transaction, or in one list."""

    name: str | None = None
    to: str | None = None
    required: bool = True
    into: Any = None
    limit: int = 100
    retries: int = 5
    backoff: float | Wait = Backoff()
    crashes: int = 10
    give_up_on: tuple[type[Exception], ...] = ()
    dead: str | None = None
    start: Where = "new"


@dataclass(frozen=True, slots=True)
class Handler:
    """A function and what it is for."""

    topic: str
    function: Function
    signature: Signature
    options: HandlerOptions

    @property
    def name(self) -> str:
        """What makes its client's id, after the app's: the topic, unless a name was given."""
        return self.options.name or self.topic

    @property
    def kind(self) -> str:
        """In what its effect and its cursor are committed."""
        if self.options.into is not None:
            return INBOX
        transactional = self.options.to is not None or self.signature.wants(TRANSACTION)
        return TRANSACTIONAL if transactional else PLAIN

    @property
    def limit(self) -> int:
        """How many messages it is given at once, or has in one transaction.

        A plain handler of single messages settles each: after a crash only the one in hand comes
        again.
        """
        alone = self.kind == PLAIN and not self.signature.batch
        return 1 if alone else self.options.limit

    @property
    def limits(self) -> RetryLimits:
        """When to stop trying."""
        return RetryLimits(retries=self.options.retries, crashes=self.options.crashes)

    @property
    def backoff(self) -> Wait:
        """How long to wait before the next attempt."""
        given = self.options.backoff
        return given if callable(given) else Backoff(first=given)

    @property
    def dead(self) -> str:
        """The topic of its dead letters."""
        return self.options.dead or dead_letters.dead_topic(self.topic)


def make(topic: str, function: Callable[..., Any], options: HandlerOptions) -> Handler:
    """A handler, or ConfigError that says what does not go."""
    handler = Handler(topic, function, signature.read(function), options)
    faults = (_name_faults(handler), _number_faults(options), _kind_faults(handler))
    for fault in (*faults, _into_faults(handler)):
        if fault is not None:
            raise ConfigError(f"handler {handler.signature.name}: {fault}")
    return handler


def _name_faults(handler: Handler) -> str | None:
    for name in (handler.topic, handler.dead, handler.dead + dead_letters.DONE, handler.options.to):
        if name is None:
            continue
        fault = name_fault(name)
        if fault is None and is_system(name):
            fault = f"the topic {name!r} begins with '_', which is the system's"
        if fault is None and is_pattern(name):
            fault = f"{name!r} is a pattern, which would match dead letters too; name one topic"
        if fault is not None:
            return fault
    if handler.dead == handler.topic:
        return f"its dead letters would come back to it: '{handler.topic}' is its own topic"
    return None


def _number_faults(options: HandlerOptions) -> str | None:
    if options.limit < 1:
        return f"limit is how many messages at once, at least 1, not {options.limit}"
    if options.retries < 0 or options.crashes < 0:
        return "retries and crashes are 0 or more"
    if not callable(options.backoff) and options.backoff < 0:
        return f"backoff is the first wait in seconds, or a function, not {options.backoff}"
    return None


def _kind_faults(handler: Handler) -> str | None:
    asked, options = handler.signature, handler.options
    if options.into is not None and (options.to is not None or asked.wants(TRANSACTION)):
        return (
            "into= commits in your database and to= (or a transaction) on the server, and the two "
            "cannot be one commit; put what follows into the outbox of that database: "
            "`oncemq.outbox(connection).put(topic, payload)`"
        )
    if asked.wants(CONNECTION) and options.into is None:
        return "it asks for a connection; say which with into= (a connection, a function, a URL)"
    if asked.yields and options.to is None:
        return "it yields messages; say with to= which topic they go to"
    return None


def _into_faults(handler: Handler) -> str | None:
    if handler.options.into is None:
        return None
    try:
        opening(handler.options.into, awaitable=handler.signature.awaitable)
    except DatabaseRefused as refused:
        return refused.detail
    return None
