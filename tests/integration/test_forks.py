"""Forked processes: the child's copy of a client says what it is, and the parent goes on."""

import os
import signal
from pathlib import Path

from oncemq import Client
from tests.integration.lone import alone

NOBODY = "tcp://127.0.0.1:1"

EVERY_VERB = """
import os, sys
from datetime import datetime
from oncemq import Client, Forked
from oncemq.protocol.records import Retention
from oncemq.client.engine.stage_puts import StageToken

mq = Client(sys.argv[1], id="ada", state=sys.argv[2], timeout=5)
mq.subscribe("orders"); mq.put("orders", b"before")
mq.put("orders", b"sent by a thread", wait=False)
stage = mq.stage()
with mq.transaction() as tx:
    tx.put("orders", b"begun")
def transaction():
    with mq.transaction() as tx:
        tx.put("orders", b"CHILD")
verbs = {
    "subscribe": lambda: mq.subscribe("x"), "unsubscribe": lambda: mq.unsubscribe("orders"),
    "unsubscribe_all": mq.unsubscribe_all, "get": mq.get, "get of": lambda: mq.get("orders"),
    "consume": lambda: mq.consume("orders").__enter__(),
    "listen": lambda: next(mq.listen("orders")),
    "read": lambda: mq.read("orders", 0), "topics": mq.topics, "topic": lambda: mq.topic("orders"),
    "create_topic": lambda: mq.create_topic("x"), "delete_topic": lambda: mq.delete_topic("x"),
    "configure_topic": lambda: mq.configure_topic("orders", Retention()),
    "subscriptions": mq.subscriptions, "status": mq.status,
    "put": lambda: mq.put("orders", b"CHILD"),
    "put later": lambda: mq.put("orders", b"CHILD", wait=False), "flush": mq.flush,
    "put_many": lambda: mq.put_many("orders", [b"CHILD"]),
    "put under a key": lambda: mq.put("orders", b"CHILD", idempotency_key="k"),
    "put to all": lambda: mq.put(["orders", "x"], b"CHILD"),
    "transaction": transaction,
    "stage": lambda: stage.put_many([b"CHILD"]), "stage close": stage.close,
    "commit": lambda: mq.commit("me", 1, []), "ends": lambda: mq.ends([("orders", 0)]),
    "read_columns": lambda: list(mq.read_columns("orders", 0, 2)),
    "settle_below": lambda: mq.settle_below([]),
}
child = os.fork()
if child == 0:
    wrong = []
    for name, verb in verbs.items():
        try:
            verb()
            wrong.append((name, "did it"))
        except Forked as error:
            if "make a client in each process" not in str(error):
                wrong.append((name, error))
        except BaseException as error:
            wrong.append((name, error))
    try:
        mq.close()
        with mq:
            pass
    except BaseException as error:
        wrong.append(("close", error))
    print(wrong or "said so", flush=True)
    sys.exit(0)  # at the end, nothing of the parent's is closed either
assert os.waitpid(child, 0)[1] == 0
print(mq.put("orders", b"after").stored, [each.payload for each in mq.get("orders", limit=9)])
mq.close()
"""


def test_every_verb_of_a_forked_client_says_so_and_the_parent_goes_on(
    server: str, tmp_path: Path
) -> None:
    said, went_on = alone(EVERY_VERB, server, str(tmp_path / "ada"))
    assert said == "said so"
    assert went_on == "True [b'before', b'sent by a thread', b'begun', b'after']"


BLOCKS = """
import os, sqlite3, sys
from oncemq import Client, Forked
mq = Client(sys.argv[1], id="ada", state=sys.argv[2], timeout=5)
database = sqlite3.connect(sys.argv[3]) if len(sys.argv) > 3 else None
mq.subscribe("orders"); mq.put_many("orders", [b"1", b"2"])
child = -1
try:
    with mq.consume("orders", limit=1, into=database) as messages:
        child = os.fork()
except Forked as error:
    assert child == 0
    print("not settled in the child", flush=True)
    os._exit(0)
assert child and os.waitpid(child, 0)[1] == 0
print([each.payload for each in messages], [each.payload for each in mq.get("orders", limit=9)])
"""


