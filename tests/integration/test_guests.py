"""Anonymous subscribers on a real server: theirs is what lasts as long as their connections."""

import subprocess
import sys

import pytest

from oncemq import Client, testing
from oncemq.broker import expiry
from tests.harness.waiting import until

KILLED = """
import os, sys
from oncemq import Client
client = Client(sys.argv[1])
client.subscribe("orders")
print("subscribed", flush=True)
os.kill(os.getpid(), 9)
"""


@pytest.mark.timeout(60)
def test_a_killed_anonymous_subscriber_holds_nothing_and_an_idle_one_goes_on(monkeypatch) -> None:
    monkeypatch.setattr(expiry, "SILENT_MICROS", 500_000)
    monkeypatch.setattr(expiry, "GONE_MICROS", 3_000_000)
    with testing.server() as address, Client(address) as idle, Client(address) as looking:
        idle.subscribe("orders")
        (mine,) = looking.subscriptions("orders")
        killed = subprocess.run(
            [sys.executable, "-c", KILLED, address], stdout=subprocess.PIPE, text=True, check=False
        )
        assert killed.stdout == "subscribed\n"
        assert len(looking.subscriptions("orders")) == 2
        until(lambda: len(looking.subscriptions("orders")) == 1 or None)
        assert looking.subscriptions("orders") == [mine]
        looking.put("orders", b"a")
        assert [message.payload for message in idle.get("orders", wait=5)] == [b"a"]
