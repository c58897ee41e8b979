"""A host's name on its way to addresses, in a thread of its own: a resolver may take its time."""

import threading

from oncemq.transport.connecting.addresses import Endpoint, look_up
from oncemq.transport.wakeup import Wakeup


class NameLookup:
    """One question to the resolver. Its descriptor is readable when there is an answer."""

    def __init__(self, host: str, port: int) -> None:
        self.endpoints: list[Endpoint] | None = None  # None: no answer yet; empty: there are none
        self.reason = ""  # why there are none
        self._host = host
        self._port = port
        self._bell = Wakeup()
        try:
            threading.Thread(target=self._ask, name="oncemq-lookup", daemon=True).start()
        except RuntimeError as error:  # no thread can be had
            self._answer([], str(error))

    def fileno(self) -> int:
        """What to wait on."""
        return self._bell.descriptor

    def close(self) -> None:
        """Nobody waits for the answer; the thread ends when it has one."""
        self._bell.close()

    def _ask(self) -> None:
        try:
            self._answer(look_up(self._host, self._port), "it has no address")
        except (OSError, UnicodeError) as error:  # the latter: no name at all
            self._answer([], getattr(error, "strerror", None) or str(error))

    def _answer(self, endpoints: list[Endpoint], reason: str) -> None:
        self.reason = f"the name {self._host!r} was not found: {reason}"
        self.endpoints = endpoints
        self._bell.ring()