def test_a_block_that_was_open_is_settled_by_the_parent_alone(server: str, tmp_path: Path) -> None:
    settled = ["not settled in the child", "[b'1'] [b'2']"]
    assert alone(BLOCKS, server, str(tmp_path / "ada")) == settled
    with Client(server) as admin:
        admin.delete_topic("orders")
    database = str(tmp_path / "shop.db")
    assert alone(BLOCKS, server, str(tmp_path / "bob"), database)[0] == settled[0]


ORPHAN = """
import os, signal, sys
from oncemq import Client, Unreachable
mq = Client(sys.argv[1], id="ada", state=sys.argv[2], timeout=0.2)
try:
    mq.put("orders", b"offline")
except Unreachable:
    pass
child = os.fork()
if child == 0:
    for descriptor in (0, 1, 2):
        os.close(descriptor)
    signal.pause()
print(child, flush=True)
os._exit(0)
"""


def test_unsent_puts_of_a_dead_parent_are_taken_over_while_its_children_live(
    server: str, tmp_path: Path
) -> None:
    with Client(server) as reader:
        reader.subscribe("orders")
        child = int(alone(ORPHAN, NOBODY, str(tmp_path / "ada"))[0])
        try:
            with Client(server, id="ada", state=tmp_path / "ada") as ada:
                ada.flush()
        finally:
            os.kill(child, signal.SIGKILL)
        assert [each.payload for each in reader.get("orders", limit=9)] == [b"offline"]


MANY = """
import multiprocessing, os, signal, sys, threading
from oncemq import Client, Forked

shared = Client(sys.argv[1], id="ada", state=sys.argv[2], timeout=5)  # as gunicorn --preload has it
shared.subscribe("orders")
stop = threading.Event()

def busy():  # so that forks happen in the middle of everything
    while not stop.is_set():
        shared.put("orders", b"parent", wait=False).result()

def work(number):
    try:
        shared.put("orders", b"shared")
    except Forked:
        with Client(sys.argv[1], timeout=5) as own:
            own.put("orders", b"own")
        heard = []
        signal.signal(signal.SIGTERM, lambda *_: heard.append(1))
        os.kill(os.getpid(), signal.SIGTERM)
        return sys.exit(0 if heard else 3)
    sys.exit(4)

thread = threading.Thread(target=busy); thread.start()
context = multiprocessing.get_context("fork")
for _ in range(5):
    workers = [context.Process(target=work, args=(n,)) for n in range(2)]
    for each in workers: each.start()
    for each in workers: each.join(20)
    assert [each.exitcode for each in workers] == [0, 0], [each.exitcode for each in workers]
stop.set(); thread.join(); shared.close()
print("well")
"""


def test_workers_forked_from_a_busy_client_have_their_own(server: str, tmp_path: Path) -> None:
    assert alone(MANY, server, str(tmp_path / "ada")) == ["well"]


ASYNC = """
import asyncio, os, sys
from oncemq import AsyncClient, Forked

async def refused(mq, verbs):
    said = 0
    for verb in verbs:
        try: await verb
        except Forked: said += 1
    await mq.close()
    return said

async def main():
    async with AsyncClient(sys.argv[1], id="ada", state=sys.argv[2], timeout=5) as mq:
        await mq.subscribe("orders"); await mq.put("orders", b"before")
        child = os.fork()
        if child == 0:
            verbs = [mq.put("orders", b"CHILD"), mq.put("orders", b"CHILD", wait=False), mq.get(),
                     mq.topics(), mq.flush(), mq.consume("orders").__aenter__(),
                     anext(mq.listen("orders")), mq.put(["orders"], b"CHILD")]
            print(asyncio.run(refused(mq, verbs)), len(verbs), flush=True)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        await mq.put("orders", b"after")
        print([each.payload for each in await mq.get("orders", limit=9)])

asyncio.run(main())
"""


def test_the_same_for_asyncio(server: str, tmp_path: Path) -> None:
    assert alone(ASYNC, server, str(tmp_path / "ada")) == ["8 8", "[b'before', b'after']"]


RELAY = """
import os, sys
from oncemq import Forked
from oncemq.relay.publisher import RelayPublisher
import threading

publisher = RelayPublisher(sys.argv[1], "relay")
child = os.fork()
if child == 0:
    try:
        publisher.wait(threading.Event())
    except Forked:
        publisher.close()
        print("said so", flush=True)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
publisher.close()
"""


def test_the_same_for_a_relay(server: str) -> None:
    assert alone(RELAY, server) == ["said so"]
