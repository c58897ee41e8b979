"""An app that is killed at random: a parent that forks it, kills it, and forks it again.

    python killed_shop.py SERVER DIRECTORY SEED KILLS

The parent has everything imported and no thread, so that a life costs milliseconds. It says
`killed N` at the end; the last life goes on until it is told to stop.
"""

import os
import random
import select
import signal
import sqlite3
import sys
from pathlib import Path

import msgspec

from oncemq import App, Message


class Order(msgspec.Struct):
    id: int


def shop(server: str, directory: Path) -> App:
    app = App(server, id="shop", state=directory / "state")
    database = directory / "shop.db"

    def connect() -> sqlite3.Connection:
        return sqlite3.connect(database, timeout=30)

    @app.handler("orders", into=connect, limit=20, retries=1, backoff=0.001, crashes=1_000_000)
    def take(order: Order, message: Message, connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO orders (id, message) VALUES (?, ?)", (order.id, message.id))
        if order.id % 10 == 7:
            raise ValueError("sevens are too many")

    @app.handler("orders", name="plain", retries=0, crashes=1_000_000)
    def note(order: Order, message: Message) -> None:
        with open(directory / "plain", "a") as file:
            file.write(f"{message.id}\n")
        if order.id % 10 == 3:
            raise ValueError("and threes")

    @app.handler("orders", name="bills", to="bills", limit=20, retries=0, crashes=1_000_000)
    def bill(order: Order) -> Order:
        if order.id % 10 == 5:
            raise ValueError("no fives either")
        return order

    return app


def live(app: App, directory: Path) -> None:
    """One life, in a child; it never returns."""
    code = 1
    try:
        app.run(ready=(directory / "ready").touch)
        code = 0
    finally:
        os._exit(code)


def pause(seconds: float) -> None:
    select.select((), (), (), seconds)


def main() -> None:
    server, place, seed, kills = sys.argv[1:]
    directory, chance = Path(place), random.Random(int(seed))
    app = shop(server, directory)
    for _ in range(int(kills)):
        child = os.fork()
        if child == 0:
            live(app, directory)
        if chance.random() < 0.8:  # at work; else while it still starts
            while not (directory / "ready").exists():
                pause(0.002)
        pause(chance.uniform(0, 0.12))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status), "it ended by itself"
        (directory / "ready").unlink(missing_ok=True)
    print(f"killed {kills}", flush=True)
    child = os.fork()
    if child == 0:
        live(app, directory)
    signal.signal(signal.SIGTERM, lambda *_: os.kill(child, signal.SIGTERM))
    _, status = os.waitpid(child, 0)
    sys.exit(os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main()
