"""What a client says of its damaged outbox: where the damage is, and the command that helps."""

import errno
import shlex
from collections.abc import Generator
from contextlib import contextmanager

from oncemq.errors import Corrupt, StorageRefused


@contextmanager
def naming_repair(client: str, state: str) -> Generator[None]:
    """Whatever opens slots says of a damaged one how the client goes on with what is whole."""
    try:
        yield
    except StorageRefused as error:
        if not is_damage(error):
            raise
        command = shlex.join(["once", "client", "repair", "--id", client, "--state", state])
        raise Corrupt(
            f"the outbox of client {client!r} is damaged: {without_advice(error)}. To see which "
            f"unsent puts are lost, and to go on with the others: `{command}`"
        ) from error


def is_damage(error: StorageRefused) -> bool:
    """Whether what is on the disk is broken, or cannot be read; not, say, that the disk is full."""
    cause = error.__cause__
    return isinstance(error, Corrupt) or (isinstance(cause, OSError) and cause.errno == errno.EIO)


def without_advice(error: StorageRefused) -> str:
    """What is damaged; the rest is advice for the log of a server."""
    return error.detail.partition(";")[0].removesuffix(": run `once repair`")
