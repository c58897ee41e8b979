"""From a server's address to sockets that connect: its endpoints in turn, round after round.

Laws: nothing here blocks; a name is looked up by a thread, anew in each round, one at a time for
each name. Between two rounds there is a wait (`waits`). That no descriptor can be had is raised,
and is for the next round a failure like another.
"""

import errno
import random
import socket
from collections import deque

from oncemq.transport.connecting.addresses import Endpoint, ServerAddress
from oncemq.transport.connecting.name_lookup import NameLookup
from oncemq.transport.connecting.waits import ReconnectWaits
from oncemq.transport.connecting.watched_sockets import READ, WatchedSockets
from oncemq.transport.tcp_options import set_tcp_options


class Dialing:
    """The attempts of one client's end."""

    def __init__(self, watched: WatchedSockets) -> None:
        self.waits = ReconnectWaits(random.random)
        self.due: int | None = None  # microseconds; when the next round begins, while one waits
        self.reason = ""  # why the last attempt came to nothing
        self.is_in_vain = False  # a round came to nothing, since this address is dialed
        self._watched = watched
        self._address: ServerAddress | None = None
        self._endpoints: deque[Endpoint] = deque()  # to be tried in this round
        self._lookup: NameLookup | None = None
        self._left: dict[str, NameLookup] = {}  # under way when their addresses were left

    def begin(self, address: ServerAddress) -> None:
        """Dial this one from now on: at once."""
        self.leave()
        self._address = address
        self.waits.after_use()
        self.is_in_vain = False
        self.due = 0

    def leave(self) -> None:
        """Dial nobody."""
        if self._lookup is not None and self._address is not None:
            self._watched.forget(self._lookup)
            self._left[self._address.text] = self._lookup
        self._address = self._lookup = self.due = None
        self._endpoints.clear()

    def next_socket(self, now: int) -> socket.socket | None:
        """A socket that is connecting, where the time for one has come."""
        if self._lookup is not None and self._lookup.endpoints is not None:
            self._take_answer(self._lookup, now)
        if self.due is None or self.due > now:
            return None
        self.due = None
        if not self._endpoints:
            self._begin_round()
        while self._endpoints:
            endpoint = self._endpoints.popleft()
            try:
                return connecting(endpoint)
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE):
                    raise
                self.reason = error.strerror or str(error)
        if self._lookup is None:
            self.failed(now)
        return None

    def failed(self, now: int) -> None:
        """A socket came to nothing: the next address, or after the last of them the next round."""
        self.is_in_vain = self.is_in_vain or not self._endpoints
        self.due = now if self._endpoints else now + self.waits.after_failure()

    def broke(self, now: int) -> None:
        """What was connected is no longer: a new round begins, as none has failed yet."""
        self.is_in_vain = False
        self.due = now + self.waits.after_failure()

    def succeeded(self) -> None:
        """One is connected: when it breaks, a new round begins."""
        self._endpoints.clear()

    def _begin_round(self) -> None:
        address = self._address
        assert address is not None
        self._endpoints.extend(address.endpoints)
        if not address.endpoints:
            lookup = self._left.pop(address.text, None) or NameLookup(address.host, address.port)
            self._watched.watch(lookup, READ)
            self._lookup = lookup

    def _take_answer(self, lookup: NameLookup, now: int) -> None:
        self._watched.drop(lookup)
        self._lookup = None
        self.reason = lookup.reason
        self._endpoints.extend(lookup.endpoints or ())
        self.failed(now)  # the next address at once, where there is one


def connecting(endpoint: Endpoint) -> socket.socket:
    """A socket that connects to it, or has; an `OSError` when that is refused at once."""
    opened = socket.socket(endpoint.family, socket.SOCK_STREAM)
    try:
        opened.setblocking(False)
        if endpoint.family != socket.AF_UNIX:
            set_tcp_options(opened)
        try:
            opened.connect(endpoint.address)
        except BlockingIOError as error:
            if error.errno != errno.EINPROGRESS:  # a Unix socket's queue is full
                raise
    except BaseException:
        opened.close()
        raise
    return opened
