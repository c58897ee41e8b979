"""For threads and callbacks that nobody waits for: what goes wrong there ends the client in words.

Law: whoever asks next hears of it; a thread that died silently would leave everyone waiting.
"""

import logging
from collections.abc import Generator
from contextlib import contextmanager

from oncemq.client.engine import Engine
from oncemq.errors import OnceMQError

logger = logging.getLogger("oncemq.client")


@contextmanager
def surviving(engine: Engine) -> Generator[None]:
    """Whatever is raised in the block is the failure of the client, and not of the caller."""
    try:
        yield
    except Exception as error:
        logger.exception("client failed id=%s", engine.client)
        detail = f"this client failed: {error!r}; close it, and start it again"
        engine.fail(OnceMQError(detail, code="client_failed"))
