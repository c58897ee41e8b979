"""A storm of kills over a running server and its clients, and the checker that looks at the end.

Everything random comes from one seed. A kill hits at any moment: between a write and its sync,
before an answer, during recovery, in the middle of a checkpoint. What the processes noted, what
the server holds and what the clients' own disks say must then fit together, exactly once.
"""

import json
import random
import select
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from oncemq import Client, Message
from oncemq.audit.checker import Audit
from oncemq.audit.facts import (
    OPEN,
    RECORDED,
    STORED,
    Fact,
    GivenFact,
    Held,
    PutFact,
    SettledFact,
    Skipped,
    StoredFact,
)
from oncemq.protocol.names import Micros, Offset, Sequence
from oncemq.protocol.records import Retention
from simulator import proof
from tests.e2e.processes import Nursery, Process, Serving, read_notes, until, until_it_rests
from tests.e2e.roles import cursors_in

KEPT = ("alpha", "beta")  # retained, so that the checker can walk them
FLEETING = "gamma"  # freed when settled: segments are compacted away under fire
TOPICS = (*KEPT, FLEETING)
PUBLISHERS = 4
LIMIT = 7  # messages of one get

# Small segments and frequent upkeep: files are rolled, checkpointed and compacted in each life.
SERVER = {
    "upkeep_ms": 20,
    "log": {
        "segment_bytes": 64 << 10,
        "allocate_bytes": 32 << 10,
        "reserve_bytes": 32 << 10,
        "checkpoint_records": 200,
        "checkpoint_bytes": 32 << 10,
    },
}
SUBSCRIBERS: dict[str, tuple[str, str | None]] = {
    "get-alpha": ("get", "alpha"),
    "get-gamma": ("get", FLEETING),
    "get-any": ("get", None),
    "consume-beta": ("consume", "beta"),
    "listen-alpha": ("listen", "alpha"),
}
SUBSCRIBED = {
    "get-alpha": ("alpha",),
    "get-gamma": (FLEETING,),
    "get-any": TOPICS,
    "consume-beta": ("beta",),
    "listen-alpha": ("alpha",),
}


