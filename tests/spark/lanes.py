"""A server that is killed and comes back, and topics that Spark copies while things go wrong.

A lane is a topic, its copy, and the checkpoint between them. Its batches all have the same number
of rows, so that a message says by its number which batch it belongs to, and what went wrong there.
"""

import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from oncemq import Client
from oncemq.protocol.records import Retention
from tests.e2e.processes import free_port
from tests.spark.copying import PER_BATCH, Given
from tests.spark.faults import SERVER, mark_of

READ_LIMIT = 10_000

Row = tuple[bytes | None, bytes]  # key and payload


class Rig:
    """A directory, `once serve` in it, which is started again whenever it dies, and a client."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.marks = directory / "marks"
        self.marks.mkdir(parents=True)
        self.address = f"tcp://127.0.0.1:{free_port()}"
        self._closing = False
        self._server = self._serve()
        self._nurse = threading.Thread(target=self._revive)
        self._nurse.start()
        self.mq = Client(self.address, timeout=60)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._closing = True
        self.mq.close()
        self._server.kill()
        self._nurse.join()

    def _serve(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "oncemq", "serve", "--bind", self.address]
        with (self.directory / "server.log").open("ab") as log:
            server = subprocess.Popen(
                [*command, "--data", str(self.directory / "data")], stdout=log, stderr=log
            )
        fresh = self.marks / f"{SERVER}.new"
        fresh.write_text(str(server.pid))
        os.replace(fresh, self.marks / SERVER)
        return server

    def _revive(self) -> None:
        while True:
            self._server.wait()
            if self._closing:
                return
            self._server = self._serve()


class Lane:
    """A topic, its copy, the checkpoint between them, and what goes wrong in which batch."""

    def __init__(self, rig: Rig, name: str, plan: Mapping[int, str]) -> None:
        self._rig = rig
        self.rows: list[Row] = []
        self._copied = 0
        self.plan = dict(plan)
        check = str(rig.directory / f"{name}-check")
        self.given = Given(rig.address, name, check, str(rig.marks), self.plan)
        for topic in (name, self.given.target):
            rig.mq.create_topic(topic, Retention(forever=True))

    @property
    def name(self) -> str:
        return self.given.name

    @property
    def check(self) -> Path:
        """The directory of the checkpoint."""
        return Path(self.given.check)

    @property
    def copied(self) -> int:
        """How many batches the copy had when it was compared last."""
        return self._copied

    def fill(self, batches: int) -> None:
        """So many more; put in pieces that do not fit them."""
        first, end = len(self.rows), len(self.rows) + batches * PER_BATCH
        self.rows += [(b"k%d" % (n % 3), b"%d" % n) for n in range(first, end)]
        for start in range(first, end, 17):
            part = self.rows[start : min(start + 17, end)]
            payloads, keys = [payload for _, payload in part], [key for key, _ in part]
            self._rig.mq.put_many(self.name, payloads, keys=keys)

    def struck(self) -> int:
        """How many of its faults have happened."""
        return sum(
            mark_of(self._rig.marks, self.name, number, fault).exists()
            for number, fault in self.plan.items()
        )

    def compare(self, batches: int | None = None) -> int:
        """Let the copy be exactly so many batches, or all of them; how many rows that are."""
        found: list[Row] = []
        while part := self._rig.mq.read(self.given.target, len(found), limit=READ_LIMIT):
            found += [(each.key, each.payload) for each in part]
        wanted = self.rows if batches is None else self.rows[: batches * PER_BATCH]
        wrong = differences(wanted, found, self.plan)
        assert not wrong, f"{self.name}: " + "; ".join(wrong)
        self._copied = len(wanted) // PER_BATCH
        return len(wanted)


def differences(wanted: Sequence[Row], found: Sequence[Row], plan: Mapping[int, str]) -> list[str]:
    """What is wrong with a copy: each kind, how often, and where it begins."""

    def told(kind: str, rows: list[Row]) -> str:
        batch = int(rows[0][1]) // PER_BATCH
        fault = plan.get(batch, "no fault")
        return f"{len(rows)} {kind}, from {rows[0][1]!r} of batch {batch} ({fault}) on"

    if list(wanted) == list(found):
        return []
    times, due = Counter(found), set(wanted)
    ordered = [row for row in dict.fromkeys(found) if row in due]
    kinds = {
        "lost": [row for row in wanted if row not in times],
        "doubled": [row for row, count in times.items() if count > 1],
        "reordered": [
            row
            for row, other in zip(ordered, (row for row in wanted if row in times), strict=True)
            if row != other
        ],
        "not due": [row for row in times if row not in due],
    }
    return [told(kind, rows) for kind, rows in kinds.items() if rows]
