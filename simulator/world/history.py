"""What the applications of a simulated world saw, in the order they saw it: the checker's input.

Law: an event is noted in the same moment it happens to the application, as if its own journal and
OnceMQ's settled in one transaction. `moment` counts events, so of two the earlier is known.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

import msgspec

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
from oncemq.errors import OnceMQError
from oncemq.protocol.names import Offset
from simulator.world.lost_future import LostFuture
from simulator.world.topic_lives import TopicLives


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


@dataclass(slots=True)
class History:
    """Everything that was seen."""

    puts: dict[int, PutStory] = field(default_factory=dict[int, PutStory])
    seen: list[Seen] = field(default_factory=list[Seen])
    troubles: list[str] = field(default_factory=list[str])  # what must not happen, and did
    twins: set[str] = field(default_factory=set[str])  # clients that ran twice at a time
    lives: TopicLives = field(default_factory=TopicLives)
    back: LostFuture = field(init=False)
    _moment: int = 0

    def __post_init__(self) -> None:
        self.back = LostFuture(self)

    def moment(self) -> int:
        """A point in the order of events, after all given before."""
        self._moment += 1
        return self._moment

    def facts(self) -> Iterator[facts.Fact]:
        """All of it, as the checker takes it."""
        restless = self.twins | {one.client for one in self.seen if isinstance(one, Tainted)}
        for put in map(self.back.put, self.puts.values()):
            whose = put.lasting and put.client not in restless
            line = put.client if whose else f"{put.client}, process {put.process}"
            for each in self._in_each_life(put):
                yield each.fact(f"{put.client}, put {put.number}" if put.alone else line)
        # A message of the subscription before may arrive while the next one is under way.
        above = {
            (one.client, one.topic, one.asked): one.above or one.subscription
            for one in map(self.back.joined, filter(self.back.stays, self.seen))
            if isinstance(one, Joined)
        }
        for seen in map(self.back.joined, filter(self.back.stays, self.seen)):
            match seen:
                case HandedOut():
                    yield seen.fact()
                case Joining():
                    known = above.get((seen.client, seen.topic, seen.moment), 0)
                    yield from self.lives.facts(msgspec.structs.replace(seen, above=known))
                case Joined() | Leaving() | Left():
                    yield from self.lives.facts(seen)
                case OpenedFact() | Tainted():
                    yield seen
                case _:
                    yield from (each.fact() for each in self.back.together(seen))

    def several(self) -> Iterator[Several]:
        """Everything that was, or may have been, handed out together."""
        for seen in self.seen:
            if isinstance(seen, Several):
                yield seen

    def given(self) -> Iterator[HandedOut]:
        """Every message that was handed out, in time to come left or not."""
        for seen in self.seen:
            yield from self._given_with(seen)

    def in_two_lives(self) -> list[str]:
        """Puts that took effect in more than one life of a topic: sent again, they were known."""
        restless = {one.client for one in self.seen if isinstance(one, Tainted)}
        lives: dict[int, set[str]] = {}
        for seen in self.seen:
            for each in self._given_with(seen):
                topic, mark, _ = each.topic.partition("#")
                number = name_of(each.payload).partition(b".")[0]
                put = self.puts.get(int(number)) if mark and number.isdigit() else None
                if put is not None and put.client not in restless and put.topic == topic:
                    lives.setdefault(put.number, set()).add(each.topic)
        return [
            f"duplicate: put {number} took effect in {' and '.join(sorted(found))}"
            for number, found in lives.items()
            if len(found) > 1
        ]

    def _given_with(self, seen: Seen) -> list[HandedOut]:
        match seen:
            case HandedOut():
                return [seen]
            case Joining() | Joined() | Leaving() | Left() | OpenedFact() | Tainted():
                return []
            case _:
                return seen.given

    def _in_each_life(self, put: PutStory) -> Iterator[PutStory]:
        """A put to a topic that was deleted meanwhile may be in one life of it, or in several."""
        if put.topic not in self.lives.mortal:
            yield put
            return
        for life in self.lives.of(put.topic):
            if life == put.life:
                yield replace(put, topic=life)
                continue
            recorded = put.recorded and not put.life and not self.lives.was_mortal(put.topic)
            yield replace(
                put, topic=life, recorded=recorded, stored=None, first_offset=None, answered=None
            )

    def trouble(self, what: str) -> None:
        """Something happened that no fault excuses."""
        self.troubles.append(what)

    def error(self, where: str, error: BaseException) -> None:
        """Code of ours raised what it must not."""
        name = type(error).__name__
        detail = error.detail if isinstance(error, OnceMQError) else str(error)
        self.trouble(f"broke: {where} raised {name}: {detail}")


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
