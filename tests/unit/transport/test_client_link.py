"""A client's end of a connection against a server by hand: cut, late, garbled, hostile, silent."""

import contextlib
import errno
import gc
import logging
import os
import select
import socket
import threading
import weakref
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from oncemq.errors import ConfigError, TooManyFiles
from oncemq.transport.connecting import dialing, link, name_lookup, waits
from oncemq.transport.connecting.addresses import Endpoint, server_address
from oncemq.transport.connecting.owed_bytes import OWED_BYTES_MAX, OWED_MESSAGES_MAX
from oncemq.transport.dealer import DealerSocket
from oncemq.zmtp.commands import PING, PONG, command
from oncemq.zmtp.connection import ZmtpConnection
from tests.harness.waiting import until, until_true
from tests.harness.zmtp_server import BEGINNING, HANDSHAKE_BYTES, HandServer, on_the_wire, read


@pytest.fixture
def server() -> Iterator[HandServer]:
    server = HandServer()
    yield server
    server.close()


@pytest.fixture
def line() -> Iterator[DealerSocket]:
    line = DealerSocket()
    yield line
    line.close()


def moving(line: DealerSocket) -> None:
    """What a client does while it waits."""
    assert line.receive() is None


def opened(server: HandServer, line: DealerSocket) -> socket.socket:
    """The server's end of an open connection."""
    line.connect(server.address)
    connection = server.accept()
    connection.sendall(BEGINNING)
    assert until(line.news) is True
    read(connection, HANDSHAKE_BYTES)
    return connection


def is_readable(line: DealerSocket, seconds: float = 0) -> bool:
    return bool(select.select(line.descriptors, [], [], seconds)[0])


# ------------------------------------------------------------------ the bytes


def test_whatever_the_pieces_a_server_sends_the_same_comes_out(server, line) -> None:
    """The handshake and two replies, cut at every byte."""
    said = BEGINNING + on_the_wire(b"head", b"body") + on_the_wire(b"second")
    for cut in range(1, len(said)):
        line.connect(server.address)
        connection = server.accept()
        connection.sendall(said[:cut])
        news: list[bool] = []
        came: list[list[bytes]] = []

        def move(news: list[bool] = news, came: list[list[bytes]] = came) -> None:
            if (each := line.news()) is not None:
                news.append(each)
            while (message := line.receive()) is not None:
                came.append([bytes(frame) for frame in message])

        while is_readable(line):  # it takes what there is before the rest comes
            move()
        connection.sendall(said[cut:])
        while len(came) < 2:
            assert is_readable(line, 30)
            move()
        assert (news, came) == ([True], [[b"head", b"body"], [b"second"]])


def test_a_server_that_goes_at_any_byte_of_the_handshake_is_tried_again(
    server, line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waits, "RECONNECT_MAX_MICROS", 20_000)
    line.connect(server.address)
    for cut in range(0, len(BEGINNING), 7):
        connection = server.accept_while(line)
        connection.sendall(BEGINNING[:cut])
        connection.close()
    connection = server.accept_while(line)
    connection.sendall(BEGINNING)
    assert until(line.news) is True


def test_a_large_frame_comes_whole(server, line) -> None:
    connection = opened(server, line)
    body = os.urandom(5 << 20)
    sender = threading.Thread(target=connection.sendall, args=(on_the_wire(b"head", body),))
    sender.start()
    head, came = until(line.receive)
    sender.join()
    assert (head, bytes(came)) == (b"head", body)


def test_what_the_other_end_has_not_got_is_known(server, line) -> None:
    assert line.unarrived == 0
    connection = opened(server, line)
    message = bytes(30_000_000)  # more than systems keep for one connection
    assert line.send([message])
    kept = line.unarrived
    assert 0 < kept < 30_000_100
    read(connection, 1_000_000)
    assert until(lambda: moving(line) is None and line.unarrived < kept)
    line.close()
    assert line.unarrived == 0


