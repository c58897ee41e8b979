"""A machine that is lost with all that was on it: a client's state, and the user's database.

Law: whatever took effect there is gone, so all of it is to come again, or a person is to be told.
"""

from typing import TYPE_CHECKING

from simulator.actors.memory_journal import SimulatedJournal
from simulator.world.actors import WorldStep
from simulator.world.clock import MILLISECOND, stream
from simulator.world.machine import Machine
from simulator.world.world import SimulatedClient

if TYPE_CHECKING:
    from simulator.world.simulation import Simulation


def lose_machine(simulation: "Simulation", step: WorldStep, client: SimulatedClient) -> None:
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
