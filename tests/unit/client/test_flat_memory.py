"""A client that runs for days holds no more than one that runs for one: everything is counted."""

from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from oncemq.client.state.outbox import LogOptions
from oncemq.client.verbs import keyed_puts, messages, staged_commits
from oncemq.client.verbs.transaction_work import TransactionWork
from oncemq.errors import NotSubscribed, Refused
from oncemq.protocol.names import Micros
from oncemq.session.prefetched import several
from oncemq.wire import batch
from tests.held import sizes

ROUND = 300_000_000  # microseconds: five minutes
ROUNDS = 40
FEW = 20  # instead of limits that it would take days to reach


class Life:
    """A client that does everything there is, on topics of which most never come back."""

    def __init__(self, world: Any, node: Any) -> None:
        self.world, self.node, self.engine = world, node, node.engine
        self.other = world.client()
        self.round = 0

    def run(self, verb: Any) -> Any:
        return self.node.run(verb)

    def subscribe(self, topic: str) -> None:
        self.run(messages.subscribe(self.engine, topic, "new"))

    def unsubscribe(self, topic: str) -> None:
        self.run(messages.unsubscribe(self.engine, topic))

    def give_up(self, verb: Any, turns: int) -> None:
        """Begin a verb and leave it, as a timeout does."""
        with suppress(StopIteration):
            ticket = next(verb)
            for _ in range(turns):
                self.node.turn(1)
                if ticket.done:
                    ticket = verb.send(None)
        verb.close()

    def live(self) -> None:
        """One round, and five minutes."""
        topic = f"t{self.round}"
        self.come_and_go(topic)
        self.many_topics(topic)
        self.refused(topic)
        self.transact()
        self.stage(topic)
        self.listen(topic)
        self.lose_the_line()
        for _ in range(6):
            self.world.server.now += ROUND // 6
            self.world.server.driver.tick(Micros(self.world.server.now))
            self.node.turn(2)
            self.other.turn(2)
        self.round += 1

    def delete(self, topic: str) -> None:
        with suppress(Refused):
            self.other.run(messages.delete_topic(self.other.engine, topic))

    def come_and_go(self, topic: str) -> None:
        """Puts and gets on a topic that is left, deleted, or both."""
        self.subscribe(topic)
        self.give_up(messages.take(self.engine, topic, 10, 20_000), 1)
        self.node.put(topic, b"lasting" * 20)
        self.node.put(topic, b"not", lasting=False)
        self.node.gather(topic, b"gathered")
        self.node.turn()
        got = self.node.get(topic)
        while len(got) < 3:  # the get that was given up brought some
            got += self.node.get(topic)
        self.node.put(topic, *(b"left" for _ in range(30)))
        self.node.get(topic, limit=3)
        self.give_up(messages.take(self.engine, topic, 5, 20_000), 0)
        if self.round % 3:
            self.unsubscribe(topic)
        if self.round % 3 < 2:
            self.delete(topic)
        else:
            self.delete(f"t{self.round - 3}")

    def many_topics(self, topic: str) -> None:
        """Gets from any topic, from several, and by a pattern."""
        names = [f"{topic}.{each}" for each in "abc"]
        self.subscribe(f"{topic}.*")
        for name in names:
            self.node.put(name, b"x", b"y")
        self.node.turn()
        self.node.get(several(names[:2]), limit=1)
        self.give_up(messages.take(self.engine, several(names[1:]), 5, 20_000), 1)
        self.node.get("", limit=2)
        self.give_up(messages.take(self.engine, "", 5, 20_000), 1)
        self.unsubscribe(f"{topic}.*")
        for name in names:
            self.delete(name)

    def refused(self, topic: str) -> None:
        """What nobody wants, and what there is nothing of."""
        with suppress(NotSubscribed):
            self.node.take(f"{topic}-none")
        self.node.put(f"{topic}-discarded", b"x")
        with suppress(Refused):
            self.run(
                messages.receipts(
                    self.engine, self.node.put(f"{topic}-required", b"x", required=True)
                )
            )
        self.node.turn()
        body = batch.encode_payloads([b"x"])
        put = keyed_puts.put_keyed(self.engine, "in", topic, count=1, columns=0, body=body)
        self.run(put)
        self.delete(f"{topic}-discarded")
        self.delete(f"{topic}-required")

    def transact(self) -> None:
        """Transactions that end well, that are given up, and that are left in doubt."""
        for end in ("well", "aborted", "in doubt"):
            self.node.put("in", b"x", b"y")
            work = TransactionWork(self.engine)
            if self.round % 2:
                self.run(work.take("in", 2, 0))
            self.run(work.put(["out"], [batch.Item(b"z")]))
            if end == "well":
                self.run(work.commit())
            elif end == "in doubt":
                self.unheard(work)
            work.abort()
        if self.round % 2:
            for name in ("in", "out"):
                self.node.get(name, limit=1_000)

    def unheard(self, work: TransactionWork) -> None:
        """A commit whose answer is lost, and whose caller waits no longer."""
        self.node.wire.lose = lambda _: True
        self.give_up(work.commit(), 3)
        self.node.wire.lose = lambda _: False

    def leave_in_doubt(self, payload: bytes) -> None:
        """A transaction that only puts; every other one is committed well."""
        work = TransactionWork(self.engine)
        self.run(work.put(["out"], [batch.Item(payload)]))
        if int(payload) % 2:
            self.run(work.commit())
        else:
            self.unheard(work)
        work.abort()

    def stage(self, topic: str) -> None:
        """A stage that is published, and one that is dropped."""
        body = batch.encode_payloads([b"x"])
        for number in (1, 2):
            line = staged_commits.new_line(self.engine, None)
            self.run(staged_commits.stage_put(self.engine, line, count=1, columns=0, body=body))
            token = self.run(staged_commits.stage_close(line))
            if number == 1:
                self.run(staged_commits.commit(self.engine, topic, 1, [("out", token)]))
            else:
                self.run(staged_commits.drop(self.engine, token))

    def listen(self, topic: str) -> None:
        """A listener that comes, is given something, and goes."""
        topics = (f"{topic}-heard", "in")
        self.subscribe(topics[0])
        self.node.put(topics[0], b"x")
        listening = self.engine.listening
        for _ in range(3):
            messages.settle(self.engine, self.run(listening.take(topics, 100, 100)))
        self.give_up(listening.take(topics, 100, 20_000), 2)
        listening.leave(topics)
        self.node.turn()
        self.unsubscribe(topics[0])
        self.delete(topics[0])

    def lose_the_line(self) -> None:
        """The connection breaks while things are under way; at times the server crashes."""
        get = messages.take(self.engine, "in", 10, 20_000)
        with suppress(StopIteration):
            next(get)
            self.node.pump()
        self.node.wire.cut()
        self.node.put("in", b"while away")
        self.node.gather("out", b"while away")
        self.node.turn()
        get.close()
        if self.round % 5 == 0:
            self.world.server.crash()
            self.other.wire.cut()
            self.other.wire.mend()
        self.node.wire.mend()
        self.node.turn(12)
        for name in ("in", "out"):
            self.node.get(name, limit=1_000)

    def counted(self) -> Counter[str]:
        """All that it holds, in memory and on its disk, once it has had an answer to everything."""
        self.node.turn(60)
        assert self.engine.failure is None
        found = sizes(self.engine)
        found["unsent bytes"] = self.engine.outflow.unsent_bytes
        journal = self.engine.state.journal
        if journal is not None:
            for table in ("claims", "cursors", "ended", "untaken"):
                ((rows,),) = journal._rows(f"SELECT COUNT(*) FROM {table}")
                found[f"rows of {table}"] = rows
            outbox = journal.path.parent / "outbox"
            found["files"] = sum(path.is_file() for path in outbox.rglob("*"))
            found["kilobytes"] = _kilobytes(outbox)
        return found


