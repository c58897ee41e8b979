"""What every process of a simulation shares."""

from random import Random

from oncemq.testing.clock import Clock
from oncemq.testing.history import History
from oncemq.testing.network import Network


class World:
    """What every process of a simulation shares."""

    def __init__(self, clock: Clock, network: Network, history: History, chance: Random) -> None:
        self.clock = clock
        self.network = network
        self.history = history
        self.chance = chance
        self.processes = 0
        self.told: dict[str, int] = {}  # what clients were told, counted

    def tell(self, what: str) -> None:
        """Count it, for the marks."""
        self.told[what] = self.told.get(what, 0) + 1
