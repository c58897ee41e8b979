"""What every coordinator keeps: in memory, over a real etcd, over the simulator's, good and bad."""

# pyright: reportArgumentType=false

import itertools
from collections.abc import Callable, Iterator
from random import Random
from typing import TypeVar

import pytest

from oncemq.coordination.coordinator import (
    Answered,
    Changes,
    Coordinator,
    CoordinatorEvent,
    Found,
    Happened,
    KeyEntry,
    Outcome,
    Overtaken,
    ReadEntries,
    Request,
    Snapshot,
    StoreAway,
    StoreBack,
    Transact,
)
from oncemq.coordination.etcd.coordinator import EtcdCoordinator
from oncemq.coordination.local import LocalCoordinator, LocalStore
from simulator.clock import MILLISECOND, SECOND, Clock
from simulator.coordination.etcd import SimulatedEtcd
from simulator.coordination.simulated_coordinator import EtcdFaults, SimulatedCoordinator
from tests.harness.etcd import Etcd
from tests.harness.waiting import until

T = TypeVar("T")
BAD = EtcdFaults(
    delay_ms=400, lost=0.1, late=0.1, unanswered=0.2, lag_ms=3_000, broken=0.2, missed=0.1
)


class Place:
    """Where coordinators are made that agree with each other."""

    prefix = "/oncemq/test/"

    def made(self, prefix: str, ring: Callable[[], object]) -> Coordinator:
        raise NotImplementedError

    def until(self, look: Callable[[], T | None]) -> T:
        found = look()
        assert found is not None
        return found


class LocalPlace(Place):
    def __init__(self) -> None:
        self._store = LocalStore()

    def made(self, prefix: str, ring: Callable[[], object]) -> LocalCoordinator:
        return self._store.coordinator(prefix, ring)


class SimulatedPlace(Place):
    def __init__(self, faults: EtcdFaults) -> None:
        self._clock = Clock()
        self._etcd = SimulatedEtcd(self._clock)
        self._faults = faults
        self._made = itertools.count()

    def made(self, prefix: str, ring: Callable[[], object]) -> Coordinator:
        return SimulatedCoordinator(
            self._clock, self._etcd, prefix, ring,
            chance=Random(next(self._made)), faults=self._faults,
        )  # fmt: skip

    def until(self, look: Callable[[], T | None]) -> T:
        for _ in range(100_000):
            if (found := look()) is not None:
                return found
            self._clock.run(self._clock.now + 10 * MILLISECOND)
        raise AssertionError(f"not within {self._clock.now // SECOND} s")


class RealPlace(Place):
    def __init__(self, etcd: Etcd, name: str) -> None:
        self._etcd = etcd
        self.prefix = f"/oncemq/{name}/"

    def made(self, prefix: str, ring: Callable[[], object]) -> Coordinator:
        return EtcdCoordinator(self._etcd.access, prefix, ring)

    def until(self, look: Callable[[], T | None]) -> T:
        return until(look)


NAMES = itertools.count()


@pytest.fixture(params=["local", "etcd", "simulated", "simulated badly"])
def place(request: pytest.FixtureRequest) -> Place:
    match request.param:
        case "local":
            return LocalPlace()
        case "etcd":
            return RealPlace(request.getfixturevalue("etcd"), f"contract{next(NAMES)}")
        case "simulated":
            return SimulatedPlace(EtcdFaults())
        case _:
            return SimulatedPlace(BAD)


