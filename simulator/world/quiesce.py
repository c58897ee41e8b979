"""The end of a simulated world: everything is mended, everyone comes back, nothing may be missing.

Law: after the healing no fault excuses anything. Where nobody gets on with starting, subscribing,
sending what is recorded or getting what is left for `PATIENCE`, someone is stuck; and a last power
cut must lose nothing.
"""

from collections.abc import Callable
from typing import Protocol

from oncemq.errors import StaleState
from simulator.actors.leasing import FOR_GOOD, lease
from simulator.actors.listener import listen_to_the_end
from simulator.actors.member import subscribe_in_the_end
from simulator.actors.sink import OWN, drive
from simulator.clock import SECOND, Clock, stream
from simulator.history.history import History
from simulator.machines.machine import Machine
from simulator.machines.memory_journal import SimulatedJournal
from simulator.network.network import Network
from simulator.schedule.options import LISTENING
from simulator.schedule.schedule import Schedule
from simulator.servers.servers import Servers
from simulator.world.acceptance import Person
from simulator.world.simulated_client import SimulatedClient
from simulator.world.transaction_steps import Deals

PATIENCE = 150 * SECOND  # longer than any retry waits
ROUNDS_MAX = 50  # of accepting: each client and each row needs one, or two


class Healed(Protocol):
    """The world, as far as it must be known to heal it."""

    clock: Clock
    history: History
    network: Network
    servers: Servers
    schedule: Schedule
    clients: dict[str, SimulatedClient]
    deals: Deals
    person: Person

    def start(self, client: SimulatedClient) -> None: ...
    def taint(self, client: SimulatedClient) -> None: ...


class Healing:
    """One world's last minutes."""

    def __init__(self, world: Healed) -> None:
        self._world = world
        self._clients = world.clients
        self._servers = world.servers

    def heal(self) -> None:
        for name in self._clients:
            self._world.network.weather_of(name).doubles.clear()
            self._world.network.heal(name)
        self._servers.mend()
        for client in self._clients.values():
            client.mend()
        for client in self._clients.values():
            self._one_process(client)
        for what, phase in (
            ("start", self._started),
            ("subscribe and send what is recorded", self._subscribed),
            ("publish what was planned", self._published),
            ("get what is left", self._drained),
        ):
            if not self._through(what, phase):
                return
        self._judge_sinks()
        self._last_cut()

    def _through(self, what: str, phase: Callable[[], Callable[[], bool]]) -> bool:
        """Once more for all, when somebody learned only then that history was lost."""
        for _ in range(ROUNDS_MAX):
            accepted = self._world.person.accepted
            if not self._wait(what, phase()):
                return False
            if accepted == self._world.person.accepted:
                return True
        self._world.history.trouble(f"stuck: nobody could {what}: what is accepted is lost again")
        return False

    def _one_process(self, client: SimulatedClient) -> None:
        """One process that is the newest, and holds every slot of the outbox."""
        live = client.live()
        if len(live) != 1 or live[0].failure is not None or not live[0].is_whole:
            for process in live:
                process.die()
            self._world.start(client)
        for process in client.live():
            process.disk.trap = None

    def _wait(self, what: str, done: Callable[[], bool]) -> bool:
        if self._servers.beyond_help:
            return False
        before, returned = -1, self._returned()
        while before != returned:  # calls that were begun in the chaos may take long together
            if self._world.clock.run(self._world.clock.now + PATIENCE, done=done):
                return True
            before, returned = returned, self._returned()
        slow = [client.name for client in self._clients.values() if not self._is_idle(client)]
        if not self._servers.beyond_help:
            self._world.history.trouble(f"stuck: nobody could {what} in time: {', '.join(slow)}")
        return False

    def _returned(self) -> int:
        """How many calls of applications have ended; it grows while anyone gets on."""
        live = [each for client in self._clients.values() for each in client.live()]
        return sum(process.calls.returned for process in live)

    def _is_idle(self, client: SimulatedClient) -> bool:
        """Whether nothing is under way for it, nor does a person work on its state."""
        if client.accepting:
            return False
        return all(process.idle and process.failure is None for process in client.live())

    def _all_idle(self) -> bool:
        idle = not self._world.person.rows and all(map(self._is_idle, self._clients.values()))
        return self._servers.beyond_help or idle

    def _started(self) -> Callable[[], bool]:
        def done() -> bool:
            waiting = [client for client in self._clients.values() if not self._is_started(client)]
            return self._servers.beyond_help or not waiting

        return done

    def _is_started(self, client: SimulatedClient) -> bool:
        live = client.live()
        if not live or live[-1].failure is not None:
            self._start_again(client)
            return False
        return live[-1].engine.client_epoch is not None

    def _start_again(self, client: SimulatedClient) -> None:
        """It was refused: an old copy of the state must be, an honest client must not."""
        failure = client.processes[-1].failure if client.processes else None
        if isinstance(failure, StaleState):
            if not client.tainted:
                self._world.history.trouble(f"stale: honest client {client.name} was refused")
            seed = self._world.schedule.options.seed
            client.machine = Machine(stream(seed, f"new {client.name}"))
            client.journal = SimulatedJournal()
            self._world.taint(client)
        self._one_process(client)

    def _subscribed(self) -> Callable[[], bool]:
        for client in self._clients.values():
            if client.leased_until:
                lease(client.live()[-1], FOR_GOOD)
            for asked in client.interests.all:
                subscribe_in_the_end(client.live()[-1], asked)
        return self._all_idle

    def _published(self) -> Callable[[], bool]:
        """The drivers of sinks come back: the batch that was cut short, and the one after it."""
        process = next(iter(self._clients.values())).live()[-1]
        for sink in self._world.deals.sinks:
            for _ in range(2 if sink.own.plans else 0):
                work = drive(
                    process, sink, [process], which=OWN, rows=1, tasks=1, speculates=False, ends=""
                )
                process.begin("drive", work)
        return self._all_idle

    def _judge_sinks(self) -> None:
        for sink in self._world.deals.sinks:
            if sink.own.done < len(sink.own.plans):
                self._world.history.trouble(f"stuck: {sink.name} did not publish its last batch")

    def _drained(self) -> Callable[[], bool]:
        listening = LISTENING in self._world.schedule.options.faults
        for client in self._clients.values():
            process = client.live()[-1]
            wanted = client.interests.all
            if listening and wanted and client.database is None:
                listen_to_the_end(process, tuple(wanted))
                continue
            for asked in wanted:
                process.drain(asked)
        return self._all_idle

    def _last_cut(self) -> None:
        """Everything that was ever said must outlive one more power cut."""
        shard = self._servers.shard
        if shard is None:
            return
        before = {topic.name: topic.visible for topic in shard.topics.values()}
        self._servers.last_cut()
        self._wait("start after the last power cut", lambda: self._servers.shard is not None)
        shard = self._servers.shard
        if shard is None:
            return
        after = {topic.name: topic.end for topic in shard.topics.values()}
        for topic, end in before.items():
            if after.get(topic, 0) < end:
                lost = f"{topic}@{after.get(topic, 0)} to {end - 1}"
                self._world.history.trouble(f"lost: {lost}, by the last power cut")
