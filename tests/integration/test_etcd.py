"""A real etcd of three members, killed, frozen and emptied of its history under coordinators."""

import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import msgspec
import pytest

from oncemq.coordination.coordinator import (
    Answered,
    Changes,
    CoordinatorEvent,
    Happened,
    Outcome,
    ReadEntries,
    Snapshot,
    StoreAway,
    StoreBack,
    Transact,
    Unanswered,
)
from oncemq.coordination.etcd.connection import Access, EtcdConnection
from oncemq.coordination.etcd.coordinator import EtcdCoordinator, Limits
from oncemq.coordination.etcd.gateway import CallFailed
from oncemq.coordination.etcd.rules.calls import HasRead, ReadKeys
from tests.harness.appenders import Appender, findings
from tests.harness.etcd import Etcd, EtcdMember, running_etcd
from tests.harness.waiting import until, until_true

PREFIX = "/oncemq/faults/"
KEY = f"{PREFIX}shard/0"
QUICK = Limits(try_ms=500, request_ms=2_000, idle_ms=1_000, lease_ms=2_000)

pytestmark = pytest.mark.slow


@pytest.fixture
def three() -> Iterator[Etcd]:
    """Three members of this test's own."""
    with running_etcd(3) as etcd:
        yield etcd


@contextmanager
def coordinator(access: Access, limits: Limits = QUICK) -> Iterator[EtcdCoordinator]:
    made = EtcdCoordinator(access, PREFIX, lambda: None, limits)
    try:
        yield made
    finally:
        made.close()


class Told:
    """What a coordinator told so far."""

    def __init__(self, coordinator: EtcdCoordinator) -> None:
        self._coordinator = coordinator
        self.events: list[CoordinatorEvent] = []  # that were looked at
        self._next: deque[CoordinatorEvent] = deque()
        self._token = 100  # above those of requests that a test asks by itself

    def until(self, look: Callable[[CoordinatorEvent], object]) -> CoordinatorEvent:
        """The first event from here on that is so."""

        def found() -> CoordinatorEvent | None:
            self._next.extend(self._coordinator.take())
            while self._next:
                event = self._next.popleft()
                self.events.append(event)
                if look(event):
                    return event
            return None

        return until(found)

    def outcome(self, request: ReadEntries | Transact) -> Outcome:
        self._token += 1
        token = self._token
        self._coordinator.ask(request, token)
        event = self.until(lambda event: isinstance(event, Answered) and event.token == token)
        assert isinstance(event, Answered)
        return event.outcome

    def until_a(self, kind: type[CoordinatorEvent]) -> CoordinatorEvent:
        return self.until(lambda event: isinstance(event, kind))


def put(value: str, *, over: int = 0, key: str = KEY) -> Transact:
    return Transact({key: over}, {key: value.encode()})


def happened(outcome: Outcome) -> int:
    assert isinstance(outcome, Happened)
    return outcome.revision


def posted(member: EtcdMember, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """Ask etcd what no coordinator asks."""
    connection = HTTPConnection(member.address.rpartition("/")[2], timeout=10)
    connection.request("POST", path, msgspec.json.encode(body))
    answer = msgspec.json.decode(connection.getresponse().read(), type=dict[str, Any])
    connection.close()
    return answer


class Crowd:
    """Three appenders, each on a thread of its own, until they are told to stop."""

    def __init__(self, etcd: Etcd) -> None:
        self._access = etcd.access
        members = self._access.addresses
        self._coordinators = [
            EtcdCoordinator(Access((*members[n:], *members[:n])), PREFIX, lambda: None, QUICK)
            for n in range(3)
        ]
        self.appenders = [
            Appender(name, KEY, made) for name, made in zip("ABC", self._coordinators, strict=True)
        ]
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run)
        for each in self.appenders:
            each.begin()
        self._thread.start()

    def _run(self) -> None:
        while not self._ending.wait(0.002):
            for each in self.appenders:
                each.step()

    @property
    def words(self) -> int:
        return sum(len(each.outcomes) for each in self.appenders)

    def until_more(self, words: int = 20) -> None:
        wanted = self.words + words
        until_true(lambda: self.words >= wanted, f"{words} more words")

    def judged(self) -> list[str]:
        """Let everybody come to an end, and hold what they said against what is there."""
        for each in self.appenders:
            each.limit = 0
        until_true(lambda: all(each.is_over for each in self.appenders), "all answered")
        until_true(self._all_see_the_same, "everybody sees the same")
        connection = EtcdConnection(self._access, limit_seconds=2)
        found = connection.call(ReadKeys((KEY,)))
        connection.close()
        assert isinstance(found, HasRead)
        return findings(self.appenders, found.entries[KEY].value)

    def _all_see_the_same(self) -> bool:
        """All that happened, as far as they know, which is in the end."""
        said = [word for each in self.appenders for word, is_in in each.outcomes.items()
                if is_in == "is in"]  # fmt: skip
        seen = [each.picture.get(KEY, b"") for each in self.appenders]
        return len(set(seen)) == 1 and set(said) <= set(seen[0].decode().split())

    def close(self) -> None:
        self._ending.set()
        self._thread.join()
        for each in self._coordinators:
            each.close()


