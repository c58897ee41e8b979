"""How many functions of ours a put goes through on its way into the log: a corridor kept short.

Counted are the distinct functions of the package that run from `Driver.receive` until `Log.append`
has the put's record in its group, found with `sys.setprofile` around one put to a topic that has a
subscription, from a producer that has put before. Properties and lambdas count, C functions do not.
Before `Driver.receive` come `Loop._receive` and what runs at the socket, from the wait that finds
the request to its frames: the second test counts those on a real connection.
Left out is what serves others than this put, each by its name: who waits or listens, the line in
the server's log, and the answer, which waits for the disk. Checks of the put itself all count.
"""

import sys
from pathlib import Path
from types import FrameType

import oncemq
from oncemq.protocol.names import Micros
from oncemq.storage.log.log import Log
from oncemq.transport.dealer import DealerSocket
from oncemq.transport.router import RouterSocket
from oncemq.wire import codec
from tests.harness.server import Host
from tests.harness.waiting import until

SOURCES = str(Path(oncemq.__file__).parent)
AT_THE_SOCKET = 13  # ZMTP is ours: three with libzmq
BEFORE = 1 + AT_THE_SOCKET  # Loop._receive
OF_OTHERS = {
    "Recorder.answer",  # the answer
    "Gets.stored",  # readers
    "Shard.subscribes",  # guests
}
MOST = 37  # 23 of them behind the socket
CALLS = 37  # of them all, with the write and the answer


def functions_of(host: Host, frames: list[bytes]) -> list[str]:
    """What runs from the arrival of frames until their record is in the log's group."""
    found: dict[str, None] = {}
    is_in = False

    def note(frame: FrameType, event: str, _: object) -> None:
        nonlocal is_in
        if event == "return" and frame.f_code is Log.append.__code__:
            is_in = True
        if event == "call" and not is_in and frame.f_code.co_filename.startswith(SOURCES):
            found[frame.f_code.co_qualname] = None

    sys.setprofile(note)
    try:
        host.driver.receive(b"route", frames, Micros(host.now))
    finally:
        sys.setprofile(None)
    assert is_in
    return list(found)


def test_a_put_goes_through_few_functions_on_its_way_into_the_log(host: Host) -> None:
    host.subscribe("orders")
    host.put("orders", b"one before")
    put, body = host.putting("orders", b"this one")
    frames = [bytes(frame) for frame in codec.encode_request(7, put, body)]
    found = functions_of(host, frames)
    assert set(found) >= OF_OTHERS, "what is left out is really met"
    way = [name for name in found if name not in OF_OTHERS]
    assert len(way) + BEFORE <= MOST, "\n".join(way)


def test_few_functions_run_at_the_socket() -> None:
    door, line = RouterSocket("tcp://127.0.0.1:*", frame_bytes_max=1 << 20), DealerSocket()
    found: dict[str, None] = {}

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(SOURCES):
            found[frame.f_code.co_qualname] = None

    def served() -> bool | None:
        door.wait(0)
        assert door.receive() is None  # nobody asks anything yet
        return line.news()

    try:
        line.connect(door.address)
        until(served)
        assert door.receive() is None  # everybody was heard
        assert line.send([b"head", b"body"])
        sys.setprofile(note)
        try:
            door.wait(10_000)
            received = door.receive()
        finally:
            sys.setprofile(None)
        assert received is not None
        assert list(map(bytes, received[1])) == [b"head", b"body"]
    finally:
        line.close()
        door.close()
    assert len(found) <= AT_THE_SOCKET, "\n".join(found)


def test_a_put_alone_takes_few_calls_from_its_arrival_to_its_receipt(host: Host) -> None:
    """What the processor's time goes by, on a machine that is never quiet: each call counts."""
    host.subscribe("orders")
    host.put("orders", b"one before")
    put, body = host.putting("orders", b"this one")
    frames = [bytes(frame) for frame in codec.encode_request(7, put, body)]
    calls: list[str] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(SOURCES):
            calls.append(frame.f_code.co_qualname)

    now = Micros(host.now)
    sys.setprofile(note)
    try:
        host.driver.receive(b"route", frames, now)
        group = host.driver.commit(now)
        assert group is not None
        host.log.write(group)
        host.driver.written(group, now)
    finally:
        sys.setprofile(None)
    assert list(host.replies()) == [7]
    assert len(calls) <= CALLS, "\n".join(calls)
