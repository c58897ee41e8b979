"""The connections of a server to the others of its cluster: a DEALER to each one's ROUTER.

A leader sends on them and hears the answers; whoever follows keeps them open, so that it can lead
at once. What a server says comes in on its own ROUTER, with the clients' requests.

Laws: nothing here waits. A message that does not leave at once is owed, within the socket's limits;
what does not fit is not sent, and the rules send it again. Another server cannot end this one by
where it says that it is: who cannot be met is passed over. A connection that brings no answers is
made anew (`replication.awaited_answer`).
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Protocol

from oncemq.errors import ConfigError, TooManyFiles
from oncemq.protocol.names import Micros, ServerId
from oncemq.protocol.step import Body
from oncemq.replication.awaited_answer import Arrival, AwaitedAnswer
from oncemq.transport.dealer import DealerSocket
from oncemq.transport.wakeup import Bell

MESSAGES_A_LOOK = 256  # of one server, before the next one is heard
OWED_BYTES_MAX = 32 << 20  # over the window of the rules: what they let go leaves without a stop

logger = logging.getLogger("oncemq.server")


class Watches(Protocol):
    """The part of `Connections` that waits."""

    def watch_bell(self, bell: Bell) -> None: ...
    def forget_bell(self, bell: Bell) -> None: ...


class ServerLink:
    """The connection to one other server."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.socket = DealerSocket(OWED_BYTES_MAX)
        self.is_rung = False
        self.is_new = False  # connected since this was last asked
        self.is_taking = False  # it takes a large message in, as was seen since this was asked
        self._awaited, self._arrival = AwaitedAnswer(), Arrival()
        self.socket.connect(address)
        self.descriptor = self.socket.descriptors[0]

    def silence(self) -> None:
        """Something may be read, or a connection is made or lost."""
        self.is_rung = True

    def send(self, frames: Sequence[Body]) -> bool:
        """Send now, or not at all."""
        is_sent = self.socket.send(frames)
        if is_sent:
            self._awaited.sent()
            self._arrival.sent(sum(map(len, frames)), self.socket.unarrived)
        return is_sent

    def receive(self) -> Iterator[Sequence[Body]]:
        """What it said, and is not heard yet; some of it."""
        self.is_rung = False
        while (news := self.socket.news()) is not None:
            self.is_new = news
            self._awaited.is_gone()
            self._arrival.is_gone()
        for _ in range(MESSAGES_A_LOOK):
            if (message := self.socket.receive()) is None:
                return
            self._awaited.answered()
            yield message
        self.is_rung = True  # there may be more

    def look(self, passed: Micros) -> None:
        """Go on connecting where that is due, and begin anew where nothing is answered."""
        if self._arrival.goes_on(self.socket.unarrived):
            self.is_taking = True
            self._awaited.arrives()
        if self._awaited.is_in_vain(passed):
            self._arrival.is_gone()
            logger.info("server answers nothing, connected anew address=%s", self.address)
            with suppress(TooManyFiles):  # then at a later look
                self.socket.connect(self.address)
        if self.socket.next_deadline() is not None:
            self.is_rung = True


class ReplicaLinks:
    """All of one server. Used by the loop's thread."""

    def __init__(self, watches: Watches) -> None:
        self._watches = watches
        self._addresses: dict[ServerId, str] = {}  # of all others
        self._links: dict[ServerId, ServerLink] = {}
        self._misnamed: dict[ServerId, str] = {}  # addresses that are none, as was said
        self._looked_at = Micros(0)

    def meet(self, addresses: Mapping[ServerId, str]) -> None:
        """These are the other servers now, at these addresses."""
        self._addresses = dict(addresses)
        for server, link in list(self._links.items()):
            if addresses.get(server) != link.address:
                self._part(server)
        self._connect()

    def _connect(self) -> None:
        for server, address in self._addresses.items():
            if server in self._links or self._misnamed.get(server) == address:
                continue
            try:
                link = ServerLink(address)
            except (TooManyFiles, OSError):
                continue  # at a later look
            except ConfigError as error:
                self._misnamed[server] = address
                logger.warning("server cannot be met id=%s detail=%s", server, error)
                continue
            self._links[server] = link
            self._watches.watch_bell(link)

    def send(self, server: ServerId, frames: Sequence[Body]) -> bool:
        """Send now, or not at all."""
        link = self._links.get(server)
        return link is not None and link.send(frames)

    def receive(self) -> Iterator[tuple[ServerId, Sequence[Body]]]:
        """What the others said."""
        for server, link in list(self._links.items()):
            if link.is_rung:
                for frames in link.receive():
                    yield server, frames

    def connected(self) -> list[ServerId]:
        """Who is reached again since this was last asked: what was under way may be lost."""
        found = [server for server, link in self._links.items() if link.is_new]
        for server in found:
            self._links[server].is_new = False
        return found

    def taking(self) -> list[ServerId]:
        """Who could not answer since this was last asked: a large message is on its way to it."""
        found = [server for server, link in self._links.items() if link.is_taking]
        for server in found:
            self._links[server].is_taking = False
        return found

    def look(self, now: Micros) -> None:
        """Go on with who is not connected, or does not answer; now and then."""
        passed, self._looked_at = Micros(now - self._looked_at), now
        self._connect()
        for link in self._links.values():
            link.look(passed)

    def close(self) -> None:
        """Part from all."""
        self._addresses.clear()
        for server in list(self._links):
            self._part(server)

    def _part(self, server: ServerId) -> None:
        link = self._links.pop(server)
        self._watches.forget_bell(link)
        link.socket.close()
