"""The person who is told that history was lost, and accepts it, as `once client accept` does.

Laws: it takes a while; nothing of the client runs meanwhile; what is shown and moved is what the
shipped code says. Who has no state is started again.
"""

from collections.abc import Callable, Mapping
from random import Random

from oncemq.client.admin.accepting import loss_of, move, questions
from oncemq.client.state.outbox import Slot
from oncemq.client.verbs import messages
from oncemq.protocol.names import ClientId
from oncemq.protocol.replies import Compared
from simulator.actors.calls import Work, carry_out
from simulator.actors.client import Process
from simulator.clock import MILLISECOND, Clock
from simulator.machines.fake_database import FakeDatabase
from simulator.machines.machine import ProcessDisk
from simulator.world.simulated_client import SimulatedClient

NAME = "person"  # a client without state, which only asks


class Person:
    """One for all clients."""

    def __init__(
        self,
        clock: Clock,
        clients: Mapping[str, SimulatedClient],
        start: Callable[[SimulatedClient], None],
        chance: Random,
    ) -> None:
        self.client = SimulatedClient(NAME, lasting=False, random=Random(0), topics=[])
        self.accepted = 0  # of all clients
        self.rows = 0  # of databases that it is about to move
        self._clock = clock
        self._clients = clients
        self._start = start
        self._chance = chance

    def told(self, name: str) -> None:
        """A process of this client ended with HistoryLost."""
        client = self._clients[name]
        if not client.accepting:
            client.accepting = True
            delay = self._chance.choice((5, 200, 2_000)) * MILLISECOND
            self._clock.after(delay, lambda: self._see_to(client))

    def told_of_row(self, database: FakeDatabase, told: str) -> None:
        """A database stands beyond what the server has: the command that is shown moves it."""
        self.rows += 1
        delay = self._chance.choice((5, 200, 2_000)) * MILLISECOND
        self._clock.after(delay, lambda: self._move_row(database, told))

    def _move_row(self, database: FakeDatabase, told: str) -> None:
        if not database.by_hand(told):
            self._clock.after(MILLISECOND, lambda: self._move_row(database, told))
            return
        self.rows -= 1
        self.accepted += 1

    def _see_to(self, client: SimulatedClient) -> None:
        for process in client.live():
            process.die()
        if not client.lasting:
            self._over(client)
            return
        own = self.client.live()[-1]
        work = self._accept(own, client)
        own.calls.begin("accept", work, then=lambda: self._over(client))
        own.wake()

    def _over(self, client: SimulatedClient) -> None:
        client.accepting = False
        self._start(client)

    def _accept(self, own: Process, client: SimulatedClient) -> Work[None]:
        disk = ProcessDisk(client.machine, sprung=lambda trap: None)
        names = disk.names("/outbox") if "outbox" in disk.names("/") else []
        try:
            randbytes = self._chance.randbytes
            slots = [Slot(disk, f"/outbox/{name}", randbytes) for name in names if name.isdigit()]
            answers: list[Compared] = []
            for question in questions(ClientId(client.name), client.journal, slots):
                verb = messages.ask(own.engine, lambda _, question=question: question)
                answers.append((yield from carry_out(verb)))
            loss = loss_of(client.journal, answers)
            move(client.journal, slots, loss)
        finally:
            disk.die()
        own.history.back.accept(client.name, parted=loss.parted)
        for again in loss.again:  # what it had left may hold its topics again
            client.interests.begin(again.topic)
        self.accepted += 1
        own.world.tell("loss accepted")
