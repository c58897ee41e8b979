"""Clients that nobody closed: the process goes on, and ends, and what was recorded is there."""

from pathlib import Path

import pytest

from oncemq import Client
from tests.integration.lone import alone

NOBODY = "tcp://127.0.0.1:1"

COLLECTED = """
import gc, sys
from oncemq import Client
client = Client(sys.argv[1], timeout=5)
client.subscribe("orders")
client.put("orders", b"1")
if sys.argv[2] == "listening":
    next(client.listen("orders"))
if sys.argv[2] == "sending":
    client.put("orders", b"2", wait=False).result()
client.itself = client  # only the collector finds it
del client
gc.collect()
print("went on")
"""


@pytest.mark.parametrize("doing", ["nothing", "listening", "sending"])
def test_a_client_that_is_collected_does_not_hang_the_process(server: str, doing: str) -> None:
    assert alone(COLLECTED, server, doing) == ["went on"]


REFUSED = """
import gc, sys
from oncemq import AsyncClient, Client, ConfigError
for kind in (Client, AsyncClient):
    for options in ({}, {"id": "ada", "state": sys.argv[1]}):
        try:
            kind("foo", **options)
        except ConfigError as error:
            print(error)
gc.collect()
"""


def test_an_address_that_is_none_is_refused_in_words(tmp_path: Path) -> None:
    lines = alone(REFUSED, str(tmp_path / "ada"))
    assert len(lines) == 4
    assert all("'tcp://foo'" in line and "looks like tcp://" in line for line in lines)


ENDED = """
import sys
from oncemq import Client
client = Client(sys.argv[1], id="ada", state=sys.argv[2])
for number in range(3):
    client.put("orders", b"%d" % number, wait=False)
"""


def test_puts_of_a_process_that_ended_without_a_close_are_sent_by_the_next(
    server: str, tmp_path: Path
) -> None:
    with Client(server) as reader:
        reader.subscribe("orders")
        alone(ENDED, NOBODY, str(tmp_path / "ada"))
        with Client(server, id="ada", state=tmp_path / "ada") as ada:
            ada.flush()
        assert [each.payload for each in reader.get("orders", limit=9)] == [b"0", b"1", b"2"]


ASYNC = """
import asyncio, gc, sys
from oncemq import AsyncClient
from oncemq.client.shell.forks import _LIVING

async def main():
    client = AsyncClient(sys.argv[1], id="ada", state=sys.argv[2], timeout=5)
    await client.subscribe("orders")
    client.itself = client
    await client.put("orders", b"unsent", wait=False)
    del client
    gc.collect()
    while _LIVING:  # until its put is sent
        await asyncio.sleep(0.01)
        gc.collect()
    print("collected in its loop")
    other = AsyncClient(sys.argv[1], timeout=5)
    await other.subscribe("orders")
    return other

left = asyncio.run(main())
print("left open")
"""


def test_an_asyncio_client_that_nobody_closed_ends_when_its_puts_are_sent(
    server: str, tmp_path: Path
) -> None:
    with Client(server) as reader:
        reader.subscribe("orders")
        lines = alone(ASYNC, server, str(tmp_path / "ada"))
        assert lines == ["collected in its loop", "left open"]
        assert [each.payload for each in reader.get("orders", limit=9)] == [b"unsent"]


WARNED = """
import gc, logging, sys, warnings
from oncemq import Client
logging.basicConfig(stream=sys.stdout, format="%(name)s %(message)s")
logging.captureWarnings(True)
warnings.simplefilter("always", ResourceWarning)
client = Client(sys.argv[1])
client.put("orders", b"1", wait=False)
"""


def test_what_is_lost_by_not_closing_is_said() -> None:
    said = "\n".join(alone(WARNED, NOBODY))
    assert "oncemq.lost client not closed" in said
    assert "unsent=1: lost" in said
    assert "ResourceWarning" in said
