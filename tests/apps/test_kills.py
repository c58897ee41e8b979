"""An app that is killed with -9 at random under load: rows are messages, letters are there once."""

import itertools
import json
import os
import signal
import sqlite3
import subprocess
import sys
import zlib
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest

from oncemq import Client
from oncemq.apps import dead_letter_admin
from oncemq.protocol.records import Retention
from oncemq.testing import Chaos
from simulator import proof
from tests.e2e.processes import until

SCRIPT = Path(__file__).with_name("killed_shop.py")
KILLS = 50
# handler: the last digit of the orders that it gives up on
HANDLERS = {"shop.orders": 7, "shop.plain": 3, "shop.bills": 5}

Connect = Callable[..., Client]


def rows(path: Path) -> list[tuple[int, str]]:
    connection = sqlite3.connect(path)
    try:
        return connection.execute("SELECT id, message FROM orders ORDER BY place").fetchall()
    finally:
        connection.close()


def cursors(mq: Client) -> list[int]:
    return [each.cursor for each in mq.subscriptions("orders")]


def load(mq: Client, shop: "subprocess.Popen[bytes]", chaos: Chaos) -> int:
    """Put as long as the app is killed, never far ahead of it; how many there were."""
    assert shop.stdout is not None
    os.set_blocking(shop.stdout.fileno(), False)
    for count in itertools.count():
        if shop.stdout.read(1) or shop.poll() is not None:
            return count
        mq.put("orders", b'{"id": %d}' % count)
        if count % 50 == 49:
            chaos.crash()
        if count % 50 == 49:
            until(lambda end=count: min(cursors(mq)) > end - 200, 60)
    raise AssertionError


def billed(mq: Client) -> list[int]:
    end = mq.topic("bills").topic.end
    found: list[int] = []
    while len(found) < end:
        found += [json.loads(each.payload)["id"] for each in mq.read("bills", len(found))]
    return found


def run_and_kill(server: str, directory: Path, mq: Client, chaos: Chaos) -> int:
    """An app under load through all its lives; how many messages there were."""
    seed = os.environ.get("ONCEMQ_SEED", str(zlib.crc32(b"kills")))
    print(f"seed {seed}")
    command = [sys.executable, str(SCRIPT), server, str(directory), seed, str(KILLS)]
    with open(directory / "errors", "w+") as errors:
        shop = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, start_new_session=True
        )
        try:
            count = load(mq, shop, chaos)
            until(lambda: min(cursors(mq)) == count, 120)
            shop.send_signal(signal.SIGTERM)
            assert shop.wait(60) == 0, errors.read()
        finally:
            with suppress(ProcessLookupError):
                os.killpg(shop.pid, signal.SIGKILL)  # the parent, and the life it has forked
            shop.communicate()
    return count


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_rows_are_messages_and_each_letter_is_there_once(
    oncemq_server: str, oncemq_client: Connect, oncemq_chaos: Chaos, tmp_path: Path
) -> None:
    with closing(sqlite3.connect(tmp_path / "shop.db")) as connection, connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE orders (place INTEGER PRIMARY KEY, id, message)")
    mq = oncemq_client()
    mq.create_topic("bills", Retention(forever=True))
    for client in HANDLERS:  # subscribed before the first life, not by it
        state = tmp_path / "state" / client
        with Client(oncemq_server, id=client, state=state) as handler:
            handler.subscribe("orders")

    with proof.campaign("kills-app") as tally:
        count = run_and_kill(oncemq_server, tmp_path, mq, oncemq_chaos)
        tally.add("kills", KILLS)
        tally.add("messages", len(HANDLERS) * count)
        tally.fault("kill of an app", KILLS)

        every = [f"orders@{n}" for n in range(count)]
        assert rows(tmp_path / "shop.db") == [(n, every[n]) for n in range(count) if n % 10 != 7]
        assert billed(mq) == [n for n in range(count) if n % 10 != 5]
        buried: dict[str, list[str]] = {client: [] for client in HANDLERS}
        for letter in dead_letter_admin.open_letters(mq, "orders.dead"):
            buried[letter.handler].append(letter.origin)
        assert buried == {client: every[digit::10] for client, digit in HANDLERS.items()}
        noted = (tmp_path / "plain").read_text().split()
        assert list(dict.fromkeys(noted)) == every, "at least once, in order"
        again = len(noted) - count
        assert again <= KILLS, "after a crash only the message in hand comes again"
    assert count > KILLS
    print(f"{KILLS} kills, {count} messages, {again} handled again by the plain handler")
