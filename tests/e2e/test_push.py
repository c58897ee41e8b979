"""A listener stopped under full load: nobody notices, the server stays small, nothing is lost."""

import contextlib
import json
import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from oncemq import Client, OnceMQError

from .conftest import DEADLINE_SECONDS, ONCE, clean_environment, start_server, stop_server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

GROWTH_MAX = 96 << 20  # bytes: the log's own buffers, and what is kept for one listener
BATCH = [b"x" * 25_000] * 4  # pushed whole; few, for the listener syncs its disk for each
BATCHES = 400


def resident(pid: int) -> int:
    pages = Path(f"/proc/{pid}/statm").read_text("ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def offsets_in(path: Path) -> list[int]:
    return [json.loads(line)["offset"] for line in path.read_bytes().splitlines(keepends=True)
            if line.endswith(b"\n")]  # fmt: skip


def test_one_that_is_stopped_catches_up_and_nobody_else_notices(tmp_path: Path) -> None:
    serving = start_server(tmp_path)
    environ = clean_environment(tmp_path, ONCEMQ_SERVER=serving.address)
    output = tmp_path / "heard"
    with (
        Client(serving.address) as shop,
        Client(serving.address) as quick,
        Client(serving.address, id="stopped", state=tmp_path / "stopped") as owner,
        open(output, "wb") as heard,
    ):
        owner.subscribe("orders")
        owner.close()
        quick.subscribe("orders")
        words = ["listen", "orders", "--json", "--id", "stopped", "--state", "stopped"]
        listener = subprocess.Popen([*ONCE, *words], stdout=heard, env=environ, cwd=tmp_path)
        got: list[int] = []

        def listen() -> None:
            with contextlib.suppress(OnceMQError):  # until its client is closed
                got.extend(message.offset for message in quick.listen("orders"))

        threading.Thread(target=listen, daemon=True).start()
        try:
            shop.put("orders", b"first")
            until(lambda: offsets_in(output) == [0] and got == [0], "both listen")
            calm = put_for(shop, BATCHES // 4)
            until(lambda: got[-1] == shop.topic("orders").topic.end - 1, "the quick one is there")
            before = resident(serving.process.pid)
            listener.send_signal(signal.SIGSTOP)
            loaded = put_for(shop, BATCHES)
            end = shop.topic("orders").topic.end
            until(lambda: got[-1] == end - 1, "the quick one is there, whoever is stopped")
            grown = resident(serving.process.pid) - before
            listener.send_signal(signal.SIGCONT)
            until(lambda: (offsets_in(output) or [0])[-1] == end - 1, "the stopped one is there")
        finally:
            listener.kill()
            listener.wait()
    assert got == list(range(end))
    assert offsets_in(output) == list(range(end))
    assert grown < GROWTH_MAX, f"the server grew by {grown >> 20} MiB"
    assert loaded > calm / 4, f"{loaded:.0f} puts a second with one stopped, {calm:.0f} before"
    assert stop_server(serving) == 0


def put_for(shop: Client, batches: int) -> float:
    """Puts at full speed; how many batches a second."""
    started = time.monotonic()
    for _ in range(batches):
        shop.put_many("orders", BATCH, durable=False)
    return batches / (time.monotonic() - started)


def until(holds, what: str) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not holds():
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(0.05)
