"""What the applications of a simulated world saw, in the order they saw it: the judgement's input.

Law: an event is noted in the same moment it happens to the application, as if its own journal and
OnceMQ's settled in one transaction. `moment` counts events, so of two the earlier is known.
"""

from dataclasses import dataclass, field

from oncemq.errors import OnceMQError


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


@dataclass(frozen=True, slots=True)
class Joining:
    """A subscribe begins; `Joined` or nothing follows."""

    client: str
    topic: str
    earliest: bool
    moment: int


@dataclass(frozen=True, slots=True)
class Joined:
    """The server confirmed the subscription."""

    client: str
    topic: str
    subscription: int  # which one it is
    process: int
    asked: int
    moment: int


@dataclass(frozen=True, slots=True)
class Leaving:
    """An unsubscribe begins; `Left` or nothing follows."""

    client: str
    topic: str
    moment: int


@dataclass(frozen=True, slots=True)
class Left:
    """The server confirmed the end of the subscription."""

    client: str
    topic: str
    moment: int


@dataclass(frozen=True, slots=True)
class Given:
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


@dataclass(frozen=True, slots=True)
class Opened:
    """A process got its epoch: every older process with this id is fenced from now on."""

    client: str
    process: int
    client_epoch: int
    moment: int


@dataclass(frozen=True, slots=True)
class Tainted:
    """The client's state was replaced by an old copy or thrown away: its cursors are not its own
    any more, and what its outbox held is gone."""

    client: str
    moment: int


Seen = Joining | Joined | Leaving | Left | Given | Opened | Tainted


@dataclass(slots=True)
class History:
    """Everything that was seen."""

    puts: dict[int, PutStory] = field(default_factory=dict[int, PutStory])
    seen: list[Seen] = field(default_factory=list[Seen])
    troubles: list[str] = field(default_factory=list[str])  # what must not happen, and did
    twins: set[str] = field(default_factory=set[str])  # clients that ran twice at a time
    _moment: int = 0

    def moment(self) -> int:
        """A point in the order of events, after all given before."""
        self._moment += 1
        return self._moment

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


def name_of(data: bytes) -> tuple[int, int] | None:
    """The put and the place a payload names."""
    parts = data.split(b".", 2)
    if len(parts) == 3 and parts[0].isdigit() and parts[1].isdigit():
        return int(parts[0]), int(parts[1])
    return None