class Storm:
    """One server, its publishers and subscribers, and a hand that kills them."""

    def __init__(self, nursery: Nursery, directory: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.killed: Counter[str] = Counter()
        self._nursery = nursery
        self._directory = directory
        self._clients: dict[str, Process] = {}
        self.serving = Serving(nursery, directory, **SERVER)

    # the cast

    def begin(self) -> None:
        """Everyone is there, everyone has subscribed, nothing was put."""
        address = self.serving.start()
        with Client(address) as setup:
            for topic in KEPT:
                setup.create_topic(topic, Retention(forever=True))
        for name, topics in SUBSCRIBED.items():
            with self.client(name) as subscriber:
                for topic in topics:
                    subscriber.subscribe(topic)
        for name in self.publishers + self.subscribers:
            self._start(name)

    @property
    def publishers(self) -> list[str]:
        return [f"publisher-{number}" for number in range(PUBLISHERS)]

    @property
    def subscribers(self) -> list[str]:
        return list(SUBSCRIBERS)

    def client(self, name: str) -> Client:
        """A client of the checker's own, with the state of that process."""
        return Client(self.serving.address, id=name, state=self._state(name))

    def notes(self, name: str) -> list[list[Any]]:
        return read_notes(self._directory / f"{name}.notes")

    def _state(self, name: str) -> Path:
        return self._directory / f"state-{name}"

    def _start(self, name: str) -> None:
        options: dict[str, Any] = {
            "server": self.serving.address,
            "id": name,
            "state": str(self._state(name)),
        }
        if name in SUBSCRIBERS:
            role, topic = SUBSCRIBERS[name]
            options |= {"topic": topic, "limit": LIMIT, "effects": str(self._effects(name))}
        else:
            role = "publish"
            options |= {"topics": TOPICS, "first": self._next_number(name)}
        self._clients[name] = self._nursery.start(role, name, self._directory, **options)

    def _effects(self, name: str) -> Path:
        return self._directory / f"{name}.effects"

    def _next_number(self, name: str) -> int:
        last = next((note for note in reversed(self.notes(name)) if note[0] == "about"), None)
        return last[2] + last[3] if last else 1

    # the kills

    def kill(self, *, server: bool = False, clients: list[str] | None = None) -> None:
        """SIGKILL these at one moment, and start them again."""
        names = clients or []
        victims = [self._clients[name] for name in names]
        self._nursery.kill(*victims, *([self.serving.process] if server else ()))
        self.killed["server"] += server
        self.killed["publishers"] += sum(name not in SUBSCRIBERS for name in names)
        self.killed["subscribers"] += sum(name in SUBSCRIBERS for name in names)
        if server:
            self.serving.begin()
        for name in names:
            self._start(name)

    def let_pass(self, milliseconds: float) -> None:
        """The kill comes at a random moment: nothing is waited for here."""
        select.select((), (), (), self.random.uniform(0, milliseconds) / 1000)

    def make_progress(self) -> None:
        """Wait until a put was acknowledged: lives so short that nothing is done prove nothing."""
        before = self._stored()
        until(lambda: self._stored() > before, what=f"puts go on; {self.serving.process.errors}")

    def _stored(self) -> int:
        sizes = [self._directory / f"{name}.notes" for name in self.publishers]
        return sum(path.read_bytes().count(b'["stored"') for path in sizes if path.exists())

    # the end

    def end(self) -> "Outcome":
        """No more kills: publishers empty their outboxes, subscribers catch up, all is read."""
        assert not self._nursery.alone([*self._clients.values(), self.serving.process])
        self._nursery.kill(*(self._clients[name] for name in self.publishers))
        for name in self.publishers:
            ends = self._nursery.start(
                "flush", f"{name}-flush", self._directory, server=self.serving.address, id=name,
                state=str(self._state(name)),
            )  # fmt: skip
            assert ends.wait() == 0, ends.errors
        with Client(self.serving.address) as checker:
            ends_at = {topic.name: int(topic.end) for topic in checker.topics()}
            stored = {topic: walk(checker, topic, ends_at[topic]) for topic in KEPT}
        for name, topics in SUBSCRIBED.items():
            wanted = {topic: ends_at[topic] for topic in topics if ends_at[topic]}
            until_it_rests(
                partial(cursors_in, str(self._state(name))),
                lambda cursors, wanted=wanted: wanted.items() <= cursors.items(),
                what=f"{name} catches up with {wanted}; {self._clients[name].errors}",
            )
        self._nursery.kill(*(self._clients[name] for name in self.subscribers))
        self.serving.stop()
        return Outcome(self, stored, ends_at)

    @property
    def longest_silence(self) -> float:
        """The longest time in which no publisher had an answer."""
        times = sorted(
            note[5] for name in self.publishers for note in self.notes(name) if len(note) > 5
        )
        return max((after - before for before, after in pairwise(times)), default=0.0)

    def silences(self, outage: str) -> dict[str, float]:
        """The longest times without an answer, by what they came after."""
        return {outage: self.longest_silence}

    def injected(self) -> dict[str, int]:
        """What befell them, as the reliability card names it."""
        return {"kill -9": self.killed.total()}

    def prove(self, name: str, outage: str) -> None:
        """The end: everything is checked, and counted for the reliability card.

        `outage` says what the longest time without an answer came after.
        """
        with proof.campaign(name) as tally:
            for fault, times in self.injected().items():
                tally.fault(fault, times)
            tally.add("kills", self.killed.total())
            tally.add("cuts", self.injected().get("power cut", 0))
            outcome = self.end()
            tally.add("messages", outcome.messages)
            for cause, seconds in self.silences(outage).items():
                tally.outage(cause, seconds)
            print(outcome.describe())
            outcome.check()


def walk(client: Client, topic: str, end: int) -> list[Message]:
    """Every stored message, in order."""
    messages: list[Message] = []
    while len(messages) < end:
        messages += client.read(topic, len(messages), limit=10_000)
    assert client.read(topic, end) == []
    return messages


class Outcome:
    """What is there in the end, as the checker takes it, and what it says to that."""

    def __init__(self, storm: Storm, stored: dict[str, list[Message]], ends: dict[str, int]):
        self._storm = storm
        self._stored = stored
        self._ends = ends

    def check(self) -> None:
        """G1 to G4, of everything that was noted, stored and settled."""
        audit = Audit()
        for topic, end in self._ends.items():
            audit.see(Held(topic, Offset(0), Offset(end)))
        for name, (role, _) in SUBSCRIBERS.items():
            for topic in SUBSCRIBED[name] if role == "get" else ():
                audit.expect(name, topic, start=0)
        for fact in self._facts():
            audit.see(fact)
        found = audit.finish().kept
        assert not found, "\n".join(map(str, found))
        self.fleeting_topic_counts_right()
        for name, (role, topic) in SUBSCRIBERS.items():
            if role in ("consume", "listen"):
                assert topic is not None
                self.applied_in_order(name, topic)

    def _facts(self) -> Iterator[Fact]:
        yield from self._puts()
        yield Skipped(FLEETING, Offset(self._ends[FLEETING]))  # what was settled was let go
        for topic in KEPT:
            for each in self._stored[topic]:
                yield StoredFact(
                    topic, Offset(each.offset), each.producer, Sequence(each.sequence),
                    Micros(round(each.timestamp.timestamp() * 1_000_000)), message=each.payload,
                )  # fmt: skip
        for name, (role, _) in SUBSCRIBERS.items():
            if role == "get":
                yield from self._given(name)

    def _puts(self) -> Iterator[PutFact]:
        """What each publisher was about to put, and the last it was told of it."""
        for name in self._storm.publishers:
            told: dict[tuple[str, int, int], tuple[str, int | None]] = {}
            for kind, topic, first, count, *receipt in self._storm.notes(name):
                offset = receipt[0] if kind == "stored" else None
                told[topic, first, count] = (OPEN if kind == "about" else kind, offset)
            for begun, ((topic, first, count), (last, offset)) in enumerate(told.items(), 1):
                yield PutFact(
                    topic=topic, count=count, told=last, client=name, line=name, lasting=True,
                    offset=None if offset is None else Offset(offset), begun=begun,
                    messages=tuple(f"{name}:{first + n}".encode() for n in range(count)),
                )  # fmt: skip

    def _given(self, name: str) -> Iterator[GivenFact | SettledFact]:
        """What a subscriber was given: noted, or, when it was killed before it could note what
        one get returned, settled by its own state at its next start."""
        following: dict[str, int] = defaultdict(int)
        for note in self._storm.notes(name):
            if note[0] == "got":
                _, topic, offset, payload = note
                following[topic] = offset + 1
                yield GivenFact(name, topic, Offset(offset), message=payload.encode())
                continue
            for topic, cursor in note[1].items():
                yield self._unnoted(name, topic, following[topic], cursor)
                following[topic] = cursor
        for topic in SUBSCRIBED[name]:
            yield self._unnoted(name, topic, following[topic], self._ends[topic])

    @staticmethod
    def _unnoted(name: str, topic: str, following: int, cursor: int) -> SettledFact:
        assert 0 <= cursor - following <= LIMIT, f"{name}: {topic}@{following} to {cursor}"
        return SettledFact(name, topic, Offset(cursor))

    def fleeting_topic_counts_right(self) -> None:
        """Nothing of it is kept, but its end tells how many were stored."""
        puts = [put for put in self._puts() if put.topic == FLEETING]
        least = sum(put.count for put in puts if put.told in (STORED, RECORDED))
        assert least <= self._ends[FLEETING] <= sum(put.count for put in puts)

    def applied_in_order(self, name: str, topic: str) -> None:
        """Plain effects: at least once, none left out, and a new life repeats one batch at most."""
        with closing(sqlite3.connect(self._storm._effects(name))) as table:
            rows = table.execute("SELECT life, offset, payload FROM effects ORDER BY place")
            life, expected = 0, 0
            for lived, offset, payload in rows.fetchall():
                if lived != life:
                    life = lived
                    assert expected - LIMIT <= offset <= expected, f"life {life} of {name}"
                else:
                    assert offset == expected, f"{name} applied {topic}@{offset}, not {expected}"
                expected = offset + 1
                assert self._stored[topic][offset].payload.decode() == payload
        assert expected == self._ends[topic], f"{name} did not apply the end of {topic}"

    @property
    def messages(self) -> int:
        """How many were checked."""
        return sum(self._ends.values())

    def describe(self) -> str:
        """One line for people who read test logs."""
        silence = f"{self._storm.longest_silence:.2f} s"
        faults = {fault: times for fault, times in self._storm.injected().items() if times}
        return json.dumps({"injected": faults, "stored": self._ends, "longest silence": silence})
