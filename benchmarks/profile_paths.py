"""Where the time goes: cProfile of the client's and of the server's hot paths.

    python benchmarks/profile_paths.py client put 5000      # which side, what, batch
    python benchmarks/profile_paths.py server get 100

The side that is profiled runs in this process, the other one in a process of its own. cProfile
makes calls dearer than they are: compare shares, not seconds. Batch 1 is one message at a time.
The time is the processor's, so that a busy machine does not show; waiting costs nothing here.
"""

import cProfile
import pstats
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any

from oncemq import Client
from oncemq.assembly import Server
from oncemq.protocol.limits import ServerLimits
from oncemq.protocol.records import Retention
from oncemq.storage.log.log import LogOptions

SECONDS = 2.0
SIZE = 100
SHOWN = 28


def put_for_a_while(client: Client, batch: int) -> int:
    payloads = [bytes(SIZE)] * batch
    under_way: deque[Any] = deque()
    count = 0
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        if batch == 1:
            client.put("t", payloads[0], durable=client.id == "outbox")
        else:
            durable = client.id == "outbox"
            under_way.append(client.put_many("t", payloads, durable=durable, wait=False))
            if len(under_way) >= 6:
                under_way.popleft().result()
        count += batch
    client.flush()
    return count


def get_for_a_while(client: Client, batch: int) -> int:
    count = 0
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        got = len(client.get("t", limit=batch))
        count += got
        if not got:
            client.unsubscribe("t")
            client.subscribe("t", start="earliest")
    return count


def load(address: str, what: str, batch: int) -> None:
    """The client's side; says how fast it was."""
    with tempfile.TemporaryDirectory() as state:
        made = Client(address, id="outbox", state=state) if "outbox" in what else Client(address)
        with made as client:
            started = time.monotonic()
            if what.startswith("put"):
                count = put_for_a_while(client, batch)
            else:
                client.subscribe("t", start="earliest")
                count = get_for_a_while(client, batch)
            print(f"{what} {batch}: {count / (time.monotonic() - started):,.0f} messages/s")


def fill(address: str, batch: int) -> None:
    with Client(address) as client:
        client.create_topic("t", Retention(forever=True))
        for _ in range(500_000 // max(batch, 100)):
            client.put_many("t", [bytes(SIZE)] * max(batch, 100), durable=False, wait=False)
        client.flush()


def main(side: str, what: str, batch: int) -> None:
    profile = cProfile.Profile(time.thread_time)  # of this thread, not of its neighbours
    with tempfile.TemporaryDirectory() as directory:
        if side == "server":
            server = Server(
                Path(directory), "tcp://127.0.0.1:*", rules=ServerLimits(), options=LogOptions()
            )
            command = [sys.executable, __file__, "load", what, str(batch), server.address]

            def outside() -> None:
                fill(server.address, batch)
                subprocess.run(command, check=True)
                server.stop()

            threading.Thread(target=outside).start()
            profile.runcall(server.run)
        else:
            command = [sys.executable, "-m", "oncemq", "serve", "--data", directory,
                       "--bind", "tcp://127.0.0.1:*", "--log-level", "warning"]  # fmt: skip
            with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
                assert process.stdout is not None
                line = process.stdout.readline().decode()
                address = line.partition("ready at ")[2].partition(",")[0]
                fill(address, batch)
                profile.runcall(load, address, what, batch)
                process.terminate()
    pstats.Stats(profile).sort_stats("tottime").print_stats(SHOWN)


if __name__ == "__main__":
    if sys.argv[1] == "load":
        load(sys.argv[4], sys.argv[2], int(sys.argv[3]))
    else:
        main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
