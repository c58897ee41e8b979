"""A place for one answer: filled once, by the engine; looked at by whoever waits."""

from collections.abc import Callable, Generator
from typing import Generic, Protocol, TypeVar

import msgspec

from oncemq.errors import OnceMQError

T = TypeVar("T")


class Awaited(Protocol):
    """Whatever a verb waits for."""

    @property
    def done(self) -> bool: ...


Verb = Generator[Awaited, None, T]  # what a client does, as both shells run it


class Until:
    """A wait for something that no single answer brings."""

    __slots__ = ("_ready",)

    def __init__(self, ready: "Callable[[], bool]") -> None:
        self._ready = ready

    @property
    def done(self) -> bool:
        """Whether it is so now."""
        return self._ready()


class Ticket(msgspec.Struct, Generic[T], eq=False):
    """Open, then filled or failed, for good."""

    on_done: "Callable[[Ticket[T]], None] | None" = None
    done: bool = False
    looked_at: bool = False  # someone waits for it, or did
    value: T | None = None
    error: OnceMQError | None = None

    def fill(self, value: T) -> None:
        """The answer came."""
        if self.done:
            return
        self.value = value
        self.done = True
        if self.on_done is not None:
            self.on_done(self)

    def fail(self, error: OnceMQError) -> None:
        """There will be no answer but this."""
        if self.done:
            return
        self.error = error
        self.done = True
        if self.on_done is not None:
            self.on_done(self)

    def result(self) -> T:
        """The answer, or what went wrong; only when done."""
        assert self.done
        if self.error is not None:
            raise self.error.with_traceback(None)
        return self.value  # type: ignore[return-value]
