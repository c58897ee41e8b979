"""What outlives the processes of a simulation: what they all share, and each client's machine."""

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from simulator.actors.fake_database import FakeDatabase
from simulator.actors.interests import Interests
from simulator.actors.memory_journal import SimulatedJournal
from simulator.network.network import Network
from simulator.world.clock import Clock
from simulator.world.history import History
from simulator.world.machine import Machine

if TYPE_CHECKING:
    from simulator.actors.client import Process


class World:
    """What every process of a simulation shares."""

    def __init__(self, clock: Clock, network: Network, history: History, chance: Random) -> None:
        self.clock = clock
        self.network = network
        self.history = history
        self.chance = chance
        self.processes = 0
        self.clients: list[str] = []
        self.is_steady = True  # the server's clock is never set
        self.told: dict[str, int] = {}  # what clients were told, counted
        self.lost_history: Callable[[Process], None] = lambda process: None  # who sees to it
        self.lost_row: Callable[[FakeDatabase, str], None] = lambda database, told: None  # likewise

    def tell(self, what: str) -> None:
        """Count it, for the marks."""
        self.told[what] = self.told.get(what, 0) + 1


class SimulatedClient:
    """One client over all its lives."""

    def __init__(
        self,
        name: str,
        *,
        lasting: bool,
        random: Random,
        topics: list[str],
        database: FakeDatabase | None = None,
    ) -> None:
        self.name = name
        self.lasting = lasting
        self.machine = Machine(random)
        self.journal = SimulatedJournal()
        self.database = database  # where messages take effect, for those with an inbox
        self.processes: list[Process] = []
        self.copy: tuple[Machine, SimulatedJournal] | None = None
        self.interests = Interests(topics)
        self.tainted = False  # its state was replaced
        self.newest = 0  # the process that was started last
        self.leased_until = 0  # its subscriptions hold for sure; 0: they are not leased
        self.accepting = False  # a person works on its state: nothing is started

    @property
    def marks(self) -> list[str]:
        """What the disk shows of the outbox."""
        disk = self.machine.disk
        slots = disk.names("/outbox") if "outbox" in disk.names("/") else []
        editions = [name for slot in slots for name in disk.names(f"/outbox/{slot}")]
        rewritten = any(name.isdigit() and int(name) > 1 for name in editions)
        shown = {"slots shared": len(slots) > 1, "outbox rewritten": rewritten}
        return [mark for mark, so in shown.items() if so]

    def mend(self) -> None:
        """Its disk works again."""
        self.machine.mend()
        for process in self.live():
            process.disk.fault = None

    def live(self) -> "list[Process]":
        """The processes that run, oldest first."""
        self.processes = [process for process in self.processes if not process.dead]
        return self.processes
