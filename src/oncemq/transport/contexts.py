"""ZeroMQ contexts, made only where their descriptors can be had.

libzmq's threads cannot report that the process may open no more files: they abort it, or wait for
each other for ever. So the descriptors are tried for first.

Law: a context is made after it was seen that everything behind it can be opened. Another thread may
still take them in between: what is tried for is more than what is needed.
"""

import errno
import os
from collections.abc import Generator
from contextlib import ExitStack, contextmanager

import zmq

from oncemq.errors import TooManyFiles

Context = zmq.Context[zmq.Socket[bytes]]

# A context takes 5, a socket with its monitor 3, a connection 1, the bell of who waits 2.
DESCRIPTORS = 16


def new_context() -> Context:
    """A context, or the error that says why there can be none."""
    with no_descriptors_in_words(), ExitStack() as opened:
        for _ in range(DESCRIPTORS):
            opened.callback(os.close, os.open(os.devnull, os.O_RDONLY))
    return zmq.Context()


@contextmanager
def no_descriptors_in_words() -> Generator[None]:
    """What opens files or sockets, with words for the case that no more can be had."""
    try:
        yield
    except (OSError, zmq.ZMQError) as error:
        if error.errno not in (errno.EMFILE, errno.ENFILE):
            raise
        raise TooManyFiles(
            f"a connection takes up to {DESCRIPTORS} open files, and so many more cannot be had "
            f"({error.strerror}). Close what is not needed (one client can serve many topics), or "
            "raise the limit (ulimit -n)"
        ) from error