class Server:
    """Who uses a coordinator, and what it was told."""

    def __init__(self, place: Place, prefix: str) -> None:
        self.rung = 0
        self.told: list[CoordinatorEvent] = []
        self.picture: dict[str, bytes] | None = None
        self._place = place
        self._tokens = itertools.count(1)
        self._answers: dict[int, Outcome] = {}
        self.coordinator = place.made(prefix, self._ring)

    def _ring(self) -> None:
        self.rung += 1

    def look(self) -> None:
        for event in self.coordinator.take():
            self.told.append(event)
            match event:
                case Answered(token, outcome):
                    assert token not in self._answers
                    self._answers[token] = outcome
                case Snapshot(entries):
                    self.picture = {key: entry.value for key, entry in entries.items()}
                case Changes(entries):
                    assert self.picture is not None
                    for key, entry in entries.items():
                        if entry is None:
                            self.picture.pop(key, None)
                        else:
                            self.picture[key] = entry.value
                case StoreAway() | StoreBack():
                    pass

    def asked(self, request: Request) -> int:
        token = next(self._tokens)
        self.coordinator.ask(request, token)
        return token

    def answer(self, token: int) -> Outcome:
        def look() -> Outcome | None:
            self.look()
            return self._answers.get(token)

        return self._place.until(look)

    def ask(self, request: Request) -> Outcome:
        return self.answer(self.asked(request))

    def until_sees(self, **values: str) -> None:
        """Its picture is this, and nothing else."""
        wanted = {self._place.prefix + key: value.encode() for key, value in values.items()}

        def look() -> bool | None:
            self.look()
            return True if self.picture == wanted else None

        self._place.until(look)


@pytest.fixture
def join(place: Place) -> Iterator[Callable[..., Server]]:
    made: list[Server] = []

    def one_more(prefix: str | None = None) -> Server:
        made.append(Server(place, prefix or place.prefix))
        return made[-1]

    yield one_more
    for server in made:
        server.coordinator.close()


