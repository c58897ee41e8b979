"""What a client tells in its log, under `oncemq.client`: each fact once, not once for each retry.

Laws: never a payload. What the client mends by itself is a warning, what wants a person an error;
nothing is printed where logging was not set up (`NullHandler`), for whoever calls is told as well.
Messages that are gone without an error for anybody (discarded, lost at the server, lost with a
client that was not closed) are told under `oncemq.lost` instead, which has no such handler: where
nothing was set up, Python prints them on stderr.
"""

import logging

from oncemq.errors import OnceMQError
from oncemq.protocol.generations import in_words
from oncemq.protocol.names import Micros
from oncemq.protocol.replies import Welcome

MINUTE = 60_000_000
TOLD_MAX = 1_000  # refusals that were told of and are remembered; one more, and all are told again

logger = logging.getLogger("oncemq.client")
logger.addHandler(logging.NullHandler())


class News:
    """What one client was told of, so that it is not told of twice."""

    def __init__(self, client: str) -> None:
        self._client = client
        self._connected: bool | None = None  # None: nothing was told yet
        self._leader: tuple[str, int] | None = None  # as it was named last
        self._refusals: set[tuple[str, str]] = set()
        self._full_at = Micros(-MINUTE)

    def linked(self, server: str, *, connected: bool) -> None:
        """The connection came, went, or did not come in time."""
        if connected is self._connected:
            return
        if not connected:
            logger.warning(
                "server away server=%s client=%s: what waits is sent when it is back",
                *(server, self._client),
            )
        elif self._connected is None:
            logger.info("connected server=%s client=%s", server, self._client)
        else:
            logger.info("server back server=%s client=%s", server, self._client)
        self._connected = connected

    def not_leading(self, server: str, leader: str, leader_epoch: int) -> None:
        """A server refuses, since it follows; told once for each leader that is named."""
        if (leader, leader_epoch) != self._leader:
            self._leader = leader, leader_epoch
            logger.info(
                "server follows server=%s client=%s leader=%s epoch=%d",
                *(server, self._client, leader or "unknown", leader_epoch),
            )

    def let_in(self, server: str, welcome: Welcome) -> None:
        """The server granted this start its epoch."""
        logger.info(
            "let in client=%s epoch=%d server=%s generation=%s",
            *(self._client, welcome.client_epoch, server, in_words(welcome.generation)),
        )

    def taken_over(self, directory: str, messages: int) -> None:
        """The outbox has puts of a process that ended."""
        logger.info(
            "outbox of an ended process taken over client=%s state=%s unsent=%d",
            *(self._client, directory, messages),
        )

    def refused(self, topic: str, refusal: OnceMQError, *, awaited: bool) -> None:
        """A put is not stored, and never will be; `awaited`: its caller is told."""
        if not awaited:
            level = logging.ERROR
        elif (topic, refusal.code) in self._refusals:
            level = logging.DEBUG
        else:
            level = logging.WARNING
            if len(self._refusals) >= TOLD_MAX:
                self._refusals.clear()
            self._refusals.add((topic, refusal.code))
        logger.log(level, "put refused topic=%s code=%s: %s", topic, refusal.code, refusal.detail)

    def full(self, detail: str, now: Micros) -> None:
        """Puts are not taken, or do not go on, for want of room; told once a minute."""
        if now - self._full_at >= MINUTE:
            self._full_at = now
            logger.warning("no room client=%s: %s", self._client, detail)

    def failed(self, error: OnceMQError) -> None:
        """This client is done for."""
        level = logging.WARNING if error.code == "fenced" else logging.ERROR
        logger.log(
            level, "client ended client=%s code=%s: %s", self._client, error.code, error.detail
        )
