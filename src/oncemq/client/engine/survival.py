"""For threads and callbacks that nobody waits for: what goes wrong there ends the client in words.

Law: whoever asks next hears of it; a thread that died silently would leave everyone waiting.
"""

import logging
from collections.abc import Generator
from contextlib import contextmanager
from typing import Protocol

from oncemq.errors import OnceMQError

logger = logging.getLogger("oncemq.client")


class Mortal(Protocol):
    """A client that may fail."""

    @property
    def client(self) -> str: ...
    def fail(self, error: OnceMQError) -> None: ...


@contextmanager
def surviving(client: Mortal) -> Generator[None]:
    """Whatever is raised in the block is the failure of the client, and not of the caller."""
    try:
        yield
    except Exception as error:
        logger.exception("client failed id=%s", client.client)
        client.fail(failed_by(error))


def failed_by(error: Exception) -> OnceMQError:
    """The end of a client by something that nobody expected, in words."""
    detail = f"this client failed: {error!r}; close it, and start it again"
    return OnceMQError(detail, code="client_failed")