class Words:
    """Requests in short."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def put(self, key: str, value: str, *, over: int = 0) -> Transact:
        key = self._prefix + key
        return Transact({key: over}, {key: value.encode()})

    def read(self, *keys: str) -> ReadEntries:
        return ReadEntries(tuple(self._prefix + key for key in keys))

    def entry(self, key: str, value: str, revision: int) -> KeyEntry:
        return KeyEntry(self._prefix + key, value.encode(), revision)


@pytest.fixture
def say(place: Place) -> Words:
    return Words(place.prefix)


Join = Callable[..., Server]


def revision_of(outcome: Outcome) -> int:
    assert isinstance(outcome, Happened)
    return outcome.revision


def test_the_first_event_is_what_is_there(join: Join, say: Words) -> None:
    first = join()
    first.until_sees()
    first.ask(say.put("a", "1"))
    second = join()
    second.until_sees(a="1")
    assert isinstance(second.told[0], Snapshot)
    assert second.rung >= 1


def test_a_change_is_read_by_everybody_and_told_to_everybody(join: Join, say: Words) -> None:
    first, second = join(), join()
    revision = revision_of(first.ask(say.put("a", "1")))
    found = second.ask(say.read("a", "b"))
    assert isinstance(found, Found)
    assert found.entries == {say.entry("a", "1", revision).key: say.entry("a", "1", revision)}
    assert found.revision >= revision
    for server in (first, second):
        server.until_sees(a="1")


def test_a_change_over_another_revision_does_not_happen(join: Join, say: Words) -> None:
    server = join()
    first = revision_of(server.ask(say.put("a", "1")))
    there = say.entry("a", "1", first)
    assert server.ask(say.put("a", "2")) == Overtaken({there.key: there})
    second = revision_of(server.ask(say.put("a", "3", over=first)))
    assert second > first
    there = say.entry("a", "3", second)
    assert server.ask(say.put("a", "4", over=first)) == Overtaken({there.key: there})
    assert server.ask(say.put("b", "5", over=first)) == Overtaken({})
    server.until_sees(a="3")


def test_several_keys_change_at_one_revision_or_none_does(
    join: Join, place: Place, say: Words
) -> None:
    server = join()
    a, b, c = (place.prefix + key for key in "abc")
    first = revision_of(server.ask(Transact({a: 0, b: 0}, {a: b"1", b: b"1"})))
    server.until_sees(a="1", b="1")
    outcome = server.ask(Transact({a: first, b: 0, c: 0}, {c: b"2"}))
    assert outcome == Overtaken({a: say.entry("a", "1", first), b: say.entry("b", "1", first)})
    second = revision_of(server.ask(Transact({a: first, b: first, c: 0}, {c: b"3"}, (b,))))
    server.until_sees(a="1", c="3")
    found = server.ask(say.read("a", "b", "c"))
    assert isinstance(found, Found)
    assert found.entries == {a: say.entry("a", "1", first), c: say.entry("c", "3", second)}
    server.ask(Transact({b: 0}, {b: b"4"}))
    server.until_sees(a="1", b="4", c="3")


def test_of_rivals_one_wins(join: Join, say: Words) -> None:
    servers = [join() for _ in range(3)]
    over = 0
    for turn in range(5):
        tokens = [
            server.asked(say.put("a", f"{turn} of {number}", over=over))
            for number, server in enumerate(servers)
        ]
        outcomes = [server.answer(token) for server, token in zip(servers, tokens, strict=True)]
        (winner,) = [n for n, each in enumerate(outcomes) if isinstance(each, Happened)]
        over = revision_of(outcomes[winner])
        entry = say.entry("a", f"{turn} of {winner}", over)
        assert [each for n, each in enumerate(outcomes) if n != winner] == [
            Overtaken({entry.key: entry})
        ] * 2


def test_each_request_is_answered_once_and_in_order(join: Join, say: Words) -> None:
    server = join()
    tokens = [server.asked(say.read("a")) for _ in range(20)]
    server.answer(tokens[-1])
    answered = [event.token for event in server.told if isinstance(event, Answered)]
    assert answered == tokens


def test_changes_are_told_in_order_and_never_twice(join: Join, say: Words) -> None:
    writer, reader = join(), join()
    over = 0
    for number in range(30):
        over = revision_of(writer.ask(say.put("a", str(number), over=over)))
    reader.until_sees(a="29")
    revisions = [e.revision for e in reader.told if isinstance(e, Snapshot | Changes)]
    assert sorted(set(revisions)) == revisions


def test_what_others_have_beside_the_cluster_is_not_told(
    join: Join, place: Place, say: Words
) -> None:
    other = place.prefix.removesuffix("/") + "2/"  # begins with the same name
    mine, theirs = join(), join(other)
    theirs.ask(Transact({other + "a": 0}, {other + "a": b"1"}))
    mine.ask(say.put("b", "2"))
    mine.until_sees(b="2")


def test_values_are_bytes_and_may_be_empty(join: Join, place: Place) -> None:
    server = join()
    values = {"empty": b"", "all": bytes(range(256)), "größe": "größe".encode()}
    keys = {place.prefix + key: value for key, value in values.items()}
    server.ask(Transact(dict.fromkeys(keys, 0), keys))
    found = server.ask(ReadEntries(tuple(keys)))
    assert isinstance(found, Found)
    assert {key: entry.value for key, entry in found.entries.items()} == keys


def test_what_is_announced_is_there_until_the_announcer_leaves(join: Join, place: Place) -> None:
    here, there = join(), join()
    here.coordinator.announce(place.prefix + "alive", b"1")
    there.until_sees(alive="1")
    here.coordinator.announce(place.prefix + "alive", b"2")
    there.until_sees(alive="2")
    here.coordinator.close()
    there.until_sees()


@pytest.mark.parametrize(
    ("expected", "puts", "deletes"),
    [({}, {"a": b""}, ()), ({"b": 0}, {}, ("a",)), ({"a": 0}, {}, ())],
    ids=["a put", "a delete", "nothing changed"],
)
def test_a_transaction_expects_a_revision_of_each_key_that_it_changes(
    expected: dict[str, int], puts: dict[str, bytes], deletes: tuple[str, ...]
) -> None:
    with pytest.raises(ValueError, match="must expect"):
        Transact(expected, puts, deletes)
