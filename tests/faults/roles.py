"""Roles that faults need beside those of `tests/e2e/roles.py`: fuller puts, and `once` itself.

Run as a program (`python -m tests.faults.roles`) this is the parent of both kinds.
"""

import os
import random
import time

from tests.e2e import roles
from tests.e2e.roles import Notes, Options, client_of

PAD = {"pad": "x" * 3_000}  # a put that does not fit into one page


def publish_batches(options: Options) -> None:
    """Puts without end, as `publish`, in batches of the sizes it is told; notes the time of each
    answer, on the clock that all processes of a machine share."""
    notes = Notes(options["notes"])
    topics, counts, number = options["topics"], options["counts"], options["first"]
    with client_of(options) as client:
        while True:
            choice = random.Random(number)
            topic, count = choice.choice(topics), choice.choice(counts)
            payloads = [f"{client.id}:{number + place}".encode() for place in range(count)]
            notes.write(["about", topic, number, count])
            if choice.random() < 0.5:  # with keys a batch leaves as it is, recorded on return
                headers = [PAD, *[None] * (count - 1)] if choice.random() < 0.2 else None
                pending = client.put_many(
                    topic, payloads, keys=payloads, headers=headers, wait=False
                )
                notes.write(["recorded", topic, number, count])
            else:  # gathered with its neighbours, recorded a moment later
                pending = client.put_many(topic, payloads, wait=False)
            if choice.random() < 0.8:  # else several are under way at once
                receipt = pending.result()[0]  # type: ignore[union-attr]
                notes.write(["stored", topic, number, count, receipt.offset, time.monotonic()])
            number += count


def command(options: Options) -> None:
    """Becomes another program; what it says goes to a file."""
    os.dup2(os.open(options["output"], os.O_WRONLY | os.O_APPEND | os.O_CREAT), 1)
    argv = options["argv"]
    os.execvpe(argv[0], argv, options["environment"])


roles.ROLES |= {role.__name__: role for role in (publish_batches, command)}

if __name__ == "__main__":
    roles.main()
