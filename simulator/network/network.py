"""A simulated network: connections that delay, fall silent, break, and deliver some of it anyway.

Laws: a connection keeps its order, as TCP does. Messages are lost only together with their
connection, and when that breaks, nobody knows how much of what was under way still arrives, or
when: it may be after what the next connection carries. A silent direction delivers when it heals,
and takes no more than ZeroMQ would keep for it. Where a way between hosts was cut, what a
connection had under way there is sent again after pauses that double, as by TCP: until as long
again as the way was cut, it carries nothing, and a new connection does.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from oncemq.protocol.names import Micros
from oncemq.protocol.step import Body
from oncemq.transport.connecting.owed_bytes import OWED_MESSAGES_MAX
from simulator.clock import MICROSECOND, MILLISECOND, SECOND, Clock
from simulator.network.feed import Airwaves, feed_at
from simulator.network.leadership import ADDRESSES, Leadership

RECONNECT = 50 * MILLISECOND
SENDS_AGAIN = 15 * SECOND  # at the latest, or the connection is given up

ALONE = ""  # where the one server is that answers at every address

Frames = list[bytes]
Way = tuple[str, str]  # from whom to whom: the names of clients, and the places of servers


class Host(Protocol):
    """The server's end."""

    def arrived(self, route: bytes, frames: Frames) -> None: ...
    def heard(self, *, joined: bool, subject: bytes) -> None: ...


@dataclass(slots=True)
class Weather:
    """What the network does to one client; changed by faults, cleared when they heal."""

    silent_up: bool = False
    silent_down: bool = False
    clogged_until: int = 0
    doubles: deque[int] = field(default_factory=deque[int])  # delays of second copies to come


@dataclass(slots=True, eq=False)
class Direction:
    """One half of a connection: what is under way in it, in order."""

    deliver: Callable[[Frames], None]
    waiting: deque[Frames] = field(default_factory=deque[Frames])
    due: int = 0  # the last message under way arrives then, none sent later arrives before
    broken: bool = False


class SimulatedConnection:
    """One connection between a line and the server, from handshake to reset."""

    def __init__(self, network: "Network", line: "SimulatedDealer", number: int) -> None:
        self.route = b"route-%d" % number
        self.line = line
        self.address = line.address
        self.place = network.place_of(line.address)
        self.open = True
        self.silent_until = 0  # it waits to send again what a way that was cut did not carry
        self.up = Direction(lambda frames: network.host_takes(self, frames))
        self.down = Direction(line.takes)


