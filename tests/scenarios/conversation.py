"""A broker and everyone who talks to it, line by line, as text.

The checks at the door (`server.admission`) stand before it as in a server; the disk is a list, and
is full when the transcript says so.
"""

import re
from itertools import count
from typing import NamedTuple

import msgspec

from oncemq.broker.broker import Broker
from oncemq.broker.state.shard import Shard
from oncemq.protocol.generations import FIRST
from oncemq.protocol.limits import ServerLimits
from oncemq.protocol.names import Generation, Micros, Serial
from oncemq.protocol.records import Record, Retention
from oncemq.protocol.replies import Messages, RefusedReply, Reply, Welcome
from oncemq.protocol.requests import Request
from oncemq.protocol.step import Caller, Deliver, Step
from oncemq.server.admission import Admission
from tests.scenarios.asking import Asked, Asking


class Disk:
    """As much of a log as knows about room."""

    def __init__(self) -> None:
        self.full = False
        self.reserve_bytes = 0

    def has_room(self, size: int, *, now_ms: int, fact: bool = False) -> bool:
        return not self.full


class Exchange(NamedTuple):
    """A request, and what it was answered at once; others may have been answered by it as well."""

    request: Request
    answers: list[Reply | Deliver]
    wrote: bool


class Conversation:
    """One transcript as it goes. `asked`: its exchanges, for who looks at them."""

    def __init__(self) -> None:
        self.asked: list[Exchange] = []
        self.repeated: set[type[Request]] = set()
        self._records: list[Record] = []
        self._durable = 0
        self._now = 1_000_000
        self._tokens = count(1)
        self._callers: dict[int, str] = {}
        self._last: dict[str, tuple[int, Asked]] = {}
        self._clients = Asking(lambda: len(self._records) + 100)
        self._disk = Disk()
        self._rules, self._log_id = ServerLimits(), b""
        self._start()

    def _start(self) -> None:
        shard = Shard(0, self._log_id)
        del self._records[self._durable :]
        for serial, record in enumerate(self._records, start=1):
            shard.apply(record, Serial(serial))
        self._broker = Broker(shard, self._rules)
        self._broker.recovered(Micros(self._now))
        self._admission = Admission(self._rules, self._disk, shard)

    def do(self, line: str) -> list[str]:
        """What follows from a line."""
        who, verb, *words = line.split()
        if who == "server":
            return self._tell(getattr(self, verb)(*words))
        if verb == "again":  # the same bytes once more, as a client does that got no answer
            token, asked = self._last[who]
            self.repeated.add(type(asked[0]))
        else:
            token, asked = next(self._tokens), self._clients.ask(who, verb, words)
        self._last[who] = token, asked
        self._callers[token] = who
        self._now += 1
        request = asked[0]
        step = self._handle(Caller(who.encode(), token), *asked)
        answers = [owed.answer for owed in step.replies if owed.caller.token == token]
        self.asked.append(Exchange(request, answers, bool(step.writes)))
        for answer in answers:
            self._clients.remember(who, request, answer)
        return self._tell(step)

    def _handle(self, caller: Caller, request: Request, body: bytes | None) -> Step:
        """As `server.driver` does."""
        return self._broker.handle(caller, request, body, Micros(self._now), self._admission)

    # the server's own

    def sync(self, upto: str = "") -> Step:
        self._durable = int(upto) if upto else len(self._records)
        return self._broker.synced(Serial(self._durable))

    def crash(self) -> Step:
        self._start()
        return Step()

    def restart(self, *words: str) -> Step:
        """In good order, with limits of its own (`topics_max=1`), or (`log_id=x`) another log."""
        limits = dict(word.split("=", 1) for word in words)
        self._log_id = limits.pop("log_id", "").encode() or self._log_id
        self._rules = msgspec.convert(limits, ServerLimits, strict=False)
        self._durable = len(self._records)
        self._start()
        return Step()

    def disk(self, state: str) -> Step:
        self._disk.full = state == "full"
        return Step()

    def back(self, generation: str) -> Step:
        """The server starts on an earlier state of its log, whose generation was raised."""
        self._start()
        return self._broker.begin_generation(Generation(int(generation)), Micros(self._now))

    def time(self, seconds: str) -> Step:
        self._now += int(float(seconds) * 1_000_000)
        return self._broker.tick(Micros(self._now))

    def upkeep(self) -> Step:
        """Leases, guests, keys and stages whose time is over."""
        return self._broker.forget_guests(Micros(self._now))

    # as text

    def _tell(self, step: Step) -> list[str]:
        lines: list[str] = []
        for write in step.writes:
            self._records.append(write.record)
            lines.append(f"  w {len(self._records)} {record_text(write.record)}")
        for owed in step.replies:
            caller = self._callers[owed.caller.token]
            after = f" after {owed.after}" if owed.after > self._durable else ""
            lines.append(f"  r {caller}{after}: {answer_text(owed.answer)}")
        return lines or ["  -"]


def record_text(record: Record) -> str:
    """The record without what differs from run to run: checksums and timestamps."""
    return _plain(repr(record)).replace("producer_epoch", "epoch")


def answer_text(answer: Reply | Deliver) -> str:
    match answer:
        case Deliver(spans=spans, whole=whole):
            places = (f"{span.topic}@{span.start}..{span.end - 1}" for span in spans)
            return f"messages {' '.join(places)}{', uncut' if whole else ''}"
        case Messages(batches=()):
            return "nothing new"
        case RefusedReply(code=code):
            return f"refused {code}"
        case Welcome(client_epoch=granted, log_id=log_id, generation=generation):
            log = f", log {log_id.decode()}" if log_id else ""
            since = f", generation {generation}" if generation > FIRST else ""
            return f"welcome, epoch {granted}{log}{since}"
        case _:
            return re.sub(r", sync_ms=0", "", _plain(repr(answer)))


def _plain(text: str) -> str:
    """Without what says nothing here: times, checksums, the dots after a producer's name."""
    text = re.sub(r"\b(checksum|timestamp|created|moment|moment_before)=\d+,? ?", "", text)
    text = text.replace(f", retention={Retention()!r}", "").replace(", )", ")")
    return re.sub(r"b'(\w+)\.*'", r"\1", text)