def test_what_came_before_the_end_is_given_out_before_that_is_news(server, line) -> None:
    connection = opened(server, line)
    connection.sendall(on_the_wire(b"first") + on_the_wire(b"last"))
    connection.close()
    assert until(line.receive) == [b"first"]
    assert line.receive() == [b"last"]
    assert until(line.news) is False


def test_who_asks_only_for_news_answers_pings_and_hears_of_the_end_behind_them(
    server, line
) -> None:
    connection = opened(server, line)
    connection.sendall(PING_FOR_AN_ANSWER)
    answered = until(lambda: line.news() or select.select([connection], [], [], 0)[0] or None)
    assert answered == [connection]
    connection.close()
    assert until(line.news) is False


def test_who_asks_only_for_news_loses_no_message(server, line) -> None:
    connection = opened(server, line)
    connection.sendall(PING_FOR_AN_ANSWER + on_the_wire(b"first") + on_the_wire(b"last"))
    connection.shutdown(socket.SHUT_WR)
    until_true(lambda: line.news() or line.next_deadline() == 0, "a message is kept")
    assert (line.news(), line.next_deadline()) == (None, 0)
    assert [until(line.receive) for _ in range(2)] == [[b"first"], [b"last"]]
    assert until(line.news) is False


def test_once_the_way_there_is_cut_nothing_counts_as_sent_and_what_came_is_given_out(
    server, line
) -> None:
    connection = opened(server, line)
    connection.sendall(on_the_wire(b"the last word"))
    connection.shutdown(socket.SHUT_RD)
    connection.close()
    until_true(lambda: not line.send([b"is anybody there?"]), "a send that fails")
    assert not line.send([b"and now?"])
    assert until(line.receive) == [b"the last word"]
    assert until(line.news) is False


# ------------------------------------------------------------------ what is owed


def test_what_does_not_fit_is_owed_and_leaves_in_order_once_there_is_room(server, line) -> None:
    connection = opened(server, line)
    sent: list[bytes] = []
    while line.send([b"%d" % len(sent), bytes(100_000)]):
        sent.append(on_the_wire(b"%d" % len(sent), bytes(100_000)))
    assert OWED_BYTES_MAX < line._owed.size < OWED_BYTES_MAX + 200_000
    expected = b"".join(sent)
    came = b""
    while len(came) < len(expected):
        assert is_readable(line) or select.select([connection], [], [], 5)[0]
        moving(line)
        came += connection.recv(1 << 20)
    assert came == expected
    assert line._owed.size == 0
    assert not is_readable(line)  # it is writable, and nothing is owed


def test_small_messages_are_bounded_by_their_number(server, line) -> None:
    opened(server, line)
    while line.send([bytes(200)]):
        assert len(line._owed._buffers) <= OWED_MESSAGES_MAX
    assert len(line._owed._buffers) == OWED_MESSAGES_MAX
    assert line._owed.size < OWED_BYTES_MAX


def test_a_message_over_the_limit_is_owed_when_little_is(server, line) -> None:
    opened(server, line)
    assert line.send([bytes(30 << 20)])
    assert not line.send([b"another"])


def test_what_is_owed_is_dropped_with_its_connection_and_the_next_begins_anew(server, line) -> None:
    connection = opened(server, line)
    while line.send([bytes(100_000)]):
        pass
    connection.close()
    assert until(line.news) is False
    connection = server.accept_while(line)
    connection.sendall(BEGINNING)
    assert until(line.news) is True
    assert line.send([b"anew"])
    assert read(connection, HANDSHAKE_BYTES + 6)[HANDSHAKE_BYTES:] == on_the_wire(b"anew")


def test_a_close_waits_for_nothing_that_is_owed(server, line) -> None:
    connection = opened(server, line)
    while line.send([bytes(100_000)]):
        pass
    line.close()
    assert line.descriptors == ()
    until_true(lambda: not connection.recv(1 << 20), "the end of what was sent")


