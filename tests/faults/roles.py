"""Roles that faults need beside those of `tests/e2e/roles.py`: fuller puts, and `once` itself.

Run as a program (`python -m tests.faults.roles`) this is the parent of both kinds.
"""

import os
import random
import time
from typing import Any

from oncemq.errors import StorageFull
from tests.e2e import roles
from tests.e2e.roles import Notes, Options, client_of

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


roles.ROLES |= {role.__name__: role for role in (publish_batches, command)}

if __name__ == "__main__":
    roles.main()
