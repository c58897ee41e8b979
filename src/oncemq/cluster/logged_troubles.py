"""What is wrong with the cluster, in the log: once each, and only what lasts."""

import logging
from collections.abc import Sequence

from oncemq.protocol.names import Micros, ServerId

TROUBLE_MICROS = Micros(1_000_000)  # what is wrong for less is on its way to be mended

logger = logging.getLogger("oncemq.server")


class LoggedTroubles:
    """Of one server. That etcd is away is logged where it is asked."""

    def __init__(self, me: ServerId) -> None:
        self._me = me
        self._since: dict[str, Micros] = {}
        self._logged: set[str] = set()

    def look(self, found: Sequence[str], now: Micros) -> None:
        """This is wrong now."""
        self._since = {each: self._since.get(each, now) for each in found}
        for each, since in self._since.items():
            if each not in self._logged and now - since >= TROUBLE_MICROS:
                logger.warning("not in order server=%s why=%s", self._me, each)
                self._logged.add(each)
        self._logged &= self._since.keys()
