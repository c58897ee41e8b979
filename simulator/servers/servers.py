"""What a world knows of its servers: one that is alone, or those of a cluster."""

from typing import Protocol

from oncemq.broker.state.shard import Shard
from simulator.schedule.cast import WorldStep


class Servers(Protocol):
    """All servers of one world, over all their lives."""

    @property
    def names(self) -> list[str]:
        """The addresses that clients are given."""
        ...

    @property
    def beyond_help(self) -> bool:
        """Whether one cannot come back."""
        ...

    @property
    def shard(self) -> Shard | None:
        """The state that clients are answered from; None: nobody is answered."""
        ...

    def start(self) -> None: ...
    def befall(self, step: WorldStep) -> None:
        """What a step does to a server, or to the ways between them."""
        ...

    def mend(self) -> None:
        """Everything works again, and all are started that were down."""
        ...

    def last_cut(self) -> None:
        """Every machine loses power once more, and all that was not synced."""
        ...
