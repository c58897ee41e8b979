# Generated from databases/aio/work.py by tools/unasync.py; do not edit.
"""Carrying out work that is a generator of steps, on connections that block.

A generator decides, whoever drives it carries out: so the same work runs on connections that are
awaited and on those that block.
"""

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

from oncemq.databases.connections import Connection
from oncemq.databases.statements import Step, Work

S = TypeVar("S")
T = TypeVar("T")


def carry_out(
    work: Generator[S, Any, T],
    perform: Callable[[S], Any],
    lock: AbstractContextManager[Any] | None = None,
) -> T:
    """Perform each step of the work; what a step raises, the work may catch.

    The work itself goes on under the lock, its steps are performed outside of it.
    """
    lock = lock or nullcontext()
    try:
        with lock:
            step = next(work)
        while True:
            try:
                answer = perform(step)
            except Exception as error:
                with lock:
                    step = work.throw(error)
            else:
                with lock:
                    step = work.send(answer)
    except StopIteration as end:
        return end.value
    finally:
        with lock:
            work.close()


def run(connection: Connection, work: Work[T]) -> T:
    """Carry out work on a connection."""

    def perform(step: Step) -> Any:
        return connection.perform(step)

    return carry_out(work, perform)
