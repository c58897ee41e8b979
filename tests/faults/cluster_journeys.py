"""What users do while leaders are killed in turn: each journey is a generator.

Where it yields, the leader dies or freezes; it goes on once another leads. What it began before is
under way meanwhile, in blocks and threads of its own. It fails as a test does, with an assert.
"""

import asyncio
import json
import sqlite3
import subprocess
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

import oncemq
from oncemq import App, AsyncClient, Client
from oncemq.errors import Unwanted
from oncemq.protocol.records import Retention
from tests.e2e.conftest import ONCE, clean_environment
from tests.e2e.processes import until

PATIENCE = 40.0  # a failover, on a machine that others use
KEPT = Retention(forever=True)


@dataclass(frozen=True)
class Stage:
    """Where a journey takes place."""

    servers: Sequence[str]
    home: Path

    def client(self, name: str = "") -> Client:
        if not name:
            return Client(self.servers, timeout=PATIENCE)
        return Client(self.servers, id=name, state=self.home / name, timeout=PATIENCE)


Journey = Callable[[Stage], Generator[None]]
JOURNEYS: dict[str, Journey] = {}


def journey(walked: Journey) -> Journey:
    JOURNEYS[walked.__name__] = walked
    return walked


@contextmanager
def beside(work: Callable[[], object]) -> Iterator[None]:
    """A thread for the block; what it raises, the block raises in the end."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    yield
    thread.join(PATIENCE)
    assert not thread.is_alive(), "it does not end"
    if raised:
        raise raised[0]


def all_of(client: Client, topic: str) -> list[bytes]:
    """The payloads that a topic keeps."""
    found: list[bytes] = []
    while messages := client.read(topic, len(found), limit=1_000):
        found += [message.payload for message in messages]
    return found


# ------------------------------------------------------------------ put and get


@journey
def puts_that_are_under_way(stage: Stage) -> Generator[None]:
    with stage.client("putting") as mq:
        mq.create_topic("putting", KEPT)
        waited: list[int | None] = []
        over = threading.Event()

        def put() -> None:
            while not over.is_set():
                waited.append(mq.put("putting", b"%d" % len(waited)).offset)

        with beside(put):
            yield
            yield
            over.set()
        assert waited == list(range(len(waited)))
        assert all_of(mq, "putting") == [b"%d" % number for number in range(len(waited))]


@journey
def puts_of_an_outbox(stage: Stage) -> Generator[None]:
    with stage.client("later") as mq:
        mq.create_topic("later", KEPT)
        for begun in range(0, 300, 100):
            for number in range(begun, begun + 100):
                mq.put("later", b"%d" % number, wait=False)
            if begun < 200:
                yield
        mq.flush()
        assert all_of(mq, "later") == [b"%d" % number for number in range(300)]


@journey
def a_long_poll(stage: Stage) -> Generator[None]:
    with stage.client("patient") as mq, stage.client() as other:
        mq.subscribe("polled")
        for number in range(2):
            got: Queue[bytes] = Queue()

            def get(got: Queue[bytes] = got) -> None:
                for message in mq.get("polled", wait=PATIENCE):
                    got.put(message.payload)

            with beside(get):
                yield
                other.put("polled", b"%d" % number)
                assert got.get(timeout=PATIENCE) == b"%d" % number


@journey
def a_subscription_of_an_anonymous_client(stage: Stage) -> Generator[None]:
    with stage.client() as mq, stage.client() as other:
        mq.subscribe("guests")
        other.put("guests", b"before")
        yield
        assert [m.payload for m in mq.get("guests", wait=PATIENCE)] == [b"before"]
        yield
        other.put("guests", b"after")
        assert [m.payload for m in mq.get("guests", wait=PATIENCE)] == [b"after"]


@journey
def patterns(stage: Stage) -> Generator[None]:
    with stage.client("watcher") as mq, stage.client() as other:
        mq.subscribe("press.*")
        for topic in ("press.tea", "press.cake"):
            yield
            other.put(topic, topic.encode())
            assert [m.payload for m in mq.get(topic, wait=PATIENCE)] == [topic.encode()]


@journey
def leases(stage: Stage) -> Generator[None]:
    with stage.client("tenant") as mq, stage.client() as other:
        mq.subscribe("flats")
        mq.lease(120, "a flat")
        for _ in range(2):
            yield
            (there,) = other.subscriptions("flats", "tenant")
            assert there.client == "tenant"
        mq.lease(0)


@journey
def what_was_refused(stage: Stage) -> Generator[None]:
    with stage.client("refused") as mq, stage.client() as other:
        for number in range(2):
            with pytest.raises(Unwanted):
                mq.put("unwanted", b"refused %d" % number, required=True)
            yield
            assert "unwanted" not in {topic.name for topic in other.topics()}
        mq.subscribe("unwanted")
        assert mq.put("unwanted", b"stored").offset == 0
        assert [m.payload for m in mq.get("unwanted", limit=9)] == [b"stored"]


@journey
def idempotency_keys(stage: Stage) -> Generator[None]:
    with stage.client() as mq:
        mq.create_topic("keyed", KEPT)
        first = mq.put("keyed", b"once", idempotency_key="k")
        for _ in range(2):
            yield
            again = mq.put("keyed", b"once", idempotency_key="k")
            assert (again.offset, again.duplicate) == (first.offset, True)
        assert all_of(mq, "keyed") == [b"once"]


# ------------------------------------------------------------------ listeners


@journey
def a_listener(stage: Stage) -> Generator[None]:
    heard: Queue[bytes] = Queue()
    with stage.client("ear") as mq, stage.client() as other:
        mq.subscribe("said")

        def listen() -> None:
            for message in mq.listen("said"):
                heard.put(message.payload)
                if message.payload == b"2":
                    return

        with beside(listen):
            for number in range(3):
                other.put("said", b"%d" % number)
                assert heard.get(timeout=PATIENCE) == b"%d" % number
                is_fed(other)
                if number < 2:
                    yield


@journey
def an_asyncio_listener(stage: Stage) -> Generator[None]:
    heard: Queue[bytes] = Queue()

    async def listen() -> None:
        home = stage.home / "aear"
        async with AsyncClient(stage.servers, id="aear", state=home, timeout=PATIENCE) as mq:
            await mq.subscribe("told")
            heard.put(b"")
            async for message in mq.listen("told"):
                heard.put(message.payload)
                if message.payload == b"2":
                    return

    with stage.client() as other, beside(lambda: asyncio.run(listen())):
        heard.get(timeout=PATIENCE)
        for number in range(3):
            other.put("told", b"%d" % number)
            assert heard.get(timeout=PATIENCE) == b"%d" % number
            if number < 2:
                yield


def is_fed(client: Client) -> None:
    """Somebody hears the feed of who leads, which is at another address with each leader."""

    def subjects() -> bool:
        return int(client.status()["feed_subjects"]) > 0

    until(subjects, PATIENCE, what="the leader's feed is heard")


# ------------------------------------------------------------------ effects together


@journey
def transactions(stage: Stage) -> Generator[None]:
    with stage.client("biller") as mq, stage.client() as other:
        for topic in ("wanted", "bills"):
            mq.create_topic(topic, KEPT)
            mq.subscribe(topic)
        for number in range(3):
            other.put("wanted", b"%d" % number)
            with mq.transaction() as work:
                for message in work.get("wanted", limit=10, wait=PATIENCE):
                    work.put("bills", b"for " + message.payload)
                if number < 2:
                    yield  # what was staged was staged with another leader
        assert all_of(mq, "bills") == [b"for 0", b"for 1", b"for 2"]
        assert not mq.get("wanted", limit=10)


@journey
def stages(stage: Stage) -> Generator[None]:
    with stage.client("loader") as mq:
        mq.create_topic("loaded", KEPT)
        for number in range(2):
            staged = mq.stage()
            staged.put_many([b"%d.0" % number, b"%d.1" % number])
            yield
            staged.put_many([b"%d.2" % number])
            target = [("loaded", staged.close())]
            assert not mq.commit("load", number + 1, target).already
            assert mq.commit("load", number + 1, target).already
        assert all_of(mq, "loaded") == [b"%d.%d" % (n, m) for n in range(2) for m in range(3)]


@journey
def an_inbox(stage: Stage) -> Generator[None]:
    with (
        stage.client("inbox") as mq,
        stage.client() as other,
        closing(sqlite3.connect(stage.home / "inbox.db", check_same_thread=False)) as database,
    ):
        database.execute("CREATE TABLE seen (payload BLOB)")
        database.commit()
        mq.subscribe("inbox")
        for number in range(3):
            other.put("inbox", b"%d" % number)
            with mq.consume("inbox", wait=PATIENCE, into=database) as messages:
                if number < 2:
                    yield
                database.executemany(
                    "INSERT INTO seen VALUES (?)", [(m.payload,) for m in messages]
                )
        rows = [payload for (payload,) in database.execute("SELECT payload FROM seen")]
        assert rows == [b"0", b"1", b"2"]


@journey
def a_relay(stage: Stage) -> Generator[None]:
    """`once relay` itself: a process that keeps nothing on its machine."""
    path = stage.home / "shop.db"
    with closing(sqlite3.connect(path, check_same_thread=False)) as database, stage.client() as mq:
        database.execute("PRAGMA journal_mode=WAL")
        oncemq.outbox(database).create()
        mq.create_topic("shipped", KEPT)
        environment = clean_environment(stage.home, ONCEMQ_SERVER=",".join(stage.servers))
        relay = subprocess.Popen(
            [*ONCE, "relay", str(path)], env=environment, stderr=subprocess.PIPE, text=True
        )
        try:
            for begun in range(0, 60, 20):
                for number in range(begun, begun + 20):
                    with database:
                        oncemq.outbox(database).put("shipped", b"%d" % number)
                if begun < 40:
                    yield
            wanted = [b"%d" % number for number in range(60)]
            until(lambda: len(all_of(mq, "shipped")) >= 60, PATIENCE, what="all is published")
            assert all_of(mq, "shipped") == wanted
        finally:
            relay.terminate()
            said = relay.communicate(timeout=PATIENCE)[1]
        assert relay.returncode == 0, said


@journey
def an_app(stage: Stage) -> Generator[None]:
    path = stage.home / "app.db"
    with closing(sqlite3.connect(path, check_same_thread=False)) as database:
        database.execute("CREATE TABLE orders (text TEXT)")
    app = App(stage.servers, id="app", state=stage.home / "app", timeout=PATIENCE)

    @app.handler("ordered", into=f"sqlite:///{path}", start="earliest")
    def take(order: str, connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO orders VALUES (?)", (order,))

    def rows() -> list[str]:
        with closing(sqlite3.connect(path)) as database:
            return [text for (text,) in database.execute("SELECT text FROM orders")]

    with stage.client() as mq, app.running():
        for number in range(3):
            mq.put("ordered", b"%d" % number)
            if number < 2:
                yield
        until(lambda: len(rows()) >= 3, PATIENCE, what="all is handled")
        assert rows() == ["0", "1", "2"]


@journey
def an_audit(stage: Stage) -> Generator[None]:
    """`once audit` of what one client put and another one got, each with another leader."""
    journal = stage.home / "journal"
    with stage.client("auditing") as mq, stage.client("audited") as other:
        mq.create_topic("audited", KEPT)
        other.subscribe("audited")
        for number in range(3):
            mq.put("audited", b"%d" % number)
            (message,) = other.get("audited", wait=PATIENCE)
            with journal.open("a") as lines:
                lines.write(json.dumps({"id": message.id}) + "\n")
            if number < 2:
                yield
    environment = clean_environment(stage.home, ONCEMQ_SERVER=",".join(stage.servers))
    command: list[Any] = [*ONCE, "audit", "audited", "--journal", journal, "--timeout", "30"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
