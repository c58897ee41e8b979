"""Servers of a cluster as a person starts them, one by one, and `once` beside them."""

import json
import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

from oncemq.cli.cluster.agreed import Agreed, etcd_at
from oncemq.coordination.coordinator import Transact
from oncemq.coordination.etcd.connection import Access
from tests.e2e.conftest import ONCE, Ran, clean_environment
from tests.e2e.processes import free_port, until

SYNC_SECONDS = 60.0
COMMAND_SECONDS = 60.0

_numbers = count(1)


class HandStarted:
    """One cluster: its servers on directories of their own, in the etcd that is given."""

    def __init__(self, directory: Path, access: Access) -> None:
        self.name = f"hand{os.getpid()}-{next(_numbers)}"
        self.directory = directory
        self.etcd = ",".join(access.addresses)
        self.access = access
        self.addresses: dict[str, str] = {}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        (directory / "settings.toml").touch()

    # ------------------------------------------------------------------ servers

    def start(
        self, server: str, *more: str, data: str | None = None, known_as: str | None = None
    ) -> None:
        """`once serve` as this server; nothing is waited for. `known_as`: what a test calls it."""
        key = known_as or server
        address = self.addresses.setdefault(key, f"tcp://127.0.0.1:{free_port()}")
        given = ["--cluster", self.name, "--etcd", self.etcd, "--server-id", server]
        self.run_server(key, "--bind", address, "--data", data or key, *given, *more)

    def start_alone(self, server: str) -> None:
        """A server of no cluster, on the directory that this one would have."""
        address = self.addresses.setdefault(server, f"tcp://127.0.0.1:{free_port()}")
        self.run_server(server, "--bind", address, "--data", server)

    def run_server(self, key: str, *arguments: str) -> None:
        assert key not in self.processes or self.processes[key].poll() is not None
        settings = ["--config", "settings.toml", "--feed", "none"]
        with (self.directory / f"{key}.log").open("ab") as log:
            self.processes[key] = subprocess.Popen(
                [*ONCE, "serve", *settings, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                env=clean_environment(self.directory),
            )

    def log(self, key: str) -> str:
        return (self.directory / f"{key}.log").read_text()

    def stop(self, *keys: str) -> list[int]:
        """SIGTERM to all of them at once, and their exit codes."""
        for each in keys:
            self.processes[each].send_signal(signal.SIGTERM)
        return [self.processes[each].wait(30) for each in keys]

    def kill(self, key: str) -> None:
        """SIGKILL, and wait until it is gone."""
        self.processes[key].kill()
        self.processes[key].wait()

    def signal(self, key: str, number: signal.Signals) -> None:
        self.processes[key].send_signal(number)

    def end(self) -> None:
        for process in self.processes.values():
            with suppress(ProcessLookupError):
                process.kill()
            process.wait()

    # ------------------------------------------------------------------ commands

    def once(self, *arguments: str, **environ: str) -> Ran:
        """As a user who has all that is needed in the environment."""
        given = {
            "ONCEMQ_SERVER": ",".join(self.addresses.values()),
            "ONCEMQ_CLUSTER": self.name,
            "ONCEMQ_ETCD": self.etcd,
        }
        done = subprocess.run(
            [*ONCE, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=clean_environment(self.directory, **(given | environ)),
            cwd=self.directory,
            timeout=COMMAND_SECONDS,
            check=False,
        )
        return Ran(done.returncode, done.stdout, done.stderr.decode())

    def done(self, *arguments: str) -> str:
        """A command that must do what it is told."""
        ran = self.once(*arguments)
        assert ran.code == 0, (arguments, ran, self.once("cluster", "status").text)
        return ran.text

    def status(self, **environ: str) -> dict[str, Any]:
        return json.loads(self.once("cluster", "status", "--json", **environ).out)

    def server(self, name: str) -> dict[str, Any]:
        return next((each for each in self.status()["servers"] if each["id"] == name), {})

    def until_in_sync(self, *servers: str) -> str:
        """All of these, and a leader that takes puts; who it is."""

        def leader() -> str:
            status = self.status()
            are_in_sync = status["serving"] and status["in_sync"] == sorted(servers)
            return status["leader"] if are_in_sync else ""

        return until(leader, SYNC_SECONDS, what=f"{servers} in sync: {self.status()}")

    def until_wrong(self, words: str) -> str:
        """What the status says, once it has these words."""

        def found() -> str:
            return next((each for each in self.status()["wrong"] if words in each), "")

        return until(found, SYNC_SECONDS, what=f"{words!r} in {self.status()['wrong']}")

    # ------------------------------------------------------------------ etcd

    def forget_in_etcd(self) -> None:
        """As if etcd had lost its data; nobody may run meanwhile."""
        with Agreed(self.name, etcd_at(self.access.addresses), patience=10.0) as agreed:
            known = agreed.look()
            keys: Sequence[str] = [
                known.shard_key, known.keys.config, *map(known.keys.server, known.servers)
            ]  # fmt: skip
            there = {key: known.revision(key) for key in keys if known.revision(key)}
            agreed.change(
                lambda known: (
                    Transact(there, {}, tuple(there))
                    if any(known.revision(key) for key in there)
                    else None
                )
            )
