"""The one server of a world without a cluster: it dies, goes back in time, answers elsewhere."""

from functools import partial
from random import Random

from oncemq.broker.state.shard import Shard
from simulator.actors.server import SimulatedServer
from simulator.actors.shared_world import World
from simulator.clock import MILLISECOND, Clock
from simulator.history.history import History
from simulator.machines.machine import Machine
from simulator.network.leadership import ADDRESSES
from simulator.network.network import Network
from simulator.schedule.cast import WorldStep
from simulator.schedule.options import WorldOptions
from simulator.servers.going_back import GoingBack
from simulator.servers.server_lifecycle import ServerLives
from simulator.servers.server_mishaps import befall


class AloneServer:
    """It, its machine, and the addresses at which it answers."""

    def __init__(
        self,
        clock: Clock,
        network: Network,
        history: History,
        options: WorldOptions,
        world: World,
        *,
        chance: Random,
        disk: Random,
    ) -> None:
        make = partial(SimulatedServer, clock, network, chance, options.log_options())
        self._lives: ServerLives[SimulatedServer] = ServerLives(
            clock, network, history, options, machine=Machine(disk), make=make, tell=world.tell
        )
        self._clock, self._network, self._options = clock, network, options
        self._going_back = GoingBack(self._lives, history, world, options.seed)

    @property
    def names(self) -> list[str]:
        return [*ADDRESSES] if self._options.leaders else ["simulated"]

    @property
    def beyond_help(self) -> bool:
        return self._lives.beyond_help

    @property
    def shard(self) -> Shard | None:
        return None if self._lives.server is None else self._lives.server.shard

    def start(self) -> None:
        self._lives.start()

    def befall(self, step: WorldStep) -> None:
        if befall(self._lives, step, self._clock, self._options.sync_us):
            return
        match step.do:
            case "back_up":
                self._going_back.back_up()
            case "go_back":
                self._going_back.restore(int(step.args["down_ms"]))
            case "damage":
                self._going_back.damage(int(step.args["down_ms"]))
            case "lead":
                self._lead(step)
            case _:
                raise AssertionError(f"nothing is known of {step.do}")

    def mend(self) -> None:
        self._lives.mend()

    def last_cut(self) -> None:
        self._lives.cut("NOTHING", 1)

    def _lead(self, step: WorldStep) -> None:
        """One steps down; after an election another one leads."""
        args, leadership = step.args, self._network.leadership
        before = leadership.leader
        hints = {address: str(args[address]) for address in ADDRESSES}
        leadership.step_down(hints, tells=bool(args["tells"]))
        if args["hangs_up"]:
            self._network.hang_up_at(before)
        epoch = leadership.epoch

        def elected() -> None:
            if leadership.epoch == epoch:
                leadership.leader = str(args["to"])

        self._clock.after(int(args["for_ms"]) * MILLISECOND, elected)
