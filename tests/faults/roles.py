"""Roles that faults need beside those of `tests/e2e/roles.py`: fuller puts, and `once` itself.

Run as a program (`python -m tests.faults.roles`) this is the parent of both kinds.
"""

import functools
import json
import logging
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from oncemq.cluster.cluster_server import ClusterIdentity, ClusterServer
from oncemq.coordination.etcd.connection import Access
from oncemq.coordination.etcd.coordinator import EtcdCoordinator
from oncemq.errors import StorageFull
from oncemq.protocol.limits import ServerLimits
from oncemq.protocol.names import ServerId
from oncemq.replication.leader import Leader
from oncemq.server import housekeeping
from oncemq.storage.log.log import LogOptions
from tests.e2e import roles
from tests.e2e.roles import Notes, Options, client_of
from tests.faults import network

PAD = {"pad": "x" * 3_000}  # a put that does not fit into one page


def publish_batches(options: Options) -> None:
    """Puts without end, as `publish`, in batches of the sizes it is told; notes the time of each
    answer, on the clock that all processes of a machine share; a full disk refuses some."""
    notes = Notes(options["notes"])
    topics, counts, number = options["topics"], options["counts"], options["first"]
    waiting: list[tuple[list[Any], Any]] = []
    with client_of(options) as client:
        while True:
            choice = random.Random(number)
            topic, count = choice.choice(topics), choice.choice(counts)
            payloads = [f"{client.id}:{number + place}".encode() for place in range(count)]
            batch = [topic, number, count]
            notes.write(["about", *batch])
            if choice.random() < 0.5:  # with keys a batch leaves as it is, recorded on return
                headers = [PAD, *[None] * (count - 1)] if choice.random() < 0.2 else None
                pending = client.put_many(
                    topic, payloads, keys=payloads, headers=headers, wait=False
                )
                notes.write(["recorded", *batch])
            else:  # gathered with its neighbours, recorded a moment later
                pending = client.put_many(topic, payloads, wait=False)
            waiting.append((batch, pending))
            if choice.random() < 0.8:  # else several are under way at once
                for each in waiting:
                    notes.write(answered(*each))
                waiting.clear()
            number += count


def answered(batch: list[Any], pending: Any) -> list[Any]:
    """The note of what a put was answered."""
    try:
        receipt = pending.result()[0]
    except StorageFull:
        return ["refused", *batch]
    return ["stored", *batch, receipt.offset, time.monotonic()]


def command(options: Options) -> None:
    """Becomes another program; what it says goes to a file."""
    os.dup2(os.open(options["output"], os.O_WRONLY | os.O_APPEND | os.O_CREAT), 1)
    argv = options["argv"]
    os.execvpe(argv[0], argv, options["environment"])


def commits_alone() -> None:
    """What the others have synced does not count: a rule broken on purpose."""
    Leader._synced_of = lambda self, _: self._synced  # type: ignore[method-assign]


def serve_replica(options: Options) -> None:
    """A server of a cluster; `upkeep_ms` as for `serve`."""
    if options.get("commits_alone"):
        commits_alone()
    if "upkeep_ms" in options:
        housekeeping.UPKEEP_MICROS = options["upkeep_ms"] * 1000
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    access = Access(tuple(options["etcd"]))
    server = ClusterServer(
        Path(options["data"]),
        options["bind"],
        ClusterIdentity("storm", ServerId(options["server_id"])),
        lambda prefix, ring: EtcdCoordinator(access, prefix, ring),
        rules=ServerLimits(),
        options=LogOptions(**options.get("log", {})),
    )
    signal.signal(signal.SIGTERM, lambda *_: server.stop())
    Notes(options["notes"]).write(["ready", server.address])
    server.run()


def placed(role: Callable[[Options], None]) -> Callable[[Options], None]:
    """The same role, on the host and under the variables of its options, if there are any.

    `variables`: a library that is loaded first asks for a program that begins anew.
    """

    @functools.wraps(role)
    def play(options: Options) -> None:
        if namespace := options.pop("namespace", ""):
            network.enter(namespace)
        if environment := options.pop("variables", None):
            argv = [sys.executable, "-m", "tests.faults.roles", role.__name__, json.dumps(options)]
            os.execve(sys.executable, argv, {**os.environ, **environment})
        role(options)

    return play


played = (publish_batches, command, serve_replica)
roles.ROLES |= {role.__name__: role for role in played}
roles.ROLES = {name: placed(role) for name, role in roles.ROLES.items()}

if __name__ == "__main__":
    if sys.argv[1:]:
        roles.ROLES[sys.argv[1]](json.loads(sys.argv[2]))
    else:
        roles.main()