def _kilobytes(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file()) >> 10


@pytest.fixture
def few(monkeypatch) -> None:
    """Limits that are reached in the first hours: what is held grows up to them."""
    for limit in (
        *(
            "session.told_cursors.TOLD_MAX",
            "client.engine.settling.TOLD_MAX",
            "client.news.TOLD_MAX",
        ),
        *(
            "client.state.endings.ENDED_KEPT",
            "client.state.endings.UNTAKEN_KEPT",
            "client.puts.unread_failures.KEPT",
            "client.puts.discards.TOPICS_MAX",
        ),
    ):
        monkeypatch.setattr(f"oncemq.{limit}", FEW)
    monkeypatch.setattr("oncemq.client.state.outbox.ROTATE_BYTES", 20_000)
    options = LogOptions(
        segment_bytes=1 << 20, allocate_bytes=1 << 12, reserve_bytes=1 << 10, checkpoints=False
    )
    monkeypatch.setattr("oncemq.client.state.outbox._OPTIONS", options)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ["shop", None], ids=["with state", "guest"])
@pytest.mark.usefixtures("few")
def test_what_a_client_holds_does_not_grow_with_the_days(world, name: str | None) -> None:
    node = world.client(name)
    node.engine.settings.lanes_kept = FEW
    node.engine.outflow._forgetting.most = FEW
    life = Life(world, node)
    for topic in ("in", "out"):
        life.subscribe(topic)
    counted: list[Counter[str]] = []
    for _ in range(3):
        for _ in range(ROUNDS):
            life.live()
        counted.append(life.counted())
    before, after = counted[1:]
    grown = {path: (before[path], size) for path, size in after.items() if size > before[path] + 12}
    assert grown == {}
    assert len(after) > 30  # it did look


def test_commits_in_doubt_do_not_pile_up_in_a_client_that_never_gets(world) -> None:
    node = world.client("shop")
    reader = world.client()
    reader.run(messages.subscribe(reader.engine, "out", "new"))
    node.turn()
    life = Life(world, node)
    for number in range(30):
        life.leave_in_doubt(f"{number}".encode())
    found = life.counted()
    held = {path: size for path, size in found.items() if "transactions" in path and size > 3}
    assert held == {}
    stored = world.server.stored("out")
    assert len(stored) == len(set(stored)) >= 15
