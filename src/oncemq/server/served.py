"""What a loop serves: the driver of a server alone, or a replica of a shard, which may have one.

Law: nothing here waits, opens a socket or reads a clock; the loop does.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from oncemq.broker.expiry import Calendar
from oncemq.broker.given import Facts
from oncemq.protocol.names import Micros
from oncemq.protocol.step import Body
from oncemq.server.events import Events
from oncemq.server.feed import Pushes
from oncemq.server.worker import Worker
from oncemq.storage.log.log import Log
from oncemq.storage.log.writer import Group

Outgoing = tuple[bytes, Sequence[Body]]


class Answers(Protocol):
    """The half that others talk to."""

    outgoing: list[Outgoing]
    calendar: Calendar
    events: Events
    has_news: bool  # `take_news` is to be called in each turn

    @property
    def is_full(self) -> bool: ...
    def bind(
        self,
        *,
        reaches: Callable[[bytes, Sequence[Body]], bool],
        takes: Callable[[bytes], bool],
        hand_over: Callable[[], None],
        connections: Callable[[], Facts],
    ) -> None: ...
    def receive(self, route: bytes, frames: Sequence[Body], now: Micros) -> None: ...
    def keep_time(self, calendar: Calendar, now: Micros) -> None: ...
    def tick(self, now: Micros) -> None: ...
    def take_news(self, now: Micros) -> None: ...
    def may_stop(self, now: Micros) -> bool: ...


class Feeds(Protocol):
    """What is pushed to listeners: what there is to send, and who listens to what."""

    @property
    def pushes(self) -> Pushes: ...
    def listens(self, *, joined: bool, subject: bytes) -> None: ...


class Served(Answers, Feeds, Protocol):
    """The whole: what it decides goes to the disk in groups."""

    @property
    def log(self) -> Log: ...
    def commit(self, now: Micros) -> Group | None: ...
    def written(self, group: Group, now: Micros) -> object: ...
    def next_deadline(self) -> Micros | None: ...
    def next_commit(self) -> Micros | None: ...


class KeepsHouse(Protocol):
    """Who does a little work on the files, whenever the loop has a moment."""

    @property
    def busy(self) -> bool: ...
    def turn(self, janitor: Worker, now: Micros) -> None: ...


def sooner(one: Micros | None, other: Micros | None) -> Micros | None:
    """Of two moments, if any."""
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)
