"""A client of a simulated world over all its lives: its machine, and the processes on it."""

from random import Random

from simulator.actors.client import Process
from simulator.machines.client_machine import ClientMachine
from simulator.machines.fake_database import FakeDatabase


class SimulatedClient(ClientMachine):
    """A machine, and the processes that were started on it."""

    def __init__(
        self,
        name: str,
        *,
        lasting: bool,
        random: Random,
        topics: list[str],
        database: FakeDatabase | None = None,
    ) -> None:
        super().__init__(name, lasting=lasting, random=random, topics=topics, database=database)
        self.processes: list[Process] = []

    def has_newcomer(self) -> bool:
        """Whether one of its processes runs that the server has not let in yet."""
        return any(not process.dead and not process.is_let_in for process in self.processes)

    def mend(self) -> None:
        """Its disk works again."""
        self.machine.mend()
        for process in self.live():
            process.disk.fault = None

    def live(self) -> list[Process]:
        """The processes that run, oldest first."""
        self.processes = [process for process in self.processes if not process.dead]
        return self.processes
