"""The end of a client that nobody closed."""

import logging
import warnings

from oncemq.client.engine.engine import Engine
from oncemq.client.shell.signals import SHIELD

logger = logging.getLogger("oncemq.lost")


def let_go(engine: Engine) -> None:
    """Record what lasts, close everything, wait for nobody; what is lost by that is said."""
    SHIELD.up()
    try:
        unsent, kept = engine.outflow.unsent, engine.state.lasting
        engine.close()
    finally:
        SHIELD.down()
    if unsent:
        where = f"recorded in {engine.state.directory}" if kept else "lost: it has no id"
        logger.warning("client not closed client=%s unsent=%d: %s", engine.client, unsent, where)
    warnings.warn(f"client {engine.client!r} was not closed", ResourceWarning, stacklevel=2)
