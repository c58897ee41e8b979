"""How much an object of ours holds: every collection that can be reached from it, counted."""

from collections import Counter, deque
from collections.abc import Iterator, Mapping
from typing import Any

CONTAINERS = (Mapping, list, set, deque)


def parts(thing: Any) -> Iterator[tuple[str, Any]]:
    """What an object of ours holds, by name."""
    names = [name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ())]
    yield from getattr(thing, "__dict__", {}).items()
    for name in names:
        if hasattr(thing, name):
            yield name, getattr(thing, name)


def sizes(root: Any) -> Counter[str]:
    """How many entries there are in all collections that can be reached, by the way to them."""
    found: Counter[str] = Counter()
    seen: set[int] = set()
    todo: list[tuple[str, Any]] = [(type(root).__name__, root)]
    while todo:
        path, thing = todo.pop()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        if isinstance(thing, CONTAINERS):
            found[path] += len(thing)
            inside = thing.values() if isinstance(thing, Mapping) else thing
            todo += [(f"{path}[]", each) for each in inside]
        elif isinstance(thing, tuple):
            todo += [(path, each) for each in thing]  # it does not grow, what is in it may
        elif type(thing).__module__.startswith("oncemq"):
            todo += [(f"{path}.{name}", each) for name, each in parts(thing)]
    return found
