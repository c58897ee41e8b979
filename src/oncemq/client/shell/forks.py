"""What a fork does to clients: the copies in the child are closed, and say so.

A fork copies one thread and every descriptor. ZeroMQ's threads are gone in the child, a lock that
another thread held stays taken, and a byte written or a SQLite connection closed there damages what
the parent is using. So the child's copy of a client touches nothing, and every verb of it raises
`Forked`. Its part in the locks of the outbox is given up by `storage.locks`. The parent goes on.
"""

import os
import weakref
from typing import Protocol

from oncemq.client.shell.signals import SHIELD
from oncemq.errors import Forked


class Forkable(Protocol):
    """What must know when it is a copy."""

    def forked(self, error: Forked) -> None: ...


_LIVING: "weakref.WeakSet[Forkable]" = weakref.WeakSet()
_process = os.getpid()


def tell_of_forks(each: Forkable) -> None:
    """Call its `forked` in every child of this process; it is not kept alive by that."""
    _LIVING.add(each)


def _in_child() -> None:
    global _process
    parent, _process = _process, os.getpid()
    SHIELD.forked()
    error = Forked(
        f"this client was made by process {parent}, and process {_process} was forked from that: "
        "make a client in each process, after the fork (with gunicorn in post_fork, with "
        "multiprocessing in the function that the worker runs)"
    )
    living = list(_LIVING)
    _LIVING.clear()  # a child of this child has no more to be told
    for each in living:
        each.forked(error)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
