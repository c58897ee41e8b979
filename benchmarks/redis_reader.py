"""The far end of a push beside Redis: XREAD that blocks, in its own process."""

import sys
import time
from typing import Any

import msgspec
import redis
from listener import STAMP_BYTES  # beside it: run as a program of its own


def read(port: int, stream: str, count: int) -> list[float]:
    """The seconds from the intended moment to the return of the read, for each message."""
    times: list[float] = []
    client: Any = redis.Redis(port=port)  # its types say what it may also be
    client.ping()
    sys.stdout.write("waiting\n")
    sys.stdout.flush()
    last = b"0"  # from the first on: nobody writes before it waits
    while len(times) < count:
        found = client.xread({stream: last}, count=100, block=20_000)
        now = time.monotonic_ns()
        if not found:
            break
        for _, fields in found[0][1]:
            sent = int.from_bytes(fields[b"payload"][:STAMP_BYTES], "little")
            times.append((now - sent) / 1e9)
        last = found[0][1][-1][0]
    return times


if __name__ == "__main__":
    found = read(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
    sys.stdout.write(msgspec.json.encode(found).decode() + "\n")
