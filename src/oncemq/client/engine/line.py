"""The ways to the server as the engine sees them: those of `transport`, or the simulator's."""

from collections.abc import Sequence
from typing import Protocol

from oncemq.protocol.step import Body


class ServerConnection(Protocol):
    """A connection to one server at a time, as `transport.dealer.DealerSocket` is."""

    descriptors: tuple[int, ...]

    def connect(self, address: str) -> None: ...
    def news(self) -> bool | None: ...
    def send(self, frames: Sequence[Body]) -> bool: ...
    def receive(self) -> list[bytes] | None: ...
    def close(self) -> None: ...


class FeedPort(Protocol):
    """A connection to the feed of one server at a time, as `FeedSubscriber` is."""

    descriptors: tuple[int, ...]

    def connect(self, address: str) -> None: ...
    def news(self) -> bool | None: ...
    def tune(self, subjects: set[bytes]) -> None: ...
    def receive(self) -> list[bytes] | None: ...
    def close(self) -> None: ...


def reachable(feed: str, server: str) -> str:
    """The feed's address for who reached the server at `server`: the same host, its own port."""
    scheme, _, place = feed.partition("://")
    if scheme != "tcp" or not server.startswith("tcp://"):
        return feed
    host = server.removeprefix("tcp://").rpartition(":")[0]
    return f"tcp://{host}:{place.rpartition(':')[2]}"
