"""A simulated world run from its schedule: chaos, then healing, then everything must drain.

Law: one schedule gives one history, to the last bit (`WorldOutcome.trace`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from oncemq.audit.checker import check
from oncemq.audit.facts import Tainted
from simulator.actors.asking import ask_for_the_end
from simulator.actors.client import Process
from simulator.actors.forgery import forge_last
from simulator.actors.leasing import lease
from simulator.actors.listener import listen
from simulator.actors.member import delete, subscribe, unsubscribe
from simulator.actors.shared_world import World
from simulator.clock import MICROSECOND, MILLISECOND, Clock, stream
from simulator.cluster.cluster_servers import SERVERS, ClusterServers
from simulator.history.history import History
from simulator.history.stories import HandedOut
from simulator.machines.fake_database import FakeDatabase
from simulator.machines.machine import DiskFault, Trap, trap_of
from simulator.network.network import Network
from simulator.schedule.cast import Cast, WorldStep
from simulator.schedule.options import WorldOptions
from simulator.schedule.schedule import Schedule
from simulator.servers.alone_server import AloneServer
from simulator.servers.servers import Servers
from simulator.world.acceptance import Person
from simulator.world.lost_machine import lose_machine
from simulator.world.quiesce import Healing
from simulator.world.simulated_client import SimulatedClient
from simulator.world.small_sizes import small_sizes
from simulator.world.transaction_steps import DEALS, Deals


@dataclass(frozen=True, slots=True)
class WorldOutcome:
    """What became of a schedule."""

    findings: list[str]
    marks: dict[str, int]
    trace: str
    events: int
    simulated: int  # nanoseconds
    puts: int
    given: int


def run(schedule: Schedule) -> WorldOutcome:
    """Live through a schedule and judge it."""
    with small_sizes(schedule.options):
        simulation = Simulation(schedule)
        simulation.live()
    history = simulation.history
    given = sum(isinstance(seen, HandedOut) for seen in history.seen)
    clock = simulation.clock
    kept = [each for each in check(history.facts()).kept if not history.back.excuses(each)]
    findings = [*history.troubles, *history.in_two_lives(), *map(str, kept)]
    return WorldOutcome(
        findings, simulation.world.told, clock.trace, clock.events, clock.now,
        len(history.puts), given,
    )  # fmt: skip


class Simulation:
    """One world."""

    def __init__(self, schedule: Schedule) -> None:
        options = schedule.options
        seed = options.seed
        self.clock = Clock()
        self.history = History()
        self.schedule = schedule
        self.network = Network(
            self.clock,
            stream(seed, "net"),
            delay=options.delay_us * MICROSECOND,
            late=options.late_ms * MILLISECOND,
            air=stream(seed, "air"),
            places=SERVERS if options.cluster else (),
        )
        self.world = World(self.clock, self.network, self.history, stream(seed, "clients"))
        cast = Cast(options)
        self.clients = {
            name: SimulatedClient(
                name,
                lasting=name in cast.lasting,
                random=stream(seed, f"disk {name}"),
                topics=[*cast.topics, *cast.wild_topics, *cast.late_topics],
                database=FakeDatabase(self.history.trouble, self.history.back.is_hole)
                if name in cast.inboxes
                else None,
            )
            for name in (*cast.lasting, *cast.guests)
        }
        self._can_go_back(options)
        self.world.clients = list(self.clients)
        self.servers = self._make_servers(options)
        self.world.servers = self.servers.names
        self.world.is_steady = not cast.has("clock_jump")
        self.deals = Deals(self.clients, cast.topics, self.history)
        self.history.lives.mortal.update(cast.mortal_topics)
        self._deeds: dict[str, Callable[[WorldStep, SimulatedClient], None]] = {
            "put": self._put,
            "get": self._get,
            "listen": self._listen,
            "forge": self._forge,
            **dict.fromkeys(("subscribe", "unsubscribe", "delete", "lease"), self._member),
            "ask": self._ask,
            "kill": self._kill,
            "cut": self._cut,
            "trap": self._trap,
            "stop": self._stop,
            "twin": self._twin,
            "copy": self._copy,
            "restore": self._restore,
            "lose_machine": partial(lose_machine, self),
            "reset": self._reset,
            "silence": self._silence,
            "clog": self._clog,
            "double": self._double,
            "fail_client": self._fail_client,
            "fill_client": self._fill_client,
            **dict.fromkeys(DEALS, self._deal),
        }

    def _can_go_back(self, options: WorldOptions) -> None:
        self.person = Person(self.clock, self.clients, self.start, stream(options.seed, "person"))
        if options.back:
            self.history.back.clients += self.clients.values()
            self.clients[self.person.client.name] = self.person.client
            self.world.lost_history = self.person.told
        if options.back or any(step.do == "lose_machine" for step in self.schedule.steps):
            self.world.lost_row = self.person.told_of_row

    def _make_servers(self, options: WorldOptions) -> Servers:
        make = ClusterServers if options.cluster else AloneServer
        seed = options.seed
        return make(
            self.clock, self.network, self.history, options, self.world,
            chance=stream(seed, "server"), disk=stream(seed, "disk"),
        )  # fmt: skip

    def live(self) -> None:
        """From the first start to the last power cut."""
        self.servers.start()
        for client in self.clients.values():
            self.start(client)
        chaos_ms = self.schedule.options.chaos_ms
        for step in self.schedule.steps:
            if step.at_ms < chaos_ms:
                self.clock.at(step.at_ms * MILLISECOND, lambda step=step: self._do(step))
        self.clock.run(chaos_ms * MILLISECOND)
        Healing(self).heal()
        for client in self.clients.values():
            for process in client.live():
                process.count_marks()
        self.world.told["connections reset"] = self.network.resets
        self.world.told["refused by a follower"] = self.network.leadership.refusals
        self.deals.dealings.settle(self.servers.shard, self.history)

    # Steps

    def _do(self, step: WorldStep) -> None:
        self.clock.note(f"{step.do} {step.who}")
        if (deed := self._deeds.get(step.do)) is not None:
            deed(step, self.clients[step.who])
        else:
            self.servers.befall(step)

    def _later(self, delay_ms: int | str | bool, event: Callable[[], None]) -> None:
        self.clock.after(int(delay_ms) * MILLISECOND, event)

    def start(self, client: SimulatedClient, trap: Trap | None = None) -> None:
        if client.accepting:
            return  # the person starts it
        client.processes.append(
            Process(
                self.world,
                client,
                sprung=lambda trap: self._sprung(client, trap),
                trap=trap,
                abreast=client.has_newcomer(),
            )
        )
        self.clock.note(f"start {client.name}")

    def _process(self, step: WorldStep, client: SimulatedClient) -> Process | None:
        """Who does it: the newest process, or, if the step says so, one it does not know of."""
        live = client.live()
        if not live:
            return None
        return live[0] if step.args.get("older") else live[-1]

    def _put(self, step: WorldStep, client: SimulatedClient) -> None:
        process, args = self._process(step, client), step.args
        for place in range(int(args["again"]) if process else 0):
            assert process is not None
            process.put(
                int(args["number"]) * 10 + place,
                str(args["topic"]),
                count=int(args["count"]),
                size=int(args["size"]),
                durable=bool(args["durable"]) or place % 2 == 1,
                wait=bool(args["wait"]),
                required=bool(args.get("required", False)),
            )

    def _ask(self, step: WorldStep, client: SimulatedClient) -> None:
        process = self._process(step, client)
        if process is not None:
            ask_for_the_end(process, str(step.args["topic"]))

    def _get(self, step: WorldStep, client: SimulatedClient) -> None:
        process, args = self._process(step, client), step.args
        for _ in range(int(args.get("rounds", 1)) if process else 0):
            assert process is not None
            process.get(
                str(args["topic"]),
                int(args["limit"]),
                int(args["wait_ms"]),
                int(args.get("hold_ms", 0)),
                bool(args.get("fails", False)),
            )

    def _listen(self, step: WorldStep, client: SimulatedClient) -> None:
        process, args = self._process(step, client), step.args
        topics = tuple(str(args["topics"]).split())
        if client.database is not None:
            return  # its messages take effect through its inbox
        for _ in range(int(args["rounds"]) if process else 0):
            assert process is not None
            listen(
                process,
                topics,
                int(args["limit"]),
                int(args["wait_ms"]),
                int(args["hold_ms"]),
                fails=bool(args["fails"]),
                leaves=bool(args["leaves"]),
            )

    def _forge(self, step: WorldStep, client: SimulatedClient) -> None:
        process = self._process(step, client)
        if process is not None:
            forge_last(process, str(step.args["topic"]))

    def _deal(self, step: WorldStep, client: SimulatedClient) -> None:
        process = self._process(step, client)
        if process is not None:
            self.deals.begin(process, step)

    def _member(self, step: WorldStep, client: SimulatedClient) -> None:
        process, args = self._process(step, client), step.args
        if process is None:
            return
        match step.do:
            case "subscribe":
                subscribe(process, str(args["topic"]), str(args["where"]))
            case "unsubscribe":
                unsubscribe(process, str(args["topic"]))
            case "delete":
                delete(process, str(args["topic"]))
            case _:
                lease(process, int(args["lease_ms"]))

    # Mishaps of clients

    def _end(self, client: SimulatedClient, down_ms: int, trap: Trap | None = None) -> None:
        """Every process of a client ends; one comes back."""
        for process in client.live():
            process.die()
        self._later(down_ms, lambda: self._start_if_none(client, trap))

    def _start_if_none(self, client: SimulatedClient, trap: Trap | None = None) -> None:
        if not client.live():
            self.start(client, trap)

    def _kill(self, step: WorldStep, client: SimulatedClient) -> None:
        self._end(client, int(step.args["down_ms"]))

    def _cut(self, step: WorldStep, client: SimulatedClient) -> None:
        self._end(client, int(step.args["down_ms"]))
        client.machine.cut(str(step.args["mode"]))
        client.journal.cut()

    def _trap(self, step: WorldStep, client: SimulatedClient) -> None:
        if client.live():
            client.live()[-1].disk.trap = trap_of(step.args)

    def _sprung(self, client: SimulatedClient, trap: Trap) -> None:
        self.world.tell("client trapped")
        again = Trap((), 3, trap.cut, trap.down_ms) if trap.again else None
        self._end(client, trap.down_ms, again)
        if trap.cut:
            client.machine.cut(trap.cut)
            client.journal.cut()

    def _stop(self, step: WorldStep, client: SimulatedClient) -> None:
        for process in client.live():
            process.stop()
        self._later(int(step.args["down_ms"]) + 5_000, lambda: self._start_if_none(client))

    def _twin(self, step: WorldStep, client: SimulatedClient) -> None:
        if client.live():
            self.history.twins.add(client.name)
        self.start(client)

    def _copy(self, step: WorldStep, client: SimulatedClient) -> None:
        chance = stream(self.schedule.options.seed, f"copy {self.clock.now}")
        client.copy = (client.machine.copy(chance), client.journal.copy(), self.history.moment())

    def _restore(self, step: WorldStep, client: SimulatedClient) -> None:
        if client.copy is None:
            return
        (client.machine, client.journal, copied), client.copy = client.copy, None
        self.taint(client, copied)
        self._end(client, 1)

    def taint(self, client: SimulatedClient, copied: int = 0) -> None:
        self.history.seen.append(Tainted(client.name, self.history.moment(), copied))
        self.world.tell("state restored")
        client.tainted = True

    def _fail_client(self, step: WorldStep, client: SimulatedClient) -> None:
        args = step.args
        for process in client.live():
            calls = (str(args["calls"]),) if args["calls"] else ()
            left, times = int(args["left"]), int(args["times"])
            process.disk.fault = DiskFault(calls, left, int(args["error"]), times)
        self._later(args["for_ms"], lambda: self._mend_client(client))

    def _fill_client(self, step: WorldStep, client: SimulatedClient) -> None:
        client.machine.fill(int(step.args["spare"]))
        self._later(step.args["for_ms"], lambda: self._mend_client(client))

    def _mend_client(self, client: SimulatedClient) -> None:
        """Its disk works again; if the client gave up meanwhile, it is started again."""
        client.mend()
        if all(process.failure is not None for process in client.live()):
            self._end(client, 1)

    # The weather

    def _reset(self, step: WorldStep, client: SimulatedClient) -> None:
        self.network.reset_client(client.name)

    def _silence(self, step: WorldStep, client: SimulatedClient) -> None:
        args = step.args
        up, down = bool(args.get("up")), bool(args.get("down"))
        self.network.silence(client.name, up=up, down=down)

        def ends() -> None:
            if args["resets"]:
                self.network.reset_client(client.name)
            self.network.heal(client.name)

        self._later(args["for_ms"], ends)

    def _clog(self, step: WorldStep, client: SimulatedClient) -> None:
        until = self.clock.now + int(step.args["for_ms"]) * MILLISECOND
        self.network.weather_of(client.name).clogged_until = until

    def _double(self, step: WorldStep, client: SimulatedClient) -> None:
        delays = [int(step.args["delay_ms"]) * MILLISECOND] * int(step.args["count"])
        self.network.weather_of(client.name).doubles.extend(delays)
