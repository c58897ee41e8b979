"""What runs in the processes that tests kill: a parent that forks them, and the roles they play.

Run as a program this is the parent: it imports everything once and forks a child for each role it
is told to start, so that a process costs milliseconds and a thousand kills fit into a test run.
Commands come as JSON lines on stdin, answers leave as JSON lines on stdout; when stdin ends, so
do the children. Children are real processes: SIGKILL leaves of them what is on disk, and no more.

Roles note what happened to them in a file of their own, one `write` a fact: what a killed process
wrote stays written.
"""

import asyncio
import contextlib
import json
import os
import random
import select
import signal
import sqlite3
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from oncemq.assembly import Server
from oncemq.client.aio.client import AsyncClient
from oncemq.client.blocking.client import Client
from oncemq.client.values import Message
from oncemq.errors import StorageUnreadable, Unreachable
from oncemq.protocol.limits import ServerLimits
from oncemq.server import housekeeping
from oncemq.storage.log.log import LogOptions

Options = dict[str, Any]


TORN = "\0"


class Notes:
    """An append-only file of facts, one a line.

    A kill may end a write between two pages of the file, within a fact: the next life ends that
    line with TORN, and begins on its own.
    """

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        size = os.fstat(self._file).st_size
        if size and os.pread(self._file, 1, size - 1) != b"\n":
            os.write(self._file, TORN.encode() + b"\n")

    def write(self, *facts: list[Any]) -> None:
        """Facts that are there together or not at all."""
        os.write(self._file, "".join(json.dumps(fact) + "\n" for fact in facts).encode())


# ------------------------------------------------------------------ the server


def serve(options: Options) -> None:
    """A server; `upkeep_ms` makes it checkpoint and compact more often than by itself."""
    if "upkeep_ms" in options:
        housekeeping.UPKEEP_MICROS = options["upkeep_ms"] * 1000
    server = Server(
        Path(options["data"]),
        options["bind"],
        rules=ServerLimits(**options.get("rules", {})),
        options=LogOptions(**options.get("log", {})),
    )
    signal.signal(signal.SIGTERM, lambda *_: server.stop())
    Notes(options["notes"]).write(["ready", server.address])
    server.run()


# ------------------------------------------------------------------ publishers


def publish(options: Options) -> None:
    """Puts without end: notes what it is about to put, what its outbox holds, what was answered,
    and when, on the clock that all processes of a machine share.

    A number is used once, whatever becomes of it: a life begins after the last number noted.
    """
    notes = Notes(options["notes"])
    topics, number = options["topics"], options["first"]
    with client_of(options) as client:
        while True:
            choice = random.Random(number)
            topic, count = choice.choice(topics), choice.choice((1, 1, 2, 5))
            payloads = [f"{client.id}:{number + place}".encode() for place in range(count)]
            notes.write(["about", topic, number, count])
            if choice.random() < 0.5:  # with keys a batch leaves as it is, recorded on return
                pending = client.put_many(topic, payloads, keys=payloads, wait=False)
                notes.write(["recorded", topic, number, count])
            else:  # gathered with its neighbours, recorded a moment later
                pending = client.put_many(topic, payloads, wait=False)
            if choice.random() < 0.8:  # else several are under way at once
                receipt = pending.result()[0]  # type: ignore[union-attr]
                notes.write(["stored", topic, number, count, receipt.offset, time.monotonic()])
            number += count


def flush(options: Options) -> None:
    """Sends what earlier lives left in the outbox, and ends."""
    with client_of(options) as client:
        client.flush()


def put_one(options: Options) -> None:
    """One put, then waits to be killed. With keys a batch is recorded when put_many returns."""
    notes = Notes(options["notes"])
    topic, payload = options["topic"], options["payload"].encode()

    async def put_async() -> None:
        async with async_client_of(options) as client:
            recorded = await client.put_many(topic, [payload], keys=[None], wait=False)
            notes.write(["recorded"])
            receipt = (await recorded)[0]  # type: ignore[misc]
            notes.write(["stored", receipt.offset])

    if options.get("asyncio"):
        asyncio.run(put_async())
    else:
        with client_of(options) as client:
            pending = client.put_many(topic, [payload], keys=[None], wait=False)
            notes.write(["recorded"])
            notes.write(["stored", pending.result()[0].offset])  # type: ignore[union-attr]
    forever()


