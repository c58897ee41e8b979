"""The cast of `tests/e2e/storm.py` under other faults than kills: powerless disks, a bad wire,
stopped processes. The checker is the same: what was noted, stored and settled must fit.
"""

import os
import random
import select
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from oncemq import Client
from oncemq.testing.power import PowerDisk
from oncemq.testing.proxy import ANSWERS, REQUESTS, Proxy
from tests.e2e import storm
from tests.e2e.conftest import ONCE, clean_environment
from tests.e2e.processes import Nursery, Process, Serving, until
from tests.e2e.storm import SUBSCRIBERS, TOPICS, Storm
from tests.faults.inject import injection

ROOT = Path(__file__).parent.parent.parent
COUNTS = (1, 10, 40, 100)
FAULTY_CALLS = ("fdatasync", "fsync", "pwritev2", "ftruncate", "rename", "unlink", "openat")
NAMES = {  # of the wire's faults
    "cut": "reset with unknown delivery",
    "reset": "reset with unknown delivery",
    "untold": "lost message",
    "clog": "one-way partition",
    "refuse": "partition",
}
DISK_FAILED = 7  # the exit code of `once serve` (docs/GUARANTEES.md, G9)


class FaultNursery(Nursery):
    """A nursery that knows the roles of this directory too."""

    def __init__(self) -> None:
        self._parent = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.roles"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
        )
        self._started = 0

    def end(self, *processes: Process) -> list[int]:
        """SIGKILL those that have not ended; how each ended."""
        pids = [each.pid for each in processes]
        return self.ask(do="signal", signal=signal.SIGKILL, pids=pids)


class EagerServing(Serving):
    """A server that checkpoints and compacts all the time, on the data directory it is given."""

    def __init__(self, nursery: Nursery, directory: Path, data: Path, log: dict[str, int]) -> None:
        options: dict[str, Any] = storm.SERVER
        super().__init__(nursery, directory, **options | {"log": options["log"] | log})
        self._data = data

    def begin(self) -> Process:
        self._lives += 1
        name = f"server-{self._lives}"
        options: dict[str, Any] = {"bind": self.address, "data": str(self._data), **self._options}
        self.process = self._nursery.start("serve", name, self._directory, **options)
        return self.process


class CommandServing(Serving):
    """`once serve` itself, under another command if one is given."""

    def __init__(
        self,
        nursery: Nursery,
        directory: Path,
        data: Path,
        *options: str,
        under: tuple[str, ...] = (),
    ) -> None:
        super().__init__(nursery, directory)
        self._command = [*ONCE, "serve", "--data", str(data), "--bind", self.address, *options]
        self.under = under

    @property
    def output(self) -> str:
        """What this life said on stdout."""
        path = self._output(self._lives)
        return path.read_text() if path.exists() else ""

    def begin(self) -> Process:
        self._lives += 1
        self.process = self._nursery.start(
            "command",
            f"server-{self._lives}",
            self._directory,
            argv=[*self.under, *self._command],
            environment=clean_environment(self._directory),
            output=str(self._output(self._lives)),
        )
        return self.process

    def start(self) -> str:
        self.begin()
        until(lambda: "ready at" in self.output, what=f"once serve; {self.process.errors}")
        return self.address

    def _output(self, life: int) -> Path:
        return self._directory / f"server-{life}.output"


