"""A place for one answer: filled once, by the engine; looked at by whoever waits."""

from collections.abc import Callable, Generator
from typing import Generic, Protocol, TypeVar

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


class Ticket(Generic[T]):
    """Open, then filled or failed, for good."""

    __slots__ = ("done", "error", "looked_at", "on_done", "value")

    def __init__(self, on_done: "Callable[[Ticket[T]], None] | None" = None) -> None:
        self.done = False
        self.looked_at = False  # someone waits for it, or did
        self.value: T | None = None
        self.error: OnceMQError | None = None
        self.on_done = on_done

    def fill(self, value: T) -> None:
        """The answer came."""
        if not self.done:
            self.value = value
            self._finish()

    def fail(self, error: OnceMQError) -> None:
        """There will be no answer but this."""
        if not self.done:
            self.error = error
            self._finish()

    def result(self) -> T:
        """The answer, or what went wrong; only when done."""
        assert self.done
        if self.error is not None:
            raise self.error
        return self.value  # type: ignore[return-value]

    def _finish(self) -> None:
        self.done = True
        if self.on_done is not None:
            self.on_done(self)
