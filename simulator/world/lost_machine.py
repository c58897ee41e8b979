"""A machine that is lost with all that was on it: a client's state, and the user's database.

Law: whatever took effect there is gone, so all of it is to come again, or a person is to be told.
"""

from typing import Protocol

from simulator.actors.shared_world import World
from simulator.clock import MILLISECOND, Clock, stream
from simulator.machines.machine import Machine
from simulator.machines.memory_journal import SimulatedJournal
from simulator.schedule.cast import WorldStep
from simulator.schedule.schedule import Schedule
from simulator.world.simulated_client import SimulatedClient


class LosesMachines(Protocol):
    """The simulation, as far as it must be known to lose a machine."""

    clock: Clock
    schedule: Schedule
    world: World

    def start(self, client: SimulatedClient) -> None: ...
    def taint(self, client: SimulatedClient) -> None: ...


def lose_machine(simulation: LosesMachines, step: WorldStep, client: SimulatedClient) -> None:
    """Every process of a client ends; one is started on a new machine, with an empty database."""
    for process in client.live():
        process.die()
    seed, clock = simulation.schedule.options.seed, simulation.clock
    client.machine = Machine(stream(seed, f"lost {step.who} {clock.now}"))
    client.journal, client.copy = SimulatedJournal(), None
    if client.database is not None:
        client.database.comes_back_empty()
    simulation.world.tell("machine lost")
    simulation.taint(client)

    def start() -> None:
        if not client.live():
            simulation.start(client)

    clock.after(MILLISECOND, start)