def put_offline(options: Options) -> None:
    """Puts that nobody answers: told so, it notes that they are unreachable, and is killed."""
    notes = Notes(options["notes"])

    def wait_for_word() -> None:
        notes.write(["met"])
        while not Path(options["go"]).exists():
            select.select((), (), (), 0.002)

    async def put_async() -> None:
        if not options["met"]:
            wait_for_word()
        client = async_client_of(options)
        if options["met"]:
            await client.status()
            wait_for_word()
        for number in range(options["count"]):
            await client.put(options["topic"], b"%d" % number, wait=False)
        try:
            await client.flush(timeout=0.3)
        except Unreachable:
            notes.write(["unreachable"])
        forever()

    if options.get("asyncio"):
        asyncio.run(put_async())
    if not options["met"]:
        wait_for_word()
    client = client_of(options)
    if options["met"]:
        client.status()
        wait_for_word()
    for number in range(options["count"]):
        client.put(options["topic"], b"%d" % number, wait=False)
    try:
        client.flush(timeout=0.3)
    except Unreachable:
        notes.write(["unreachable"])
    forever()


# ------------------------------------------------------------------ subscribers


@contextlib.contextmanager
def told(options: Options) -> Iterator[None]:
    """Where disks are made to fail, the server may say that it could not read: ask again."""
    try:
        yield
    except StorageUnreadable:
        if not options.get("asks_again"):
            raise


def get(options: Options) -> None:
    """Gets without end. What get() gave is noted after it returned, so a kill in between shows:
    the cursor in the client's state, noted at the start, is then ahead of the notes."""
    notes = Notes(options["notes"])
    notes.write(["start", cursors_in(options["state"])])
    with client_of(options) as client:
        while True:
            with told(options):
                messages = client.get(options.get("topic"), limit=options["limit"], wait=0.5)
                if messages:
                    notes.write(*(["got", m.topic, m.offset, m.payload.decode()] for m in messages))


def get_one(options: Options) -> None:
    """One get, then waits to be killed: nobody tells the server what was settled."""
    notes = Notes(options["notes"])

    async def get_async() -> None:
        client = async_client_of(options)
        (message,) = await client.get(options["topic"], wait=20)
        notes.write(["got", message.offset, message.payload.decode()])
        forever()

    if options.get("asyncio"):
        asyncio.run(get_async())
    client = client_of(options)
    (message,) = client.get(options["topic"], wait=20)
    notes.write(["got", message.offset, message.payload.decode()])
    forever()


@contextlib.contextmanager
def applying(options: Options) -> Iterator[Callable[[Sequence[Message]], None]]:
    """Applies messages to a table, all of them in one transaction."""
    with contextlib.closing(sqlite3.connect(options["effects"], isolation_level=None)) as table:
        table.execute("PRAGMA synchronous=OFF")  # processes are killed here, not the machine
        table.execute(
            "CREATE TABLE IF NOT EXISTS effects "
            "(place INTEGER PRIMARY KEY AUTOINCREMENT, life INTEGER, offset INTEGER, payload TEXT)"
        )
        life = table.execute("SELECT ifnull(max(life), 0) + 1 FROM effects").fetchone()[0]

        def apply(messages: Sequence[Message]) -> None:
            table.execute("BEGIN")
            table.executemany(
                "INSERT INTO effects (life, offset, payload) VALUES (?, ?, ?)",
                [(life, m.offset, m.payload.decode()) for m in messages],
            )
            table.execute("COMMIT")

        yield apply


def consume(options: Options) -> None:
    """Applies messages a batch at a time, and settles after the commit."""
    with applying(options) as apply, client_of(options) as client:
        while True:
            with (
                told(options),
                client.consume(options["topic"], limit=options["limit"], wait=0.5) as messages,
            ):
                apply(messages)


def listen(options: Options) -> None:
    """Applies messages one at a time as they are pushed, each settled by asking for the next."""
    with applying(options) as apply, client_of(options) as client:
        while True:
            with told(options):
                for message in client.listen(options["topic"]):
                    apply([message])


