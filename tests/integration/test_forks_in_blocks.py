"""A fork within `consume(into=…)`: the child touches nothing of the parent's transaction.

A rollback that the child sends goes over the parent's connection; on SQLite it writes into the
parent's file, which is damaged by that.
"""

from pathlib import Path

import pytest

from tests.integration.lone import alone

BLOCKING = """
import os, sqlite3, sys
from oncemq import Client, Forked

address, root, leaves = sys.argv[1:]
database = sqlite3.connect(root + "/effects.db")
database.execute("PRAGMA cache_size=5")  # so that pages are in the file before the commit
database.execute("CREATE TABLE effects (number INTEGER, padding BLOB)")
mq = Client(address, id="ada", state=root + "/ada", timeout=5)
mq.subscribe("orders")
mq.put_many("orders", [b"%d" % number for number in range(60)])

def apply(messages):
    for each in messages:
        values = (int(each.payload), bytes(2000))
        database.execute("INSERT INTO effects VALUES (?, ?)", values)

def worker():
    \"\"\"How the child goes on from within the block.\"\"\"
    if leaves in ("an exit", "the end of the process"):
        raise SystemExit(0)
    if leaves == "a block of its own":
        with mq.consume("orders", wait=0, into=database):
            pass

def block():
    with mq.consume("orders", limit=20, wait=2, into=database) as messages:
        apply(messages[:10])
        child = os.fork()
        if child == 0:
            return worker()
        assert os.waitpid(child, 0)[1] == 0
        apply(messages[10:])

parent = os.getpid()
for _ in range(3):
    try:
        block()
    except (SystemExit, Forked) as error:
        assert os.getpid() != parent, error
        assert database.in_transaction  # the copy of the connection is as it was
        if leaves == "the end of the process":
            raise  # where Python lets go of everything that there is
        os._exit(0)
    assert os.getpid() == parent  # who forgets that it is a child is told
looks = sqlite3.connect(root + "/effects.db")
print(looks.execute("PRAGMA integrity_check").fetchall())
print([number for (number,) in looks.execute("SELECT number FROM effects")] == [*range(60)])
print(looks.execute("SELECT cursor FROM oncemq_inbox").fetchall())
mq.close()
"""
AWAITABLE = (
    BLOCKING.replace("import os, sqlite3, sys", "import asyncio, os, sqlite3, sys")
    .replace("import Client", "import AsyncClient")
    .replace("mq = Client(", "mq = AsyncClient(")
    .replace("    with mq", "    async with mq")
    .replace("def worker", "async def worker")
    .replace("def block", "async def block")
    .replace("return worker()", "return await worker()")
    .replace("    block()", "    await block()")
    .replace("\nmq.", "\nawait mq.")
)
KEPT = ["[('ok',)]", "True", "[(60,)]"]
LEAVES = ["an exit", "the end of the process", "its end", "a block of its own"]


@pytest.mark.parametrize("leaves", LEAVES)
def test_a_child_that_leaves_the_block_leaves_the_parent_s_transaction_alone(
    server: str, tmp_path: Path, leaves: str
) -> None:
    assert alone(BLOCKING, server, str(tmp_path), leaves) == KEPT


@pytest.mark.parametrize("leaves", LEAVES)
def test_so_does_one_that_was_forked_on_an_event_loop(
    server: str, tmp_path: Path, leaves: str
) -> None:
    lines = AWAITABLE.strip().splitlines()
    head, body = lines[:2], lines[2:]
    code = [*head, "async def main():", *(f"    {line}" for line in body), "asyncio.run(main())"]
    assert alone("\n".join(code), server, str(tmp_path), leaves) == KEPT
