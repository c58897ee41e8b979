"""One put, one delivery, one transaction of a simulation, as its application saw it.

Law: an event is noted in the same moment it happens to the application, as if its own journal and
OnceMQ's settled in one transaction.
"""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from oncemq.audit import facts
from oncemq.audit.facts import (
    DISCARDED,
    NEVER,
    OPEN,
    RECORDED,
    REFUSED,
    STORED,
    Joined,
    Joining,
    Leaving,
    Left,
    OpenedFact,
    Tainted,
)
from oncemq.protocol.names import Offset


@dataclass(slots=True)
class PutStory:
    """One put, and all that its publisher was told of it."""

    number: int  # its payloads say it
    client: str
    process: int
    topic: str
    count: int
    size: int
    begun: int
    lasting: bool  # the client has state and the put goes through its outbox
    recorded: bool = False  # the outbox has it: it must arrive, whatever crashes
    answered: int | None = None
    first_offset: int | None = None
    stored: bool | None = None
    refused: str = ""  # the code of a refusal that promises it is not stored
    alone: bool = False  # its place among the client's other puts is nobody's business
    life: str = ""  # of its topic, as the receipt said
    required: bool = False  # it must not be told that it was discarded

    @property
    def told(self) -> str:
        """What its publisher knows of it."""
        if self.refused:
            return REFUSED
        if self.stored is not None:
            return STORED if self.stored else DISCARDED
        return RECORDED if self.recorded else OPEN

    def fact(self, line: str) -> facts.PutFact:
        """As the checker takes it."""
        places = range(self.count)
        return facts.PutFact(
            topic=self.topic,
            count=self.count,
            told=self.told,
            why=self.refused,
            offset=None if self.first_offset is None else Offset(self.first_offset),
            messages=tuple(_name(self.number, place, self.topic) for place in places),
            digests=tuple(
                _digest(payload(self.number, place, self.size), key(self.number, place))
                for place in places
            ),
            client=self.client,
            process=self.process,
            line=line,
            lasting=self.lasting,
            required=self.required,
            begun=self.begun,
            answered=NEVER if self.answered is None else self.answered,
        )


@dataclass(frozen=True, slots=True)
class HandedOut:
    """A message was handed out for good: by get, or by a consume that ended well."""

    client: str
    process: int
    topic: str
    subscription: int
    offset: int
    payload: bytes
    key: bytes | None
    asked: int  # when the application asked
    moment: int
    generation: int = 1  # of the server's log, as its process knew it
    allowed: int = 0  # when its process asked for the row of a database that it was written with

    def fact(self) -> facts.GivenFact:
        """As the checker takes it."""
        return facts.GivenFact(
            self.client,
            self.topic,
            Offset(self.offset),
            _digest(self.payload, self.key),
            name_of(self.payload, self.topic),
            self.subscription,
            self.process,
            self.asked,
            self.moment,
            self.allowed,
        )


@runtime_checkable
class Several(Protocol):
    """Messages that were handed out together, if they were, with what was put; known in the end."""

    @property
    def given(self) -> list[HandedOut]: ...
    @property
    def outputs(self) -> list[PutStory]: ...
    def learn(self, moment: int) -> None: ...


Seen = Joining | Joined | Leaving | Left | HandedOut | OpenedFact | Tainted | Several


def payloads(number: int, count: int, size: int) -> list[bytes]:
    """The payloads of a put: each says which it is, and fills up to about `size` bytes."""
    return [payload(number, place, size) for place in range(count)]


def payload(number: int, place: int, size: int) -> bytes:
    """One payload, the same whenever it is asked for."""
    name = b"%d.%d." % (number, place)
    filling = b"%d" % (number * 7919 + place * 104_729)
    return name + (filling * (size // len(filling) + 1))[: max(0, size - len(name))]


def key(number: int, place: int) -> bytes | None:
    """The key that goes with a payload; two puts of three have none."""
    return b"key-%d-%d" % (number, place) if number % 3 == 0 else None


def name_of(data: bytes, topic: str = "") -> bytes:
    """The put and the place a payload names, as `12.0`; all of it, when it names none."""
    parts = data.split(b".", 2)
    if len(parts) == 3 and parts[0].isdigit() and parts[1].isdigit():
        return _name(int(parts[0]), int(parts[1]), topic)
    return data


def _name(number: int, place: int, topic: str) -> bytes:
    """In another life of its topic it is another message."""
    _, mark, life = topic.partition("#")
    return b"%d.%d%s" % (number, place, (mark + life).encode())


def _digest(data: bytes, own_key: bytes | None) -> bytes:
    """The bytes themselves: they are few, and a difference can be read."""
    return data if own_key is None else own_key + b"=" + data