@pytest.fixture
def crowd(three: Etcd) -> Iterator[Crowd]:
    made = Crowd(three)
    yield made
    made.close()


@pytest.mark.usefixtures("etcd_to_kill")
def test_leaders_that_are_killed_change_nothing_of_what_was_said(three: Etcd, crowd: Crowd) -> None:
    crowd.until_more()
    for _ in range(3):
        leader = three.leader()
        leader.kill()
        crowd.until_more()
        leader.start(three.members)
        three.until_ready(leader)
    crowd.until_more()
    assert crowd.judged() == []


def test_members_that_are_frozen_in_turn_change_nothing_of_what_was_said(
    three: Etcd, crowd: Crowd
) -> None:
    crowd.until_more()
    for member in (*three.members, three.leader()):
        member.signal(signal.SIGSTOP)
        crowd.until_more()
        member.signal(signal.SIGCONT)
    assert crowd.judged() == []


@pytest.mark.usefixtures("etcd_to_kill")
def test_all_of_etcd_killed_is_told_and_so_is_its_return(three: Etcd, crowd: Crowd) -> None:
    crowd.until_more()
    for member in three.members:
        member.kill()
    until_true(lambda: all(e.counts["StoreAway"] == 1 for e in crowd.appenders), "all say away")
    until_true(lambda: all(e.counts["Unanswered"] for e in crowd.appenders), "all are told")
    three.start()
    until_true(lambda: all(e.counts["StoreBack"] == 1 for e in crowd.appenders), "all say back")
    crowd.until_more()
    assert crowd.judged() == []


@pytest.mark.usefixtures("etcd_to_kill")
def test_a_member_that_lost_the_others_is_not_believed(three: Etcd) -> None:
    """Without `hasleader` its watch would stay open for ever, and say nothing."""
    alone = three.members[0]
    with coordinator(Access((alone.address,))) as made:
        told = Told(made)
        told.until_a(Snapshot)
        for member in three.members[1:]:
            member.kill()
        told.until_a(StoreAway)
        assert isinstance(told.outcome(put("1")), Unanswered)
        three.members[1].start(three.members)
        told.until_a(StoreBack)


def test_after_a_compaction_that_a_watch_missed_everything_is_read_anew(three: Etcd) -> None:
    leader = three.leader()
    follower, other = (member for member in three.members if member is not leader)
    with (
        coordinator(Access((follower.address, leader.address))) as made,
        coordinator(Access((leader.address, other.address))) as writing,
    ):
        told, writer = Told(made), Told(writing)
        told.until_a(Snapshot)
        over = happened(writer.outcome(put("1")))
        told.until_a(Changes)
        follower.signal(signal.SIGSTOP)
        for value in "234":
            over = happened(writer.outcome(put(value, over=over)))
        posted(leader, "/v3/kv/compaction", {"revision": str(over)})
        snapshot = told.until_a(Snapshot)
        follower.signal(signal.SIGCONT)
        assert isinstance(snapshot, Snapshot)
        assert snapshot.entries[KEY].value == b"4"


def test_a_member_that_is_frozen_costs_one_time_limit(three: Etcd) -> None:
    frozen = three.members[0]
    with coordinator(three.access) as made:
        told = Told(made)
        told.until_a(Snapshot)
        told.outcome(ReadEntries((KEY,)))
        frozen.signal(signal.SIGSTOP)
        outcomes: list[float] = []
        for _ in range(5):
            begun = time.monotonic()
            told.outcome(ReadEntries((KEY,)))
            outcomes.append(time.monotonic() - begun)
        frozen.signal(signal.SIGCONT)
    assert sum(took >= QUICK.try_ms / 1000 for took in outcomes) <= 3  # two, if it led


