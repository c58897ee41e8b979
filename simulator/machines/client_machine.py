"""What outlives the processes of a simulated client: its disk, its journal, its database."""

from random import Random

from simulator.machines.fake_database import FakeDatabase
from simulator.machines.interests import Interests
from simulator.machines.machine import Machine
from simulator.machines.memory_journal import SimulatedJournal


class ClientMachine:
    """Where the processes of one client run, one after the other or beside each other."""

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
        self.copy: tuple[Machine, SimulatedJournal, int] | None = None  # and when it was made
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