# ------------------------------------------------------------------ a server that is no friend

PING_FOR_AN_ANSWER = command(PING, b"\0\0context")


def test_a_ping_is_answered(server, line) -> None:
    connection = opened(server, line)
    connection.sendall(PING_FOR_AN_ANSWER)
    pong = command(PONG, b"context")
    until_true(lambda: moving(line) or select.select([connection], [], [], 0)[0], "an answer")
    assert read(connection, len(pong)) == pong


HOSTILE = {
    "http": (b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak ZMTP 3"),
    "curve": (b"\xff" + bytes(8) + b"\x7f\x03\x01CURVE" + bytes(47), "mechanism is 'CURVE'"),
    "version 2": (b"\xff" + bytes(8) + b"\x7f\x02\x00", "speaks ZMTP 2"),
    "a stranger": (BEGINNING.replace(b"ROUTER", b"PUBLIC"), "cannot talk to a DEALER"),
    "garbage": (BEGINNING + b"\xee" * 64, "no ZMTP"),
    "a frame too large": (BEGINNING + b"\x02\x7f" + b"\xff" * 7, "over the limit"),
    "frames without end": (BEGINNING + b"\x01\0" * 3_000, "frames"),
    "an unnamed command": (BEGINNING + b"\x04\x01\x09", "no name"),
}


@pytest.mark.parametrize("kind", list(HOSTILE))
def test_who_does_not_speak_as_we_do_is_left_in_words_and_tried_again_later_and_later(
    server, line, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    said, words = HOSTILE[kind]
    caplog.set_level(logging.WARNING, "oncemq.client")
    line.connect(server.address)
    longer: list[int] = []
    for _ in range(4):
        connection = server.accept_while(line)
        connection.sendall(said)
        until_true(lambda: moving(line) or line._socket is None, "it is left")
        assert line._dialing.due is not None
        longer.append(line._dialing.waits._next)
    assert longer == [40_000, 80_000, 160_000, 320_000]
    told = [each for each in caplog.messages if words in each]  # once, not for each try
    assert len(told) == 1
    assert server.address in told[0]


def test_a_server_that_pings_and_does_not_read_is_left(
    server, line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line, "_owed_bytes_max", 64 << 10)
    connection = opened(server, line)
    connection.setblocking(False)
    pings = PING_FOR_AN_ANSWER * 4_000

    def flood() -> bool:
        with suppress(OSError):
            connection.send(pings)
        moving(line)
        assert line._owed.size < 1 << 20
        return line._socket is None

    until_true(flood, "it is left")


def test_a_server_that_says_more_and_more_lets_others_have_their_turn(
    server, line, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`receive` comes back without a message, while one of any length is under way."""
    monkeypatch.setattr(link, "TURN_BYTES", 1 << 20)
    connection = opened(server, line)
    said = on_the_wire(bytes(32 << 20))
    sender = threading.Thread(target=connection.sendall, args=(said,))
    sender.start()
    looks = 0
    while (message := line.receive()) is None:
        looks += 1
        assert line._turn_bytes <= 1 << 20
    sender.join()
    assert len(message[0]) == 32 << 20
    assert looks >= 4


def test_silence_in_the_handshake_ends_an_attempt(server, line, monkeypatch) -> None:
    monkeypatch.setattr(link, "ATTEMPT_MICROS", 50_000)
    line.connect(server.address)
    connection = server.accept_while(line)
    connection.sendall(BEGINNING[:30])
    until_true(lambda: moving(line) or line._socket is None, "the attempt's end")
    deadline = line.next_deadline()
    assert deadline is not None
    server.accept_while(line)  # and it is tried again


# ------------------------------------------------------------------ ways to a server


def test_a_refused_connect_is_tried_again_with_waits(server, line) -> None:
    server.close()
    line.connect(server.address)
    until_true(lambda: moving(line) or line._dialing.waits._next >= 80_000, "two rounds")
    assert line.news() is None
    deadline = line.next_deadline()
    assert deadline is not None


class RefusedLater(socket.socket):
    """Connects, and is refused when something is to be sent: as from a machine that is far away."""

    def sendmsg(self, *_: object) -> int:
        raise ConnectionRefusedError(errno.ECONNREFUSED, "nobody listens there")


def test_who_is_refused_later_tries_again_without_waiting_for_the_end_of_the_attempt(
    server, line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "ATTEMPT_MICROS", 600_000_000)
    ends = [RefusedLater(), socket.socket()]
    for each in ends:
        each.setblocking(False)

    def connecting(endpoint: Endpoint) -> socket.socket:
        each = ends.pop(0)
        each.connect_ex(endpoint.address)
        return each

    monkeypatch.setattr(dialing, "connecting", connecting)
    line.connect(server.address)
    server.accept()  # the system's answer to the first one, which does not know of it
    server.accept_while(line).sendall(BEGINNING)
    assert until(line.news) is True


def test_each_address_of_a_name_is_tried_in_turn_without_a_wait(
    server, line, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, int]] = []

    def look_up(host: str, port: int) -> list[Endpoint]:
        asked.append((host, port))
        away = socket.create_server(("127.0.0.1", 0))
        nowhere = away.getsockname()[1]
        away.close()
        ports = (nowhere, nowhere, server.port)
        return [Endpoint(socket.AF_INET, ("127.0.0.1", each)) for each in ports]

    monkeypatch.setattr(name_lookup, "look_up", look_up)
    line.connect("tcp://server.example:5556")
    assert not line.send([b"too early"])
    connection = server.accept_while(line)
    connection.sendall(BEGINNING)
    assert until(line.news) is True
    assert asked == [("server.example", 5556)]
    assert line._dialing.waits._next == 20_000  # no round has failed


def test_a_name_is_looked_up_by_a_thread_that_nobody_waits_for(
    server, line, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even when the address is left meanwhile; asked again, the same thread's answer counts."""
    asked, answers = threading.Semaphore(0), threading.Event()

    def look_up(host: str, port: int) -> list[Endpoint]:
        asked.release()
        assert answers.wait(30)
        return [Endpoint(socket.AF_INET, ("127.0.0.1", server.port))]

    monkeypatch.setattr(name_lookup, "look_up", look_up)
    for _ in range(3):
        line.connect("tcp://slow.example:1")
        moving(line)
        assert not is_readable(line)
        line.connect("tcp://127.0.0.1:9")
    line.connect("tcp://slow.example:1")
    answers.set()
    assert is_readable(line, 30)
    connection = server.accept_while(line)
    assert asked.acquire(timeout=0)
    assert not asked.acquire(timeout=0)
    connection.sendall(BEGINNING)
    assert until(line.news) is True
    assert not is_readable(line), "there is nothing more to do for the name"


def test_where_no_thread_can_be_had_a_name_is_asked_for_again(
    server, line, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        line.connect(f"tcp://localhost:{server.port}")
        until_true(lambda: moving(line) or line._dialing.reason, "a reason")
    assert line._dialing.reason.endswith("can't start new thread")
    server.accept_while(line)


def test_a_name_that_nobody_knows_is_asked_for_again(line, monkeypatch) -> None:
    def look_up(host: str, port: int) -> list[Endpoint]:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(name_lookup, "look_up", look_up)
    line.connect("tcp://nobody.example:5556")
    until_true(lambda: moving(line) or line._dialing.waits._next >= 80_000, "two rounds")
    assert "'nobody.example' was not found: Name or service" in line._dialing.reason


def test_ipv6_and_paths_are_addresses(line, tmp_path) -> None:
    six = socket.create_server(("::1", 0), family=socket.AF_INET6)
    line.connect(f"tcp://[::1]:{six.getsockname()[1]}")
    six.accept()[0].close()
    six.close()
    path = tmp_path / "door.sock"
    unix = socket.socket(socket.AF_UNIX)
    unix.bind(str(path))
    unix.listen()
    line.connect(f"ipc://{path}")
    connection = unix.accept()[0]
    connection.sendall(BEGINNING)
    assert until(line.news) is True
    connection.close()
    unix.close()
    path.unlink()
    assert until(line.news) is False
    until_true(lambda: moving(line) or line._dialing.waits._next >= 80_000, "two rounds")


@pytest.mark.parametrize(
    "address",
    ["foo", "tcp://foo", "tcp://:1", "tcp://a:", "tcp://a:0", "tcp://a:65536", "tcp://a:1x",
     "tcp://a:²", "tcp://*:5", "tcp://::1:5", "tcp://[a]:5", "tcp://[127.0.0.1]:5", "ipc://",
     "ipc://@", "ipc://" + "x" * 104, "udp://a:1", "tcp://a/b:1"],
)  # fmt: skip
def test_what_is_no_address_is_refused_with_an_example(line, address: str) -> None:
    with pytest.raises(ConfigError, match=r"looks like tcp://127\.0\.0\.1:5556"):
        line.connect(address)
    assert (line.descriptors, line.news(), line.send([b"x"]), line.receive()) == (
        *((), None, False),
        None,
    )


def test_a_path_whose_queue_is_full_is_no_connection(tmp_path) -> None:
    """Linux says so at once, and the socket would never be connected."""
    place = str(tmp_path / "full")
    with socket.socket(socket.AF_UNIX) as listening, contextlib.ExitStack() as waiting:
        listening.bind(place)
        listening.listen(0)

        def fill() -> None:
            for _ in range(10):
                waiting.enter_context(dialing.connecting(Endpoint(socket.AF_UNIX, place)))

        with pytest.raises(BlockingIOError):
            fill()


def test_the_path_of_a_socket_has_one_byte_at_least_and_103_at_most() -> None:
    for path in ("a", "@a", "a" * 103):
        name = path.replace("@", "\0").encode()
        endpoints = server_address(f"ipc://{path}").endpoints
        assert endpoints == (Endpoint(socket.AF_UNIX, name),)
    for path in ("", "@", "a" * 104):
        with pytest.raises(ConfigError):
            server_address(f"ipc://{path}")


def test_a_socket_that_would_connect_to_itself_is_none(line, monkeypatch) -> None:
    """A free port of this machine may be given to the very socket that looks for a server there."""

    def to_itself(endpoint: Endpoint) -> socket.socket:
        itself = socket.socket()
        itself.bind(("127.0.0.1", 0))
        itself.connect(itself.getsockname())
        itself.setblocking(False)
        return itself

    monkeypatch.setattr(dialing, "connecting", to_itself)
    line.connect("tcp://127.0.0.1:9")
    moving(line)
    assert line._socket is None


def test_descriptors_that_cannot_be_had_are_said_so_and_later_tried_for_again(
    server, line, monkeypatch
) -> None:
    real = dialing.connecting

    def none(endpoint: Endpoint) -> socket.socket:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(dialing, "connecting", none)
    with pytest.raises(TooManyFiles, match="ulimit -n"):
        line.connect(server.address)
    until_true(lambda: moving(line) or line._dialing.waits._next >= 80_000, "two rounds")
    monkeypatch.setattr(dialing, "connecting", real)
    server.accept_while(line)


# ------------------------------------------------------------------ ends of many kinds


def test_a_line_that_is_collected_closes_its_socket(server) -> None:
    line = DealerSocket()
    connection = opened(server, line)
    gone = weakref.ref(line)
    del line
    gc.collect()
    assert gone() is None
    assert connection.recv(1) == b""


def test_a_fork_in_the_middle_leaves_the_connection_to_the_parent(server, line) -> None:
    connection = opened(server, line)
    while line.send([bytes(100_000)]):  # something is owed, too
        pass
    child = os.fork()
    if child == 0:
        line.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    connection.setblocking(False)
    came = 0

    def drained() -> bool:
        nonlocal came
        moving(line)
        try:
            came += len(connection.recv(1 << 20))
        except BlockingIOError:
            return line._owed.size == 0
        return False

    until_true(drained, "all that was owed")
    assert not is_readable(line)
    connection.setblocking(True)
    connection.sendall(on_the_wire(b"still here"))
    assert is_readable(line, 5)
    assert until(line.receive) == [b"still here"]
    connection.close()
    assert is_readable(line, 5)
    assert until(line.news) is False


class InterruptedSocket:
    """Does what it is asked, and then a handler of a signal raises."""

    def __init__(self, real: socket.socket) -> None:
        self._real = real

    def __getattr__(self, name: str):
        def call(*arguments: object) -> object:
            getattr(self._real, name)(*arguments)
            raise KeyboardInterrupt

        return (
            call if name in ("send", "sendmsg", "recv", "recv_into") else getattr(self._real, name)
        )


@pytest.mark.parametrize("doing", ["send", "sendmsg", "flush", "recv"])
def test_what_a_signal_interrupts_costs_the_connection_and_no_byte_is_said_twice(
    server, line, doing: str
) -> None:
    connection = opened(server, line)
    connection.sendall(on_the_wire(b"lost with it"))
    real = line._socket
    line._socket = InterruptedSocket(real)
    line._watched._open.remove(real)
    line._watched._open.append(line._socket)
    calls = {
        "send": lambda: line.send([b"x"]),
        "sendmsg": lambda: line.send([b"x", bytes(10_000)]),
        "flush": lambda: (line._owed.add([b"x"]), line.send([b"y"])),
        "recv": lambda: until(line.receive),
    }
    with pytest.raises(KeyboardInterrupt):
        calls[doing]()
    assert line.news() is False
    assert server.accept_while(line) is not connection


def test_what_is_interrupted_while_a_message_is_understood_costs_the_connection(
    server, line, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = opened(server, line)
    connection.sendall(on_the_wire(b"half understood"))

    def next_event(_: ZmtpConnection) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ZmtpConnection, "next_event", next_event)
        with pytest.raises(KeyboardInterrupt):
            until(line.receive)
    assert line.news() is False
    assert server.accept_while(line) is not connection


class FullSocket(socket.socket):
    """Takes nothing the first time."""

    full = True

    def send(self, *data: Any) -> int:
        if self.full:
            self.full = False
            raise BlockingIOError
        return super().send(*data)

    def sendmsg(self, *data: Any) -> int:
        if self.full:
            self.full = False
            raise BlockingIOError
        return super().sendmsg(*data)


@pytest.mark.parametrize("frames", [[b"x"], [b"x", bytes(10_000)]], ids=["send", "sendmsg"])
def test_a_message_of_which_nothing_fits_is_owed_whole(
    server, line, monkeypatch: pytest.MonkeyPatch, frames: list[bytes]
) -> None:
    full = FullSocket()
    full.full = False
    full.setblocking(False)
    monkeypatch.setattr(
        dialing, "connecting", lambda endpoint: (full.connect_ex(endpoint.address), full)[1]
    )
    connection = opened(server, line)
    full.full = True
    assert line.send(frames)
    assert line.send([b"next"])
    until_true(lambda: moving(line) or not line._owed.size, "all to leave")
    expected = on_the_wire(*frames) + on_the_wire(b"next")
    assert read(connection, len(expected)) == expected


def test_reasons_that_were_said_are_forgotten_when_there_are_too_many(line, monkeypatch) -> None:
    monkeypatch.setattr(link, "SAID_MAX", 3)
    for number in range(10):
        line._note(f"reason {number}", warns=True)
    assert 0 < len(line._said) <= 3
