"""Makes the directories of format 1 that `tests/format1` keeps; to be run with the code of then.

    git worktree add ../then e21b1d3 && cp tools/old_directories.py ../then/tools/
    cd ../then && make setup && .venv/bin/python -m tools.old_directories PLACE

Each is a `.tar.xz`, and what must be found in it a `.json`: the blobs of its checkpoint, every
record that is replayed, and every message by topic. `served` and `state` are of a real server and
a real client. A later format gets a script of its own: this one is kept to say how they were made.
"""

import sys
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast, get_args, get_origin, get_type_hints

import msgspec

import oncemq
from oncemq.protocol.records import RECORDS, Record
from oncemq.storage.disk import LocalDisk
from oncemq.storage.log.log import LogOptions
from oncemq.storage.log.recovery import OpenedLog, open_log
from oncemq.testing import server
from tests.harness.storage import Scribe, read_payloads

SMALL = LogOptions(segment_bytes=1500, allocate_bytes=700, reserve_bytes=100)
WIDE = LogOptions(segment_bytes=1 << 16, allocate_bytes=1 << 14, reserve_bytes=1 << 12)


class Expected(msgspec.Struct):
    """What an opening has to find."""

    identity: str
    tag: int
    generation: int
    last_serial: int
    states: list[str]
    records: list[tuple[int, int, str]]  # serial, kind, the record as msgpack
    messages: dict[int, list[tuple[int, str]]]  # by topic: offset, payload
    torn: int


def value(hint: Any, number: int) -> Any:
    """Something of a type."""
    hint = getattr(hint, "__supertype__", hint)
    if get_origin(hint) is tuple:
        return tuple(value(each, number) for each in get_args(hint) if each is not Ellipsis)
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return made(hint, number)
    return {int: number, str: f"name {number}", bytes: b"p" * 16, bool: True}[hint]


def made(kind: type[Any], number: int) -> Any:
    """A record of a kind."""
    hints = get_type_hints(kind)
    return kind(*(value(hints[field], number) for field in kind.__struct_fields__))


def fresh(directory: Path) -> None:
    Scribe(directory, LocalDisk()).log.close()


def kinds(directory: Path) -> None:
    """A record of each kind, as no server would write them."""
    scribe = Scribe(directory, LocalDisk(), WIDE)
    for number, kind in enumerate(RECORDS.values(), 100):
        scribe.log.append(cast("Record", made(kind, number)))
        if number % 3 == 0:
            scribe.commit()
    scribe.commit()
    scribe.log.close()


def covered(directory: Path) -> None:
    """Two checkpoints, and segments behind them."""
    scribe = Scribe(directory, LocalDisk())
    for number in range(12):
        for topic in (1, 2, 2):
            scribe.store(topic, b"t%d m%d " % (topic, number) + b"x" * 60)
    scribe.checkpoint(b"state 1")
    for number in range(4):
        scribe.store(1, b"tail %d" % number)
    scribe.checkpoint(b"state 2", b"more of it")
    scribe.store(1, b"behind it")
    scribe.log.close()


def cold(directory: Path) -> None:
    covered(directory)
    scribe = Scribe.__new__(Scribe)
    scribe.directory, scribe.disk = directory, LocalDisk()
    scribe.options, scribe.identity = SMALL, b"\x05"
    scribe.open()
    assert scribe.compact(lambda topic: {1: 6, 2: 10**6}.get(topic)) >= 2
    scribe.log.close()


def torn(directory: Path) -> None:
    """Killed while a group was written: half a frame behind the last whole one, and no mark."""
    scribe = Scribe(directory, LocalDisk())
    for number in range(5):
        scribe.store(1, b"whole %d" % number)
    scribe.put(1, b"never whole " * 5)
    scribe.log.write(cast("Any", scribe.log.take_group()))
    scribe.kill()
    last = scribe.segments[-1]
    data = last.read_bytes().rstrip(b"\0")
    last.write_bytes(data[:-30] + bytes(200))


def killed(directory: Path) -> None:
    """Killed with a whole group that nobody was told of."""
    scribe = Scribe(directory, LocalDisk())
    for number in range(5):
        scribe.put(1, b"message %d" % number)
    scribe.commit()
    scribe.kill()


def served(directory: Path) -> None:
    """A real server, with what users do."""
    with (
        server(directory, options=WIDE) as address,
        tempfile.TemporaryDirectory() as state,
        oncemq.Client(address, id="shop", state=Path(state)) as mq,
    ):
        mq.create_topic("kept", oncemq.Retention(forever=True))
        mq.subscribe("orders")
        mq.subscribe("returns.*")
        for number in range(20):
            mq.put("orders", b"order %d" % number)
            mq.put("kept", b"kept %d" % number, key=b"k", headers={"n": str(number)})
        mq.put("kept", b"under a key", idempotency_key="once")
        mq.put("returns.a", b"awaited")
        mq.get("orders", limit=7)
        with mq.transaction() as tx:
            taken = tx.get("orders", limit=3)
            for each in taken:
                tx.put("kept", b"out of " + each.payload)
        mq.create_topic("gone", oncemq.Retention(forever=True))
        mq.put("gone", b"x")
        mq.delete_topic("gone")


def state(directory: Path) -> None:
    """A client's state directory, with puts that no server has."""
    with server(options=WIDE) as address, oncemq.Client(address, id="till", state=directory) as mq:
        mq.create_topic("sales", oncemq.Retention(forever=True))
        mq.put("sales", b"sale 0")
    with oncemq.Client("tcp://127.0.0.1:9", id="till", state=directory, timeout=0.2) as mq:
        for number in range(1, 4):
            try:
                mq.put("sales", b"sale %d" % number)
            except oncemq.Unreachable:
                continue


def expected(directory: Path) -> Expected:
    opened: OpenedLog = open_log(LocalDisk(), str(directory), WIDE, random_bytes=bytes)
    log = opened.log
    encode = msgspec.msgpack.Encoder().encode
    found = Expected(
        log.identity.hex(),
        log.tag,
        log.generation,
        log.last_serial,
        [each.hex() for each in opened.states],
        [(serial, record.kind, encode(record).hex()) for serial, record in opened.replay],
        {},
        len(opened.report.torn),
    )
    for topic in (1, 2) if directory.name in {"covered", "cold", "torn", "killed"} else ():
        kept = read_payloads(log, topic)
        found.messages[topic] = [(offset, payload.hex()) for offset, payload in kept.items()]
    log.close()
    return found


MAKERS: tuple[Callable[[Path], None], ...] = (
    fresh, kinds, covered, cold, torn, killed, served, state,
)  # fmt: skip


def main(place: Path) -> None:
    place.mkdir(parents=True, exist_ok=True)
    for maker in MAKERS:
        with tempfile.TemporaryDirectory() as scratch:
            directory = Path(scratch) / maker.__name__
            maker(directory)
            for lock in directory.rglob("lock"):
                lock.unlink()
            with tarfile.open(place / f"{maker.__name__}.tar.xz", "w:xz") as archive:
                archive.add(directory, maker.__name__)
            if maker is not state:
                text = msgspec.json.encode(expected(directory))
                (place / f"{maker.__name__}.json").write_bytes(text + b"\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
