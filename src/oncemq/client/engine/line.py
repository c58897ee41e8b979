"""The ways to the server as the engine sees them: those of `transport`, or the simulator's.

Neither has a thread: what is to be done on a connection is done when it is asked for something. So
it is asked when one of its `descriptors` is readable, and at `next_deadline` by the engine's clock.
"""

from collections.abc import Sequence
from typing import Protocol

from oncemq.protocol.names import Micros
from oncemq.protocol.step import Body


class ServerConnection(Protocol):
    """A connection to one server at a time, as `transport.dealer.DealerSocket` is.

    `is_in_vain`: since `connect` all that can be tried was tried, and failed.
    """

    descriptors: tuple[int, ...]

    @property
    def is_in_vain(self) -> bool: ...

    def connect(self, address: str) -> None: ...
    def news(self) -> bool | None: ...
    def send(self, frames: Sequence[Body]) -> bool: ...
    def receive(self) -> Sequence[Body] | None: ...
    def next_deadline(self) -> Micros | None: ...
    def close(self) -> None: ...


class FeedPort(Protocol):
    """A connection to the feed of one server at a time, as `FeedSubscriber` is."""

    descriptors: tuple[int, ...]

    def connect(self, address: str) -> None: ...
    def news(self) -> bool | None: ...
    def tune(self, subjects: set[bytes]) -> None: ...
    def receive(self) -> Sequence[Body] | None: ...
    def next_deadline(self) -> Micros | None: ...
    def close(self) -> None: ...


def reachable(feed: str, server: str) -> str:
    """The feed's address for who reached the server at `server`: the same host, its own port."""
    scheme, _, place = feed.partition("://")
    if scheme != "tcp" or not server.startswith("tcp://"):
        return feed
    host = server.removeprefix("tcp://").rpartition(":")[0]
    return f"tcp://{host}:{place.rpartition(':')[2]}"