class FaultStorm(Storm):
    """A storm whose disks, wires and processes have other faults than death.

    `on_disk` names what lives on the disk whose power is cut: "server", "clients", or both.
    """

    def __init__(
        self,
        nursery: FaultNursery,
        directory: Path,
        seed: int,
        *,
        command: bool = False,
        disk: PowerDisk | None = None,
        on_disk: tuple[str, ...] = (),
        wire: bool = False,
        counts: tuple[int, ...] = COUNTS,
        log: dict[str, int] | None = None,
    ) -> None:
        super().__init__(nursery, directory, seed)
        self.faults: Counter[str] = Counter()
        self.stopped = 0  # servers that a failed call ended
        self.checked = 0
        self.disk = disk
        self.clients_on: dict[str, Any] = {}  # the host of publishers and subscribers
        self.wire: Proxy | None = None
        self._fault_nursery = nursery
        self._on_disk = on_disk
        self._counts = counts
        home = disk.path if disk is not None and "server" in on_disk else directory
        if command:
            self.serving = CommandServing(
                nursery, directory, home / "data", "--segment-bytes", "1MiB"
            )
        else:
            self.serving = EagerServing(nursery, directory, home / "data", log or {})
        if wire:
            self.wire = Proxy(self.serving.address, random.Random(seed))

    # the cast

    def _state(self, name: str) -> Path:
        if self.disk is not None and "clients" in self._on_disk:
            return self.disk.path / f"state-{name}"
        return super()._state(name)

    def _start(self, name: str) -> None:
        options: dict[str, Any] = {
            "server": self.wire.address if self.wire else self.serving.address,
            "id": name,
            "state": str(self._state(name)),
            **self.clients_on,
        }
        if name in SUBSCRIBERS:
            role, topic = SUBSCRIBERS[name]
            options |= {"topic": topic, "limit": storm.LIMIT, "effects": str(self._effects(name))}
            options["asks_again"] = True
        else:
            role = "publish_batches"
            options |= {"topics": TOPICS, "counts": self._counts}
            options["first"] = self._next_number(name)
        self._clients[name] = self._nursery.start(role, name, self._directory, **options)

    # the faults

    def cut_power(self, restart: tuple[str, ...] = ("server", "clients")) -> None:
        """Cut the power of the disk and of what lives on it; start it again."""
        assert self.disk is not None
        names = [*self._clients] if "clients" in self._on_disk else []
        victims = [self._clients[name] for name in names]
        if "server" in self._on_disk:
            victims.append(self.serving.process)
        assert not self._nursery.alone(victims), [each.errors for each in victims]
        self.disk.cut(*(each.pid for each in victims))
        self.faults["power cut"] += 1
        self._fault_nursery.end(*victims)
        self.disk.restore(self.random.choice(("", "data=writeback")))
        if "server" in self._on_disk:
            self.serving.begin()
        for name in names if "clients" in restart else ():
            self._start(name)

    def stop_for(
        self, seconds: float, *, server: bool = False, clients: Sequence[str] = ()
    ) -> None:
        """SIGSTOP these, for so long: the length is the fault, nothing is waited for."""
        victims = [self._clients[name] for name in clients]
        victims += [self.serving.process] if server else []
        for victim in victims:
            os.kill(victim.pid, signal.SIGSTOP)
        select.select((), (), (), seconds)
        for victim in victims:
            os.kill(victim.pid, signal.SIGCONT)
        self.faults["stop and continue"] += len(victims)

    def fail_call(self, name: str | None = None) -> None:
        """One call of the server (or of that client) to its disk fails; it is started again.

        A server may go on without a checkpoint when its disk is full; else it has to stop. Seldom
        made calls may not come at all.
        """
        victim = self._clients[name] if name else self.serving.process
        chance = self.random
        call, error = chance.choice(FAULTY_CALLS), chance.choice(("EIO", "ENOSPC"))
        with injection(victim.pid, f"{call}:error={error}:when={chance.randint(1, 5)}") as done:
            deadline = time.monotonic() + 1.0
            until(
                lambda: (
                    done.injected or self._nursery.alone([victim]) or time.monotonic() > deadline
                )
            )
            self.let_pass(100)
        (code,) = self._fault_nursery.end(victim)
        stopped = code != -signal.SIGKILL
        self.faults[f"{call} {error}"] += 1
        if name:
            self._start(name)
            return
        assert not stopped or "the disk failed" in victim.errors, victim.errors
        self.stopped += stopped
        self.serving.begin()

    def trouble_wire(self) -> None:
        """One fault of the wire, for a moment; some leave open whether a request arrived."""
        assert self.wire is not None
        chance = self.random
        fault = chance.choice(("cut", "reset", "untold", "clog", "delay", "refuse"))
        self.faults[fault] += 1
        match fault:
            case "cut" | "reset":
                self.wire.cut(reset=fault == "reset")
            case "untold":  # done, but nobody was told: the client has to ask again
                self.wire.clog(ANSWERS)
                self.let_pass(60)
                self.wire.cut()
            case "clog":
                self.wire.clog(chance.choice((REQUESTS, ANSWERS)))
                self.let_pass(chance.choice((100, 100, 2_000)))
            case "delay":
                self.wire.delay(chance.choice((0.01, 0.05, 0.2)))
                self.let_pass(400)
            case _:
                self.wire.refuse()
                self.wire.cut()
                self.let_pass(300)
        self.wire.heal()

    def make_progress(self, count: int = 1) -> None:
        """Wait until so many puts were acknowledged, while the server lives."""
        before = self._stored()

        def progressed() -> bool:
            assert not self._nursery.alone([self.serving.process]), self.serving.process.errors
            return self._stored() >= before + count

        until(progressed, what=f"puts go on; {self.serving.process.errors}")

    # the end

    def end(self) -> storm.Outcome:
        gone = self._nursery.alone([*self._clients.values(), self.serving.process])
        assert not gone, "\n".join(f"{each.name} ended alone: {each.errors}" for each in gone)
        self._hear_of_refusals()
        outcome = super().end()
        self.checked = outcome.messages
        if self.wire is not None:
            self.wire.close()
        return outcome

    def _hear_of_refusals(self) -> None:
        """Wait until each publisher noted the answer to a put that it began after the faults.

        A publisher killed before that may have been refused a put, for want of room, which it
        noted as recorded only. It notes answers in the order of its puts.
        """
        begun = {name: self._next_number(name) for name in self.publishers}

        def heard(name: str) -> bool:
            answers = [note for note in self.notes(name) if note[0] in ("stored", "refused")]
            return bool(answers) and answers[-1][2] >= begun[name]

        for name in self.publishers:
            until(partial(heard, name), what=f"{name} goes on; {self._clients[name].errors}")

    def injected(self) -> dict[str, int]:
        found = Counter(super().injected())
        for fault, times in self.faults.items():
            found[named(fault)] += times
        return found

    @property
    def messages(self) -> int:
        """How many were acknowledged so far."""
        notes = (note for name in self.publishers for note in self.notes(name))
        return sum(note[3] for note in notes if note[0] == "stored")

    def acknowledged(self) -> set[str]:
        """The payloads whose receipts came, of topics that keep everything."""
        notes = ((name, note) for name in self.publishers for note in self.notes(name))
        return {
            f"{name}:{note[2] + place}"
            for name, note in notes
            if note[0] == "stored" and note[1] in storm.KEPT
            for place in range(note[3])
        }

    def stored(self) -> set[str]:
        """The payloads that the server has, of topics that keep everything."""
        with Client(self.serving.address) as client:
            found = [topic for topic in client.topics() if topic.name in storm.KEPT]
            return {
                message.payload.decode()
                for topic in found
                for message in storm.walk(client, topic.name, topic.end)
            }


def named(fault: str) -> str:
    """A fault of ours, as the reliability card names it."""
    call, _, error = fault.partition(" ")
    if call not in FAULTY_CALLS:
        return NAMES.get(fault, fault)
    if error == "ENOSPC":
        return "full disk"
    return "failed sync" if "sync" in call else "failed disk call"