class Network:
    """Every connection to the one server there is, or to those at their `places`."""

    def __init__(
        self,
        clock: Clock,
        chance: Random,
        *,
        delay: int,
        late: int,
        air: Random | None = None,
        places: Sequence[str] = (),
    ) -> None:
        self.air = Airwaves(clock, air or Random(0), delay=delay, late=late)
        self.clock = clock
        self._chance = chance
        self._delay = delay  # the usual most a message takes
        self._late = late  # how much later leftovers of a broken connection may arrive
        self._places = frozenset(places)
        self._hosts: dict[str, Host] = {}  # those that are up
        self._lives: dict[str, int] = {}  # of hosts: nothing sent to one life reaches another
        self._era = 0  # grows when the server goes back in time, which takes longer than any delay
        self._connections: dict[bytes, SimulatedConnection] = {}
        self._made = 0
        self.leadership = Leadership()
        self.weather: dict[str, Weather] = {}
        self._blocked: dict[Way, int] = {}  # where nothing gets through, and since when
        self.frozen: set[str] = set()  # servers whose processes stand still
        self.resets = 0  # of connections with something under way

    def weather_of(self, client: str) -> Weather:
        """What the network is like for this client."""
        return self.weather.setdefault(client, Weather())

    def place_of(self, address: str) -> str:
        """Which server answers there."""
        return address if address in self._places else ALONE

    # The server's side

    def listen(self, host: Host, place: str = ALONE) -> None:
        """A server is up."""
        self._hosts[place] = host
        self._lives[place] = self._life_of(place) + 1
        self.air.opens(host, feed_at(place))

    def hang_up(self, place: str = ALONE) -> None:
        """The server is gone, and what it had not read with it."""
        self._hosts.pop(place, None)
        self._lives[place] = self._life_of(place) + 1
        self.air.closes(feed_at(place))
        for connection in list(self._connections.values()):
            if connection.place == place:
                connection.up.waiting.clear()
                self.reset(connection)

    def _life_of(self, place: str) -> int:
        return self._lives.get(place, 0)

    def begin_era(self) -> None:
        """The server is gone for so long that nothing of it is under way any more."""
        self.hang_up()
        self._era += 1
        self.air.begin_era()

    def reply(self, route: bytes, frames: Sequence[Body]) -> None:
        """The server answers; into the void, if that connection is gone or does not keep up."""
        connection = self._connections.get(route)
        if connection is None:
            return
        if self._leads(connection.address):
            self._send(connection, connection.down, [bytes(frame) for frame in frames])
        elif self.leadership.tells:
            self._refuse(connection, frames)

    def reaches(self, route: bytes, frames: Sequence[Body]) -> bool:
        """Whether there is such a connection: a word is sent along it."""
        self.reply(route, frames)
        return route in self._connections

    def host_takes(self, connection: SimulatedConnection, frames: Frames) -> None:
        """A request arrives."""
        host = self._hosts.get(connection.place)
        if host is None:
            return
        self.clock.note(f"up {connection.route.decode()} {frames[0].hex()}")
        if self._leads(connection.address):
            host.arrived(connection.route, frames)
        else:
            self._refuse(connection, frames)

    # Who leads

    def hang_up_at(self, address: str) -> None:
        """Every connection to one address breaks."""
        for connection in list(self._connections.values()):
            if connection.address == address:
                self.reset(connection)

    def _leads(self, address: str) -> bool:
        return address not in ADDRESSES or address == self.leadership.leader

    def _refuse(self, connection: SimulatedConnection, frames: Sequence[Body]) -> None:
        if connection.open:
            said = self.leadership.refusal(connection.address, frames)
            self._send(connection, connection.down, [bytes(frame) for frame in said])

    # The client's side

    def dial(self, line: "SimulatedDealer") -> None:
        """Try to connect, again and again until it works or the line is closed."""
        delay = self._chance.randrange(100 * MICROSECOND, RECONNECT)
        self.clock.after(delay, lambda: self._handshake(line))

    def _handshake(self, line: "SimulatedDealer") -> None:
        if line.closed or line.connection is not None:
            return
        place = self.place_of(line.address)
        is_silent = any(self._is_silent(line.client, place, is_up=up) for up in (True, False))
        if place not in self._hosts or is_silent or place in self.frozen:
            line.is_in_vain = place not in self._hosts
            self.dial(line)
            return
        self._made += 1
        connection = SimulatedConnection(self, line, self._made)
        self._connections[connection.route] = connection
        line.connected(connection)

    def send(self, connection: SimulatedConnection, frames: Sequence[Body]) -> bool:
        """A request leaves, unless too much is under way; maybe a second copy of it, later."""
        copy = [bytes(frame) for frame in frames]
        if not self._send(connection, connection.up, copy):
            return False
        doubles = self.weather_of(connection.line.client).doubles
        if doubles:
            life = self._life_of(connection.place)
            self.clock.after(doubles.popleft(), lambda: self._double(connection, copy, life))
        return True

    def _double(self, connection: SimulatedConnection, frames: Frames, life: int) -> None:
        if life == self._life_of(connection.place):
            self.host_takes(connection, frames)

    # On the way

    def _send(self, connection: SimulatedConnection, direction: Direction, frames: Frames) -> bool:
        if len(direction.waiting) >= OWED_MESSAGES_MAX:
            return False
        weather = self.weather_of(connection.line.client)
        delay = self._chance.randrange(self._delay // 20, self._delay)
        moment = max(self.clock.now + delay, direction.due, weather.clogged_until)
        direction.due = moment
        direction.waiting.append(frames)
        self.clock.at(moment, lambda: self._arrive(connection, direction))
        return True

    def _arrive(self, connection: SimulatedConnection, direction: Direction) -> None:
        """What is next in this direction arrives, unless it is silent or broken."""
        if direction.broken or not direction.waiting:
            return
        is_up = direction is connection.up
        if self._is_silent(connection.line.client, connection.place, is_up=is_up):
            return  # `heal` delivers it
        if self.clock.now < connection.silent_until:
            return  # it is sent again then
        direction.deliver(direction.waiting.popleft())

    def _is_silent(self, client: str, place: str, *, is_up: bool) -> bool:
        weather = self.weather_of(client)
        if weather.silent_up if is_up else weather.silent_down:
            return True
        return ((client, place) if is_up else (place, client)) in self._blocked

    def block(self, ways: Iterable[Way]) -> None:
        """Nothing gets through on these ways, and on no other."""
        now, before = self.clock.now, self._blocked
        self._blocked = {way: before.get(way, now) for way in ways}
        mended = {way: now - since for way, since in before.items() if way not in self._blocked}
        for connection in list(self._connections.values()):
            client, place = connection.line.client, connection.place
            halves = (((client, place), connection.up), ((place, client), connection.down))
            for way, direction in halves:
                if direction.waiting and way in mended:
                    silent = min(mended[way], SENDS_AGAIN)
                    connection.silent_until = max(connection.silent_until, now + silent)
            self.clock.at(max(now, connection.silent_until), self._resumption(connection))

    def _resumption(self, connection: SimulatedConnection) -> Callable[[], None]:
        return lambda: self._resume(connection)

    def silence(self, client: str, *, up: bool, down: bool) -> None:
        """Nothing gets through in these directions until `heal`."""
        weather = self.weather_of(client)
        weather.silent_up |= up
        weather.silent_down |= down

    def heal(self, client: str) -> None:
        """Silence ends: what was held back arrives, in order."""
        weather = self.weather_of(client)
        weather.silent_up = weather.silent_down = False
        for connection in list(self._connections.values()):
            if connection.line.client == client:
                self._resume(connection)

    def _resume(self, connection: SimulatedConnection) -> None:
        for direction in (connection.up, connection.down):
            for _ in range(len(direction.waiting)):
                self.clock.after(MILLISECOND, self._arrival(connection, direction))

    def _arrival(self, connection: SimulatedConnection, direction: Direction) -> Callable[[], None]:
        return lambda: self._arrive(connection, direction)

    # Breaking

    def reset_client(self, client: str) -> None:
        """Break every connection of a client."""
        self.air.reset_client(client)
        for connection in list(self._connections.values()):
            if connection.line.client == client:
                self.reset(connection)

    def reset(self, connection: SimulatedConnection) -> None:
        """Break a connection: some of what is under way still arrives, the rest never does."""
        if not connection.open:
            return
        self.resets += bool(connection.up.waiting or connection.down.waiting)
        connection.open = False
        del self._connections[connection.route]
        for direction in (connection.up, connection.down):
            direction.broken = True
            kept = self._chance.randint(0, len(direction.waiting))
            moment = self.clock.now
            for frames in list(direction.waiting)[:kept]:
                moment += self._chance.randrange(1, self._late)
                self.clock.at(moment, self._leftover(connection, direction, frames))
            direction.waiting.clear()
        connection.line.disconnected(connection)

    def _leftover(
        self, connection: SimulatedConnection, direction: Direction, frames: Frames
    ) -> Callable[[], None]:
        place, era = connection.place, self._era
        life = self._life_of(place)

        def arrive() -> None:
            is_same_life = life == self._life_of(place)
            if era == self._era and (direction is connection.down or is_same_life):
                direction.deliver(frames)

        return arrive


class SimulatedDealer:
    """A client's end, as `transport.link.Link` is."""

    def __init__(self, network: Network, client: str, wake: Callable[[], None]) -> None:
        self.descriptors: tuple[int, ...] = ()
        self.is_in_vain = False
        self.client = client
        self.address = ""
        self.closed = False
        self.connection: SimulatedConnection | None = None
        self._network = network
        self._wake = wake
        self._news: deque[bool] = deque()
        self._inbox: deque[Frames] = deque()

    def connect(self, address: str) -> None:
        """Talk to the server from now on."""
        self._leave()
        self.address, self.is_in_vain = address, False
        self._network.dial(self)

    def news(self) -> bool | None:
        """True: connected. False: disconnected. None: nothing happened."""
        return self._news.popleft() if self._news else None

    def send(self, frames: Sequence[Body]) -> bool:
        """Send now, or not at all."""
        return self.connection is not None and self._network.send(self.connection, frames)

    def receive(self) -> Frames | None:
        """The next reply's frames, or None."""
        return self._inbox.popleft() if self._inbox else None

    def next_deadline(self) -> Micros | None:
        """At once, where not all was taken; for what comes it is woken."""
        return Micros(0) if self._news or self._inbox else None

    def close(self) -> None:
        """Let go of the connection."""
        self.closed = True
        self._leave()

    # What the network does

    def connected(self, connection: SimulatedConnection) -> None:
        """The handshake succeeded."""
        self.connection = connection
        self._news.append(True)
        self._wake()

    def disconnected(self, connection: SimulatedConnection) -> None:
        """The connection broke; another is tried."""
        if self.connection is not connection:
            return
        self.connection = None
        if not self.closed:
            self._news.append(False)
            self._network.dial(self)
            self._wake()

    def takes(self, frames: Frames) -> None:
        """A reply arrives."""
        if not self.closed:
            self._network.clock.note(f"down {self.client} {len(frames)} {frames[0][:12].hex()}")
            self._inbox.append(frames)
            self._wake()

    def _leave(self) -> None:
        """The connection is of no interest any more, and what it brought is not either."""
        connection, self.connection = self.connection, None
        if connection is not None:
            self._network.reset(connection)
        self._news.clear()
        self._inbox.clear()
