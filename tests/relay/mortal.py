"""Relays that die: a process that forks one after another, each killed at a step of its own.

A step is a statement to the database (before it, and after it), a request as it leaves and a
reply as it comes. Commands and answers are lines of JSON.
"""

import json
import os
import signal
import sys
import time
import traceback
from contextlib import suppress
from typing import Any

from oncemq.databases.blocking.work import run
from oncemq.databases.connections import Connection
from oncemq.databases.statements import Step, Work
from oncemq.errors import Fenced
from oncemq.relay import opening, relay, session, tables
from oncemq.relay.database import RelayDatabase
from oncemq.relay.publisher import RelayPublisher
from oncemq.relay.topic_relay import TopicRelay

for name in ("psycopg", "sqlite3"):  # so that a life begins at once
    __import__(name)


class Fate:
    """Counts steps; the last one is SIGKILL."""

    def __init__(self, steps: int) -> None:
        self._left = steps

    def step(self) -> None:
        self._left -= 1
        if self._left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)


def live(place: str, server: str, steps: int, *, locked: bool, own_id: bool) -> None:
    """Be a relay until fate strikes. Not `locked`: whoever else relays, this one does too."""
    fate = Fate(steps)

    class MortalConnection:
        def __init__(self, connection: Connection) -> None:
            self._connection = connection

        def perform(self, step: Step) -> Any:
            fate.step()
            answer = self._connection.perform(step)
            fate.step()
            return answer

    class MortalDesk(RelayDatabase):
        def run(self, work: Work[Any]) -> Any:
            return run(MortalConnection(self._connection), work)  # type: ignore[arg-type]

        def lock(self) -> bool:
            return super().lock() if locked else True

    class MortalCourier(RelayPublisher):
        def _begin(self, errand: TopicRelay, make: Any) -> None:
            def send() -> Any:
                fate.step()
                return make()

            super()._begin(errand, send)

        def _answered(self, errand: TopicRelay, reply: Any) -> None:
            fate.step()
            super()._answered(errand, reply)

    relay.Desk, relay.Courier = MortalDesk, MortalCourier  # type: ignore[misc]
    relay.FIRST_PAUSE = relay.TURN_SECONDS = 0.005
    tables.ROWS_MAX = 3
    session.LOOK_SECONDS = 0.01  # whoever has nothing to do comes to its end, too
    name = f"relay {os.getpid()}" if own_id else None
    while True:
        with suppress(Fenced):  # without the lock, relays of one id fence each other
            relay.Relay(opening.connector(place), server=server, id=name).run()


def begin(command: dict[str, Any]) -> int:
    """A child with a life of its own."""
    child = os.fork()
    if child:
        return child
    try:
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(null, 1)
        live(**command)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


def end(child: int, deadline: float) -> int:
    """How it ended; killed when its time is over."""
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.001)


def main() -> None:
    for line in sys.stdin:
        children = [begin(command) for command in json.loads(line)]
        deadline = time.monotonic() + 0.7
        print(json.dumps([end(child, deadline) for child in children]), flush=True)


if __name__ == "__main__":
    main()
