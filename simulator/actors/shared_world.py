"""What every process of a simulation shares: the clock, the network, the history, the marks."""

from collections.abc import Callable
from random import Random

from simulator.clock import Clock
from simulator.history.history import History
from simulator.machines.fake_database import FakeDatabase
from simulator.network.network import Network


class World:
    """What every process of a simulation shares."""

    def __init__(self, clock: Clock, network: Network, history: History, chance: Random) -> None:
        self.clock = clock
        self.network = network
        self.history = history
        self.chance = chance
        self.processes = 0
        self.clients: list[str] = []
        self.servers = ["simulated"]  # as clients are given them
        self.is_steady = True  # the server's clock is never set
        self.told: dict[str, int] = {}  # what clients were told, counted
        self.lost_history: Callable[[str], None] = lambda client: None  # who sees to it
        self.lost_row: Callable[[FakeDatabase, str], None] = lambda database, told: None  # likewise

    def servers_of(self, client: str) -> list[str]:
        """As this client is given them: not each begins with the same one."""
        first = sum(client.encode()) % len(self.servers)
        return self.servers[first:] + self.servers[:first]

    def tell(self, what: str) -> None:
        """Count it, for the marks."""
        self.told[what] = self.told.get(what, 0) + 1
