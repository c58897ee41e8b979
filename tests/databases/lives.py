"""A subscriber with an inbox that is killed at every step of its life, a life at a time.

Run as a program this is the parent: it imports everything once and forks each life, so that one
costs milliseconds. A life consumes into the database and dies by SIGKILL at the n-th point it
passes, or is killed at a random moment from outside; or it stops there and is woken later.
One JSON command on stdin, JSON lines on stdout, until stdin ends.
"""

import json
import os
import random
import select
import signal
import sqlite3
import sys
import time
import traceback
from typing import Any, NoReturn

import psycopg

# What a client loads when it needs it is loaded here, once for all lives.
import oncemq.client.state.journal
import oncemq.client.state.outbox
import oncemq.databases.with_psycopg
import oncemq.databases.with_sqlite3  # noqa: F401
from oncemq.client.blocking.client import Client
from oncemq.client.shell.tracked import TrackedConnection
from oncemq.client.verbs import inbox_verbs as rules
from oncemq.databases.statements import Ask, Bound, Step, Tell
from oncemq.errors import Fenced

FENCED = 5
Options = dict[str, Any]


class Fate:
    """Where this life ends: at its n-th point, or at a named one once it has messages."""

    def __init__(self, point: int | str, end: int, out: int) -> None:
        self._point = point
        self._end = end
        self._out = out
        self._passed = 0
        self._has_messages = False

    def passes(self, name: str) -> None:
        self._passed += 1
        self._has_messages = self._has_messages or name == "taken"
        if self._point == self._passed or (self._has_messages and self._point == name):
            os.write(self._out, name.encode())
            os.kill(os.getpid(), self._end)


def named(step: Step) -> str:
    match step:
        case Bound():
            return step.value
        case Ask() | Tell():
            return step.sql.split(" ", 1)[0].lower()
        case _:
            return "many"


def watch(fate: Fate) -> None:
    """Points before and after whatever the inbox does with the database, and around settling."""
    tracked, settle, take = TrackedConnection, rules._settle, rules.verbs.take
    before, after = tracked.before, tracked.after

    def passing_before(self: Any, step: Step) -> None:
        fate.passes(f"before {named(step)}")
        before(self, step)

    def passing_after(self: Any, step: Step) -> None:
        after(self, step)
        fate.passes(f"after {named(step)}")

    def settling(*args: Any) -> None:
        fate.passes("before settle")
        settle(*args)
        fate.passes("after settle")

    def taking(*args: Any) -> Any:
        messages = yield from take(*args)
        if messages:
            fate.passes("taken")
        return messages

    rules.verbs.take = taking  # type: ignore[assignment]
    tracked.before, tracked.after = passing_before, passing_after  # type: ignore[method-assign]
    rules._settle = settling


def connect(database: str) -> Any:
    if database.startswith("host="):
        return psycopg.connect(database)
    return sqlite3.connect(database, timeout=30)


def live(options: Options, fate: Fate, *, blocks: int, chance: random.Random) -> None:
    """What a user's program does."""
    watch(fate)
    connection = connect(options["database"])
    if "isolation" in options:
        connection.isolation_level = psycopg.IsolationLevel[options["isolation"]]
    insert = "INSERT INTO effects (number) VALUES (%s)"
    if isinstance(connection, sqlite3.Connection):
        insert = insert.replace("%s", "?")
    where = {"id": "billing", "state": options["state"], "timeout": 20}
    with Client(options["server"], **where) as mq:
        while blocks:
            blocks -= 1
            limit = 1000 if options.get("all") else chance.randint(1, 7)
            with mq.consume("orders", limit=limit, wait=0.05, into=connection) as messages:
                fate.passes("received")
                for place, message in enumerate(messages):
                    if place == 1:
                        fate.passes("effect half written")
                    connection.execute(insert, (int(message.payload),))
                fate.passes("effect written")
            if not messages and options.get("all"):
                break


def child(
    options: Options, point: int | str, end: int, out: int, blocks: int, seed: int
) -> NoReturn:
    code = 1
    try:
        fate = Fate(point, end, out)
        live(options, fate, blocks=blocks, chance=random.Random(seed))
        if end == signal.SIGKILL:  # it never came by there
            os.kill(os.getpid(), end)
        code = 0
    except Fenced as fenced:
        os.write(out, fenced.detail.encode())
        code = FENCED
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def start(
    options: Options, *, point: int | str, end: int, blocks: int, seed: int
) -> tuple[int, int]:
    """A new life: its pid, and a pipe that says where it ended."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        child(options, point, end, write, blocks, seed)
    os.close(write)
    return pid, read


def ended(pid: int, pipe: int, *, after: float | None = None) -> tuple[str, int]:
    """Wait for it; `after`: kill it then. Where it ended, and how (minus the signal)."""
    if after is not None:
        select.select([pipe], (), (), after)
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, os.WUNTRACED)
    if os.WIFSTOPPED(status):
        return os.read(pipe, 4096).decode(), -os.WSTOPSIG(status)
    said = os.read(pipe, 4096).decode()
    os.close(pipe)
    return said, os.waitstatus_to_exitcode(status)


def kills(options: Options, count: int, seed: int, steps: list[str]) -> dict[str, int]:
    """So many lives, each cut short: at a named step, at some point, at a random moment."""
    chance = random.Random(seed)
    where: dict[str, int] = {}
    for _ in range(count):
        how = chance.choice(("step", "step", "point", "moment"))
        points: dict[str, int | str] = {"step": chance.choice(steps), "moment": 0}
        pid, pipe = start(
            options,
            point=points.get(how, chance.randint(1, 40)),
            end=signal.SIGKILL,
            blocks=15,
            seed=chance.randrange(1 << 32),
        )
        moment = chance.uniform(0.004, 0.03) if how == "moment" else None
        name, code = ended(pid, pipe, after=moment)
        if code != -signal.SIGKILL:
            raise SystemExit(f"a life ended by itself with {code}: {name}")
        name = "some moment" if how == "moment" else name
        where[name] = where.get(name, 0) + 1
    return where


def zombie(options: Options, point: str, seed: int) -> list[Any]:
    """One stops at a point, a twin takes over and finishes, the first wakes: what it says."""
    pid, pipe = start(options, point=point, end=signal.SIGSTOP, blocks=1, seed=seed)
    name, code = ended(pid, pipe)
    if (name, code) != (point, -signal.SIGSTOP):
        raise SystemExit(f"it did not stop at {point}: {name} {code}")
    twin = finish({**options, "all": True}, seed)
    os.kill(pid, signal.SIGCONT)
    return [twin, *ended(pid, pipe)]


def finish(options: Options, seed: int) -> int:
    """A life that is left alone until nothing comes; its exit code."""
    pid, pipe = start(options, point=0, end=0, blocks=10**6, seed=seed)
    return ended(pid, pipe)[1]


COMMANDS = {"kills": kills, "zombie": zombie, "finish": finish}


def main() -> None:
    for line in sys.stdin:
        command = json.loads(line)
        begun = time.monotonic()
        answer = COMMANDS[command.pop("do")](**command)
        seconds = time.monotonic() - begun
        print(json.dumps([answer, seconds]), flush=True)


if __name__ == "__main__":
    main()
