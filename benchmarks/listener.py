"""The far end of measurements: a waiting get or a listener, in its own process.

For latencies, each payload begins with the moment it was to be sent, on the clock that all
processes share. A tally is a file of two numbers: messages heard, and those out of turn.
"""

import mmap
import struct
import sys
import time

import msgspec

from oncemq.client.blocking.client import Client

STAMP_BYTES = 8
TALLY = struct.Struct("<qq")


def stamped(moment_ns: int, size: int) -> bytes:
    """A payload that says when it was to be sent."""
    return moment_ns.to_bytes(STAMP_BYTES, "little").ljust(size, b"\0")


def hear(address: str, topic: str, count: int) -> list[float]:
    """The seconds from the intended moment to a listener's hands, for each message."""
    times: list[float] = []
    with Client(address) as client:
        client.subscribe(topic)
        sys.stdout.write("waiting\n")
        sys.stdout.flush()
        for message in client.listen(topic):
            sent = int.from_bytes(message.payload[:STAMP_BYTES], "little")
            times.append((time.monotonic_ns() - sent) / 1e9)
            if len(times) == count:
                break
    return times


def wait(address: str, topic: str, count: int) -> list[float]:
    """The seconds from the intended moment to the return of the get, for each message."""
    times: list[float] = []
    with Client(address) as client:
        client.subscribe(topic)
        sys.stdout.write("waiting\n")
        sys.stdout.flush()
        while len(times) < count:
            messages = client.get(topic, limit=100, wait=20.0)
            now = time.monotonic_ns()
            if not messages:
                break
            for message in messages:
                sent = int.from_bytes(message.payload[:STAMP_BYTES], "little")
                times.append((now - sent) / 1e9)
    return times


def tally(address: str, topic: str, path: str) -> None:
    """Count what is heard, and what of it was not the next one, until killed."""
    with Client(address) as client, open(path, "r+b") as file:
        shared = mmap.mmap(file.fileno(), TALLY.size)
        client.subscribe(topic)
        sys.stdout.write("waiting\n")
        sys.stdout.flush()
        wrong = following = 0
        for heard, message in enumerate(client.listen(topic), start=1):
            wrong += message.offset != following
            following = message.offset + 1
            TALLY.pack_into(shared, 0, heard, wrong)


def main(address: str, topic: str, what: str, role: str = "get") -> None:
    """Do one of these; latencies are said in one line."""
    if role == "tally":
        tally(address, topic, what)
        return
    found = (hear if role == "push" else wait)(address, topic, int(what))
    sys.stdout.write(msgspec.json.encode(found).decode() + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
