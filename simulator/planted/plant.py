"""How a bug is planted: something else stands in for one name of the shipped code, for a while."""

import inspect
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

Make = Callable[[Any], Any]  # from what is there to what takes its place
Plant = Callable[[], AbstractContextManager[None]]

PLANTED: dict[str, Plant] = {}
NEEDS: dict[str, tuple[str, ...]] = {}  # one of these faults, to show itself; none: any world


@contextmanager
def standing_in(owner: Any, name: str, make: Make) -> Generator[None]:
    """For a while, what `make` makes of `owner.name` stands in for it."""
    original: Any = inspect.getattr_static(owner, name)
    setattr(owner, name, make(original))
    try:
        yield
    finally:
        setattr(owner, name, original)


def instead(owner: Any, name: str, *needs: str) -> Callable[[Make], Make]:
    """The decorated function makes what stands in for `owner.name` while the bug is planted."""

    def plant(make: Make) -> Make:
        bug = make.__name__.strip("_")
        PLANTED[bug], NEEDS[bug] = lambda: standing_in(owner, name, make), needs
        return make

    return plant


def beside(bug: str, owner: Any, name: str, value: Any) -> None:
    """While this bug is planted, `owner.name` is `value`: else it would make up for the bug."""
    alone = PLANTED[bug]

    @contextmanager
    def both() -> Generator[None]:
        with alone(), standing_in(owner, name, lambda _: value):
            yield

    PLANTED[bug] = both
