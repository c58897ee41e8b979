"""The far end of the latency measurement: a waiting get or a listener, in its own process.

Each payload begins with the moment it was to be sent, on the clock that all processes share.
"""

import sys
import time

import msgspec

from oncemq.client.blocking import Client

STAMP_BYTES = 8


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


if __name__ == "__main__":
    measure = hear if sys.argv[4:] == ["push"] else wait
    found = measure(sys.argv[1], sys.argv[2], int(sys.argv[3]))
    sys.stdout.write(msgspec.json.encode(found).decode() + "\n")
