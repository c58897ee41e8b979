"""For threads and callbacks that nobody waits for: what goes wrong there ends the client in words.

Law: whoever asks next hears of it; a thread that died silently would leave everyone waiting.
"""

import logging
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from oncemq.errors import OnceMQError

if TYPE_CHECKING:
    from oncemq.client.engine.engine import Engine

logger = logging.getLogger("oncemq.client")


@contextmanager
def surviving(engine: "Engine") -> Generator[None]:
    """Whatever is raised in the block is the failure of the client, and not of the caller."""
    try:
        yield
    except Exception as error:
        logger.exception("client failed id=%s", engine.client)
        engine.fail(failed_by(error))


def failed_by(error: Exception) -> OnceMQError:
    """The end of a client by something that nobody expected, in words."""
    detail = f"this client failed: {error!r}; close it, and start it again"
    return OnceMQError(detail, code="client_failed")
