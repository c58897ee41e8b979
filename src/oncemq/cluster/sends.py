"""What a leader needs of the connections to the other servers."""

from collections.abc import Sequence
from typing import Protocol

from oncemq.protocol.names import ServerId
from oncemq.protocol.step import Body


class Sends(Protocol):
    """The part of `ReplicaLinks` that sends."""

    def send(self, server: ServerId, frames: Sequence[Body]) -> bool: ...