def transform(options: Options) -> None:
    """Consume, transform, put: each message of `in` to `out`, and to `even` or `odd`."""
    notes = Notes(options["notes"])
    with client_of(options) as client:
        client.subscribe("in", start="earliest")
        while True:
            with client.transaction() as tx:
                messages = tx.get("in", limit=random.choice((1, 7, 60)), wait=0.2)
                for message in messages:
                    place = message.offset
                    tx.put("out", b"%d:" % place + message.payload)
                    tx.put(("even", "odd")[place % 2], message.payload)
            if messages:
                notes.write(["reached", messages[-1].offset])


def hold(options: Options) -> None:
    """A client that stays: says when it is in, and what happens to it while it waits."""
    notes = Notes(options["notes"])
    with client_of(options) as client:
        client.subscribe(options["topic"])
        notes.write(["in"])
        try:
            client.get(options["topic"], wait=50)
        except Exception as error:
            notes.write(["met", type(error).__name__, str(error)])
        forever()


# ------------------------------------------------------------------ the same for all


def client_of(options: Options) -> Client:
    return Client(options["server"], id=options["id"], state=options["state"], timeout=60)


def async_client_of(options: Options) -> AsyncClient:
    return AsyncClient(options["server"], id=options["id"], state=options["state"], timeout=60)


def cursors_in(state: str) -> dict[str, int]:
    """The cursors a client's state holds, without opening it as a client."""
    path = Path(state) / "state.db"
    if not path.exists():
        return {}
    with contextlib.closing(sqlite3.connect(path, timeout=10)) as database:
        try:
            return dict(database.execute("SELECT topic, cursor FROM cursors").fetchall())
        except sqlite3.OperationalError:
            return {}  # killed before the tables were made


def forever() -> NoReturn:
    while True:
        signal.pause()


PLAYED = (
    serve, publish, flush, put_one, put_offline, get, get_one, consume, listen, hold, transform,
)  # fmt: skip
ROLES: dict[str, Callable[[Options], None]] = {role.__name__: role for role in PLAYED}


# ------------------------------------------------------------------ the parent


def start(role: str, options: Options, errors: str) -> int:
    """Fork a child that plays a role; what goes wrong in it is in the file `errors`."""
    pid = os.fork()
    if pid:
        return pid
    try:
        for stream in (0, 1):
            os.dup2(os.open(os.devnull, os.O_RDWR), stream)
        os.dup2(os.open(errors, os.O_WRONLY | os.O_APPEND | os.O_CREAT), 2)
        ROLES[role](options)
        os._exit(0)
    except BaseException:
        os.write(2, traceback.format_exc().encode())
        os._exit(1)


class Children:
    """Who was started, and how those that are gone ended."""

    def __init__(self) -> None:
        self.alive: set[int] = set()
        self._codes: dict[int, int] = {}

    def ended(self, pid: int, *, block: bool = False) -> int | None:
        """The exit code of a child that is gone (negative: the signal that ended it)."""
        if pid in self.alive:
            found, status = os.waitpid(pid, 0 if block else os.WNOHANG)
            if found:
                self.alive.discard(pid)
                self._codes[pid] = os.waitstatus_to_exitcode(status)
        return self._codes.get(pid)

    def signal(self, pids: list[int], number: int) -> list[int | None]:
        """Send it to all, then wait for each."""
        for pid in pids:
            if self.ended(pid) is None:
                os.kill(pid, number)
        return [self.ended(pid, block=True) for pid in pids]

    def wait(self, pid: int, seconds: float) -> int | None:
        """The exit code, if it ends in time."""
        deadline = time.monotonic() + seconds
        while (code := self.ended(pid)) is None and time.monotonic() < deadline:
            select.select((), (), (), 0.002)
        return code


def answer(children: Children, command: Options) -> Any:
    match command["do"]:
        case "start":
            pid = start(command["role"], command["options"], command["errors"])
            children.alive.add(pid)
            return pid
        case "signal":
            return children.signal(command["pids"], command["signal"])
        case "poll":
            return [children.ended(pid) for pid in command["pids"]]
        case "wait":
            return children.wait(command["pids"][0], command["seconds"])
        case unknown:
            raise AssertionError(unknown)


def commands() -> Iterator[Options]:
    for line in sys.stdin:
        yield json.loads(line)


def main() -> None:
    children = Children()
    try:
        for command in commands():
            sys.stdout.write(json.dumps(answer(children, command)) + "\n")
            sys.stdout.flush()
    finally:
        for pid in children.alive:
            os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
