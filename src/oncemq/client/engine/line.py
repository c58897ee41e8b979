"""The way to the server as the engine sees it: `transport.link`, or the simulator's."""

from collections.abc import Sequence
from typing import Protocol

from oncemq.protocol.step import Body


class ServerConnection(Protocol):
    """A connection to one server at a time, as `transport.link.Link` is."""

    descriptors: tuple[int, ...]

    def connect(self, address: str) -> None: ...
    def news(self) -> bool | None: ...
    def send(self, frames: Sequence[Body]) -> bool: ...
    def receive(self) -> list[bytes] | None: ...
    def close(self) -> None: ...
