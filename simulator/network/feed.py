"""A simulated live feed: one that promises nothing.

Laws: what is published reaches those who listen to its subject late, or not at all; in order on one
connection, and left over from a broken one in the middle of the next. Who listens is known to the
server late as well, also that the last one is gone. Its chances are its own: a world without
listeners is not changed by it.
"""

from collections import deque
from collections.abc import Callable, Sequence
from random import Random
from typing import Protocol

from oncemq.protocol.names import Micros
from oncemq.protocol.step import Body
from simulator.clock import MILLISECOND, Clock

FEED = "feed"  # the address of a server's that is alone
RECONNECT = 100 * MILLISECOND

Frames = list[bytes]


def feed_at(place: str) -> str:
    """The address of a server's feed; `place`: one of several, or empty."""
    return f"{FEED} {place}" if place else FEED


class Station(Protocol):
    """The server's end."""

    def heard(self, *, joined: bool, subject: bytes) -> None: ...


class Airwaves:
    """The feeds of all servers, and every ear."""

    def __init__(self, clock: Clock, chance: Random, *, delay: int, late: int) -> None:
        self.clock = clock
        self.chance = chance
        self.delay = delay
        self.late = late
        self.loss = chance.choice((0.0, 0.1, 0.5))
        self.stations: dict[str, Station] = {}  # by the address of the feed; those that are up
        self.ears: list[SimulatedFeedSubscriber] = []
        self.lost = 0
        self.era = 0  # of the server: what was sent in one does not come in another

    def begin_era(self) -> None:
        """Nothing is under way any more."""
        self.era += 1

    def opens(self, station: Station, feed: str = FEED) -> None:
        """A server is up."""
        self.stations[feed] = station

    def closes(self, feed: str = FEED) -> None:
        """The server is gone."""
        self.stations.pop(feed, None)
        for ear in [each for each in self.ears if each.address == feed]:
            ear.breaks()

    def reset_client(self, client: str) -> None:
        """Break the connections of a client."""
        for ear in [each for each in self.ears if each.client == client]:
            ear.breaks()

    def publish(self, frames: Sequence[Body], feed: str = FEED) -> None:
        """Send to everyone who listens to the subject on this feed."""
        copy = [bytes(frame) for frame in frames]
        for ear in self.ears:
            if ear.address == feed and copy[0] in ear.subjects:
                if self.chance.random() < self.loss:
                    self.lost += 1
                else:
                    ear.sent(copy)


class SimulatedFeedSubscriber:
    """A listener's end, as `transport.ear.Ear` is."""

    def __init__(self, air: Airwaves, client: str, wake: Callable[[], None]) -> None:
        self.descriptors: tuple[int, ...] = ()
        self.client = client
        self.subjects: set[bytes] = set()
        self._air = air
        self._wake = wake
        self.address = ""
        self._connection = 0  # its number; of none: 0 or less
        self._connections = 0
        self._due = 0
        self._under_way: deque[Frames] = deque()
        self._news: deque[bool] = deque()
        self._inbox: deque[Frames] = deque()

    def connect(self, address: str) -> None:
        """Listen to this feed from now on; empty: to none."""
        if self in self._air.ears:
            self._leaves()
        self.address = address
        self._connection = 0
        self._under_way.clear()
        self._inbox.clear()
        self._news.clear()
        if address:
            self._dial()

    def news(self) -> bool | None:
        """True: connected. False: disconnected. None: nothing happened."""
        return self._news.popleft() if self._news else None

    def tune(self, subjects: set[bytes]) -> None:
        """Listen to these subjects, and to no others; the server hears of it some time later."""
        before, self.subjects = self.subjects, set(subjects)
        if self._connection:
            for subject in sorted(before ^ subjects):
                self._tell(subject, joined=subject in subjects)

    def receive(self) -> Frames | None:
        """The next message's frames, or None."""
        return self._inbox.popleft() if self._inbox else None

    def next_deadline(self) -> Micros | None:
        """At once, where not all was taken; for what comes it is woken."""
        return Micros(0) if self._news or self._inbox else None

    def close(self) -> None:
        """Listen no longer."""
        self.connect("")

    # What the network does

    def sent(self, frames: Frames) -> None:
        """Something is on its way here."""
        air = self._air
        self._due = max(air.clock.now + air.chance.randrange(1, air.delay), self._due)
        self._under_way.append(frames)
        connection = self._connection
        air.clock.at(self._due, lambda: self._arrives(connection))

    def breaks(self) -> None:
        """The connection is gone; some of what was under way arrives later all the same."""
        air = self._air
        self._leaves()
        self._connection = 0
        kept, era = air.chance.randint(0, len(self._under_way)), air.era
        for frames in list(self._under_way)[:kept]:
            late = air.chance.randrange(1, air.late)
            air.clock.after(late, lambda frames=frames: self._takes_late(frames, era))
        self._under_way.clear()
        self._news.append(False)
        self._dial()
        self._wake()

    def _dial(self) -> None:
        air, address = self._air, self.address
        air.clock.after(air.chance.randrange(1, RECONNECT), lambda: self._handshake(address))

    def _handshake(self, address: str) -> None:
        if not self.address or self.address != address or self._connection:
            return
        if self.address not in self._air.stations:
            self._dial()
            return
        self._connections += 1
        self._connection = self._connections
        self._air.ears.append(self)
        for subject in sorted(self.subjects):
            self._tell(subject, joined=True)
        self._news.append(True)
        self._wake()

    def _leaves(self) -> None:
        """The connection is gone: the server hears of the subjects that nobody else listens to."""
        self._air.ears.remove(self)
        for subject in sorted(self.subjects):
            self._tell(subject, joined=False, delay=self._air.delay)

    def _tell(self, subject: bytes, *, joined: bool, delay: int = 0) -> None:
        air, address = self._air, self.address
        station = air.stations.get(address)

        def arrives() -> None:
            others = any(subject in ear.subjects for ear in air.ears if ear.address == address)
            is_there = station is not None and air.stations.get(address) is station
            if station is not None and is_there and (joined or not others):
                station.heard(joined=joined, subject=subject)

        air.clock.after(delay or air.chance.randrange(1, air.delay), arrives)

    def _arrives(self, connection: int) -> None:
        if connection == self._connection and self._under_way:
            self._takes(self._under_way.popleft())

    def _takes_late(self, frames: Frames, era: int) -> None:
        if era == self._air.era:
            self._takes(frames)

    def _takes(self, frames: Frames) -> None:
        if self.address:
            self._inbox.append(frames)
            self._wake()
