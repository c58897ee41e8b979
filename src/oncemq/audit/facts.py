"""What a history is made of: facts that somebody saw, each a value.

`Held`, `StoredFact` and `Skipped` are what a log holds; `PutFact` what a publisher was told;
`GivenFact` what took effect at a subscriber, in the order it did; the rest is the life of
subscriptions and clients.

A moment counts the events of one history, from 1: of two facts the earlier is known. 0 is "nobody
noted when", as in a real journal; then only what does not need the time is judged.
"""

import msgspec

from oncemq.protocol.names import Micros, Offset, Sequence

NEVER = 1 << 62

# What the publisher of a put was told last.
STORED = "stored"
DISCARDED = "discarded"  # nobody subscribes and nothing is retained
REFUSED = "refused"  # which promises that it is not stored
RECORDED = "recorded"  # its outbox has it: it must arrive, whatever crashes
OPEN = "open"  # nothing: it may be stored, once, or not


class Held(msgspec.Struct, frozen=True):
    """A log holds the offsets of a topic from `low` up to, not including, `end`."""

    topic: str
    low: Offset
    end: Offset
    replica: str = ""


class StoredFact(msgspec.Struct, frozen=True, gc=False):
    """A message in a log, in the log's order."""

    topic: str
    offset: Offset
    producer: str
    sequence: Sequence
    timestamp: Micros
    digest: bytes = b""  # of the payload; empty: not looked at
    message: bytes = b""  # the name its publisher knows it by; empty: not known
    replica: str = ""


class Skipped(msgspec.Struct, frozen=True):
    """The walk went on at `until`: the rest was let go meanwhile, or (with `damage`) is broken.

    `accepted`: the server names it as lost, and a person agreed to that.
    """

    topic: str
    until: Offset
    damage: str = ""
    replica: str = ""
    accepted: bool = False


class PutFact(msgspec.Struct, frozen=True, kw_only=True):
    """One put of `count` messages, and what its publisher was told of it last."""

    topic: str
    count: int = 1
    told: str = STORED
    why: str = ""  # the code of a refusal
    offset: Offset | None = None  # of the first, as the receipt says
    messages: tuple[bytes, ...] = ()  # their names, each its own; empty: not known
    digests: tuple[bytes, ...] = ()  # of the payloads; empty: not looked at
    client: str = ""
    process: int = 0
    line: str = ""  # puts of one line keep their order; empty: of none
    lasting: bool = False  # it went through an outbox
    required: bool = False  # it is stored or refused, and never discarded
    begun: int = 0
    answered: int = NEVER


class GivenFact(msgspec.Struct, frozen=True, gc=False):
    """A message took effect at a client: handed out for good, or written into its journal."""

    client: str
    topic: str
    offset: Offset
    digest: bytes = b""
    message: bytes = b""
    subscription: int = 0  # which one of the client's on the topic; 0: not known
    process: int = 0
    asked: int = 0  # when the application asked for it
    moment: int = 0
    allowed: int = 0  # when its process took over what fences it, a database's row; 0: as asked


class SettledFact(msgspec.Struct, frozen=True):
    """The client's own state says that all before `cursor` took effect, noted or not."""

    client: str
    topic: str
    cursor: Offset


class Joining(msgspec.Struct, frozen=True):
    """A subscribe begins; `Joined` or nothing follows."""

    client: str
    topic: str
    earliest: bool
    moment: int
    above: int = 0  # every one that it may make has this number or a higher one


class Joined(msgspec.Struct, frozen=True):
    """The server confirmed the subscription."""

    client: str
    topic: str
    subscription: int  # which one it is; 0: not told, as of what a pattern makes
    process: int
    asked: int
    moment: int
    above: int = 0  # not told, but every one that was made later has a higher number than this


class Leaving(msgspec.Struct, frozen=True):
    """An unsubscribe begins; `Left` or nothing follows."""

    client: str
    topic: str
    moment: int


class Left(msgspec.Struct, frozen=True):
    """The server confirmed the end of the subscription."""

    client: str
    topic: str
    moment: int
    asked: int = 0  # when that unsubscribe began; 0: not told, it is the last one


class OpenedFact(msgspec.Struct, frozen=True):
    """A process got its epoch: every older process with this id is fenced from now on."""

    client: str
    process: int
    client_epoch: int
    moment: int


class Tainted(msgspec.Struct, frozen=True):
    """The client's state was replaced by an old copy or thrown away: its cursors are not its own
    any more, and what its outbox held is gone."""

    client: str
    moment: int
    copied: int = 0  # when the copy was made that it has now; 0: it has none


Life = Joining | Joined | Leaving | Left | OpenedFact | Tainted
Fact = Held | StoredFact | Skipped | PutFact | GivenFact | SettledFact | Life