def test_a_lease_that_somebody_ended_is_replaced(etcd: Etcd) -> None:
    member = etcd.members[0]
    with coordinator(etcd.access) as made:
        told = Told(made)
        key = f"{PREFIX}alive/A"
        made.announce(key, b"1")

        def is_put(event: CoordinatorEvent) -> bool:
            return isinstance(event, Changes) and event.entries.get(key) is not None

        told.until(is_put)
        for lease in posted(member, "/v3/lease/leases", {})["leases"]:
            posted(member, "/v3/lease/revoke", {"ID": lease["ID"]})
        told.until(is_put)


def test_what_a_server_announced_ends_after_it_was_frozen_or_cut_off(three: Etcd) -> None:
    key = f"{PREFIX}alive/A"
    announcer = three.members[0]
    others = Access(tuple(member.address for member in three.members[1:]))
    with coordinator(Access((announcer.address,))) as away, coordinator(others) as made:
        told = Told(made)
        away.announce(key, b"1")
        told.until(lambda event: isinstance(event, Changes) and event.entries.get(key) is not None)
        announcer.signal(signal.SIGSTOP)  # the only way that it has
        told.until(lambda event: isinstance(event, Changes) and event.entries == {key: None})
        announcer.signal(signal.SIGCONT)
        told.until(lambda event: isinstance(event, Changes) and event.entries.get(key) is not None)


# ------------------------------------------------------------------ who may ask


def test_etcd_is_reached_over_tls_if_its_certificate_is_signed_by_whom_we_trust(
    tmp_path: Path,
) -> None:
    member = EtcdMember("m0", tmp_path, scheme="https")
    member.start([member], "--auto-tls")
    certificate = tmp_path / "m0" / "fixtures" / "client" / "cert.pem"
    access = Access((member.address,), ca_file=str(certificate))
    try:
        until_true(certificate.exists, "etcd signed its certificate")
        until_true(lambda: answers(access), "etcd answers over TLS")
        with coordinator(access) as made:
            happened(Told(made).outcome(put("1")))
        assert "certificate verify failed" in why_not(Access((member.address,)))
    finally:
        member.kill()


def test_a_user_proves_who_it_is_and_may_touch_its_own_keys_only(tmp_path: Path) -> None:
    member = EtcdMember("m0", tmp_path)
    member.start([member])
    try:
        until_true(lambda: member.answers, "etcd answers")
        for name in ("root", "mq"):
            posted(member, "/v3/auth/user/add", {"name": name, "password": f"{name}-secret"})
            posted(member, "/v3/auth/role/add", {"name": name})
            posted(member, "/v3/auth/user/grant", {"user": name, "role": name})
        end = PREFIX[:-1] + "0"
        own = {"permType": "READWRITE", "key": b64(PREFIX), "range_end": b64(end)}
        posted(member, "/v3/auth/role/grant", {"name": "mq", "perm": own})
        posted(member, "/v3/auth/enable", {})
        access = Access((member.address,), user="mq", password="mq-secret")
        with coordinator(access) as made:
            told = Told(made)
            told.until_a(Snapshot)
            made.ask(put("1"), 1)
            told.until_a(Changes)
            denied = told.outcome(put("1", key="/elsewhere"))
            assert isinstance(denied, Unanswered)
            assert "permission denied" in denied.why
        assert "mq-secret" not in repr(access)
        wrong = Access((member.address,), user="mq", password="guessed")
        assert "authentication failed" in why_not(wrong)
        assert "user name is empty" in why_not(Access((member.address,)))
    finally:
        member.kill()


def b64(text: str) -> str:
    return msgspec.json.decode(msgspec.json.encode(text.encode()), type=str)


def answers(access: Access) -> bool:
    return why_not(access) == ""


def why_not(access: Access) -> str:
    """What a read fails with; nothing if it does not."""
    connection = EtcdConnection(access, limit_seconds=2)
    try:
        connection.call(ReadKeys((KEY,)))
    except CallFailed as failure:
        return str(failure)
    finally:
        connection.close()
    return ""
