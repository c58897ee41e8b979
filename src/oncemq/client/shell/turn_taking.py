"""Who gets at a time: one thread, or one task; and what it may get inside a block of its own.

A block (`consume`, an iteration of `listen`, a transaction) has messages that are not settled yet.
Another get of the same topic would settle later ones, and the cursor has only one place: those of
the block would count as settled, and be lost when it raises. So inside a block its own thread or
task may get from other topics, and is refused the rest; everybody else waits until it is over.
"""

import weakref
from collections.abc import Iterable, Iterator

from oncemq.errors import InvalidRequest
from oncemq.session.prefetched import is_single


class BlockLife:
    """What the generator of a block has, and nobody else: gone when the block is over.

    A signal handler that raises may keep a block from saying that it is over; then this is how
    those who come after it know.
    """

    __slots__ = ("__weakref__",)


def one_life() -> "Iterator[weakref.ref[BlockLife]]":
    """To be gone through around a block, once: it is given a life, which ends with the loop.

    Only the loop has it, and no variable: the variables of a frame live on in the exception that
    left it, for as long as somebody keeps that.
    """
    return map(weakref.ref, [BlockLife()])


def check_apart(feed: str, opened: Iterable[str]) -> None:
    """Refuse a feed that has messages in common with those that open blocks get from."""
    for other in opened:
        if feed == other or not (is_single(feed) and is_single(other)):
            raise InvalidRequest(
                f"a block that gets from {_named(other)} is open here: end it before getting "
                f"from {_named(feed)} (close a listener that you left and still have, as "
                "contextlib.closing and contextlib.aclosing do), or use a second client"
            )


def _named(feed: str) -> str:
    return repr(feed.replace("\n", ", ")) if feed else "any topic"
