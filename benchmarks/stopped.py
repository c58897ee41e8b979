"""One listener of two is stopped under full load: what the other, the server and it see of it.

Full load is as much as the other one hears; what is put beyond that would wait for it, too.
Law: every message is counted at both listeners, and each must be the next one of the topic.
"""

import os
import signal
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from benchmarks.lab import LISTENER, MEBIBYTE, Lab
from benchmarks.listener import TALLY
from benchmarks.report import Aim, Figure
from oncemq.cli.demo.process import Child, ServerChild
from oncemq.client.blocking.client import Client
from oncemq.errors import OnceMQError

SIZE, BATCH = 100, 500
WARM_PART, CALM_PART = 8, 4  # before it is stopped: parts of that time
LOOK_SECONDS = 0.2
AHEAD = 100_000  # messages that are put and not yet heard, at the most
CATCH_UP_SECONDS = 600.0
UNAFFECTED = Aim(0.7)
FLAT = Aim(32, at_most=True, unit=" MiB")
NONE = Aim(0, at_most=True, unit="")


@dataclass(frozen=True)
class LoadStretch:
    """What happened in some seconds of full load."""

    put: float  # messages a second
    heard: float  # by a listener that was not stopped, a second
    resident: int  # bytes of the server at the most


def stopped(lab: Lab) -> Iterator[Figure]:
    """SIGSTOP for `effort.stopped` seconds, then SIGCONT, and everything is counted."""
    seconds = lab.effort.stopped
    with lab.server() as server, _listeners(server) as (quick, slow):
        load = _Load(server, quick)
        try:
            lab.steps.show("listeners under full load")
            _stretch(server, load, quick, seconds / WARM_PART)
            calm = _stretch(server, load, quick, seconds / CALM_PART)
            os.kill(slow.pid, signal.SIGSTOP)
            lab.steps.show(f"the same with one of them stopped for {seconds:g} s")
            loaded = _stretch(server, load, quick, seconds)
        finally:
            load.end()
        missed = load.put - slow.heard
        lab.steps.show(f"it catches up with {missed:,} messages")
        quick.reach(load.put)
        os.kill(slow.pid, signal.SIGCONT)
        started = time.monotonic()
        slow.reach(load.put)
        took = time.monotonic() - started
        wrong = float(quick.wrong + slow.wrong)
    yield from _beside(lab, calm, loaded)
    part = _part(lab)
    yield Figure(
        part=part,
        what=f"then caught up with {missed:,} messages",
        unit="messages/s",
        values={"meanwhile": missed / took},
    )
    yield Figure(
        part=part,
        what="lost, doubled or out of order",
        unit="messages",
        values={"in all": wrong},
        aim=NONE,
        judged=wrong,
    )


def _part(lab: Lab) -> str:
    return f"one listener stopped for {lab.effort.stopped:g} s under full load, {BATCH} x {SIZE} B"


def _beside(lab: Lab, calm: LoadStretch, loaded: LoadStretch) -> Iterator[Figure]:
    """What everybody else noticed."""
    for what, now, before in (
        ("put", loaded.put, calm.put),
        ("received by another listener", loaded.heard, calm.heard),
    ):
        yield Figure(
            part=_part(lab),
            what=what,
            unit="messages/s",
            values={"meanwhile": now},
            limits={"before": before},
            ratios={"before": now / before},
            aim=UNAFFECTED,
            judged=now / before,
        )
    grown = max(0, loaded.resident - calm.resident) / MEBIBYTE
    yield Figure(
        part=_part(lab),
        what="the server's memory",
        unit="MiB",
        values={"grown by": grown},
        limits={"before": calm.resident / MEBIBYTE},
        aim=FLAT,
        judged=grown,
    )


class _Listener(Child):
    """Counts what it hears in a file, which tells also while it is stopped."""

    def __init__(self, name: str, server: ServerChild) -> None:
        self._tally = server.data.parent / f"{name}.tally"
        self._tally.write_bytes(bytes(TALLY.size))
        words = [str(LISTENER), server.address, "live", str(self._tally)]
        super().__init__(name, [*words, "tally"], server.data.parent)

    @property
    def heard(self) -> int:
        """So many messages."""
        return TALLY.unpack(self._tally.read_bytes())[0]

    @property
    def wrong(self) -> int:
        """So many of them were not the next one."""
        return TALLY.unpack(self._tally.read_bytes())[1]

    def reach(self, count: int) -> None:
        """Wait until it heard as many."""
        deadline = time.monotonic() + CATCH_UP_SECONDS
        while self.heard < count:
            if not self.running or time.monotonic() > deadline:
                raise self.failed(f"heard {self.heard:,} of {count:,}")
            time.sleep(LOOK_SECONDS / 10)


class _Load:
    """Puts as fast as a listener hears them, until told to end."""

    def __init__(self, server: ServerChild, listener: _Listener) -> None:
        self.put = 0
        self._listener = listener
        self._over = threading.Event()
        self._error: OnceMQError | None = None
        self._thread = threading.Thread(target=self._run, args=(server.address,), daemon=True)
        self._thread.start()

    def _run(self, address: str) -> None:
        payloads = [bytes(SIZE)] * BATCH
        try:
            with Client(address) as client:
                while not self._over.is_set():
                    if self.put > self._listener.heard + AHEAD:
                        time.sleep(LOOK_SECONDS / 100)
                        continue
                    client.put_many("live", payloads, durable=False)
                    self.put += BATCH
        except OnceMQError as error:
            self._error = error

    def end(self) -> None:
        """Everything is stored."""
        self._over.set()
        self._thread.join()
        if self._error is not None:
            raise self._error


@contextmanager
def _listeners(server: ServerChild) -> Generator[tuple[_Listener, _Listener]]:
    both = _Listener("quick", server), _Listener("slow", server)
    try:
        for each in both:
            each.start()
            each.line()
        yield both
    finally:
        for each in both:
            each.kill()


def _stretch(server: ServerChild, load: _Load, quick: _Listener, seconds: float) -> LoadStretch:
    put, heard, resident = load.put, quick.heard, 0
    started = time.monotonic()
    while (passed := time.monotonic() - started) < seconds:
        time.sleep(min(LOOK_SECONDS, seconds - passed))
        resident = max(resident, server.resident_bytes)
    return LoadStretch((load.put - put) / passed, (quick.heard - heard) / passed, resident)
