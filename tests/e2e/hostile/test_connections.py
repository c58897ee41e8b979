"""Attacks below our protocol: on the handshake, on frames, on the number of connections.

Each has an honest client beside it that must not have an error; what each did to a server on
libzmq 4.3.5 is said where it did something.
"""

import random
import socket
import struct
import time

import pytest

from oncemq.protocol.requests import StatusRequest
from tests.e2e.hostile.ground import MIB, Ground, hung_up, pour, request, reset
from tests.harness.zmtp import frame, hello, long_head, ping, ready

pytestmark = pytest.mark.slow

STATUS = request(StatusRequest())


@pytest.mark.parametrize("where", ["requests", "feed"])
def test_pings_behind_a_flood_and_a_reset(ground: Ground, where: str) -> None:
    # libzmq answered a PING on a connection that it had noted as broken: abort() of the server.
    with ground.under_attack(memory=64 * MIB):
        for _ in range(6):
            if where == "feed":
                link = ground.listen()
                block = b"".join(
                    frame(b"\x01" + struct.pack(">Q", n)) * 3 + ping() for n in range(400)
                )
            else:
                link = ground.join()
                block = (STATUS * 3 + ping()) * 400
            pour([link], block, seconds=0.2)
            reset(link)


def test_routing_ids_that_libzmq_would_give_out_next(ground: Ground) -> None:
    # libzmq's own numbers begin at 0x6b8b4567 in every process: who claims the next one ended the
    # server with the next honest connection.
    with ground.under_attack(memory=32 * MIB):
        for n in range(1, 100):
            ground.join(identity=b"\0" + struct.pack(">I", 0x6B8B4567 + n))
        for _ in range(20):
            link = ground.join()
            link.sendall(STATUS)
            assert link.recv(4_096)


def test_an_identity_claimed_twice_takes_nobody_s_answers(ground: Ground) -> None:
    with ground.under_attack(memory=32 * MIB):
        links = [ground.join(identity=b"billing") for _ in range(3)]
        for link in links:
            link.sendall(STATUS)
            assert link.recv(4_096)


def test_pings_without_their_time_to_live(ground: Ground) -> None:
    # libzmq answered with 16 bytes of its memory.
    with ground.under_attack(memory=32 * MIB):
        for _ in range(20):
            link = ground.join()
            link.sendall(b"\x04\x05\x04PING" * 30)
            link.settimeout(10)
            heard = b""
            try:
                while piece := link.recv(65_536):
                    heard += piece
            except OSError:
                pass
            assert b"PONG" not in heard


def test_a_storm_of_pings(ground: Ground) -> None:
    with ground.under_attack(memory=64 * MIB):
        pour([ground.join() for _ in range(4)], ping(b"x" * 16) * 2_000, seconds=1.5)


def test_commands_that_nobody_knows(ground: Ground) -> None:
    with ground.under_attack(memory=64 * MIB):
        pour([ground.join() for _ in range(4)], b"\x04\x02\x01A" * 10_000, seconds=1.5)


def test_connections_that_say_nothing(ground: Ground) -> None:
    with ground.under_attack(memory=64 * MIB):
        silent = [ground.connect() for _ in range(300)]
        ground.assert_serves()
        assert all(hung_up(link) for link in silent[:5])  # the handshake takes 2 s at most


def test_half_handshakes(ground: Ground) -> None:
    whole = hello() + ready(b"DEALER")
    with ground.under_attack(memory=64 * MIB):
        for _ in range(3):
            for place in (1, 10, 11, 12, 32, 63, 64, 65, 66, 70, len(whole) - 1):
                for said in (whole, hello(mechanism=b"CURVE") + ready(b"DEALER")):
                    ground.connect().sendall(said[:place])


def test_garbage_on_both_ports(ground: Ground) -> None:
    chance = random.Random(1)
    seeds = [hello() + ready(b"DEALER") + STATUS, hello(minor=0) + ready(b"REQ"), b"\x01\x00"]
    with ground.under_attack(memory=64 * MIB):
        for n in range(600):
            said = bytearray(chance.choice(seeds) + chance.randbytes(chance.randrange(300)))
            for _ in range(chance.randrange(8)):
                said[chance.randrange(len(said))] = chance.randrange(256)
            link = ground.connect((ground.port, ground.feed_port)[n % 2])
            link.sendall(bytes(said))
            if n % 3:
                reset(link)


@pytest.mark.parametrize(
    "greeting",
    [
        b"\x01\x00",
        b"\x06\x00alice",
        b"\xff" + bytes(7) + b"\x01\x7f\x00\x05\x00\x00",
        b"\xff" + bytes(7) + b"\x01\x7f\x01\x05\x00\x05alice",
        b"\xff" + bytes(7) + b"\x01\x7e",
    ],
    ids="1.0 1.0-named 2.0 2.0-named 1.0-long".split(),
)
def test_peers_of_zmtp_1_and_2_are_not_served(ground: Ground, greeting: bytes) -> None:
    with ground.under_attack(memory=32 * MIB):
        for port in (ground.port, ground.feed_port):
            link = ground.connect(port)
            link.sendall(greeting + bytes((len(STATUS), 0)) + STATUS[2:])
            link.settimeout(10)
            heard = b""
            try:
                while piece := link.recv(4_096):
                    heard += piece
            except OSError:
                pass
            assert b"OQ" not in heard


@pytest.mark.parametrize("minor", [0, 1, 9])
def test_peers_of_zmtp_3_are_served_whatever_their_minor_version(
    ground: Ground, minor: int
) -> None:
    link = ground.connect()
    link.sendall(hello(minor=minor) + ready(b"DEALER") + STATUS)
    heard = b""
    while b"OQ\x01" not in heard:
        piece = link.recv(65_536)
        assert piece
        heard += piece
    ground.hang_up()


def test_absurd_lengths(ground: Ground) -> None:
    with ground.under_attack(memory=64 * MIB):
        for size in (2**31, 2**63 - 1, 2**63, 2**64 - 1):
            for command in (False, True):
                link = ground.join()
                link.sendall(long_head(size, command=command) + b"x" * 100)
                assert hung_up(link)


def test_lengths_that_are_announced_and_not_sent(ground: Ground) -> None:
    # libzmq allocated at the head: 100 peers and 8 KB each ended a server limited to 4 GB.
    with ground.under_attack(memory=64 * MIB):
        for _ in range(100):
            ground.join().sendall(long_head(60 * MIB) + bytes(8_192))
        time.sleep(0.5)  # while they lie there
        ground.assert_serves()


def test_frames_without_end(ground: Ground) -> None:
    # libzmq kept every frame of an unfinished message: as much memory as was sent.
    with ground.under_attack(memory=64 * MIB):
        pour([ground.join()], frame(b"x" * 200, more=True) * 2_000, seconds=1.0)
        pour([ground.join()], frame(b"", more=True) * 20_000, seconds=0.5)


def test_frames_that_are_sent_a_byte_at_a_time(ground: Ground) -> None:
    with ground.under_attack(memory=64 * MIB):
        links = [ground.join() for _ in range(20)]
        for link in links:
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            link.sendall(long_head(60_000))
        for _ in range(100):
            for link in links:
                link.sendall(b"x")


@pytest.mark.parametrize("reading", [True, False], ids=["read", "unread"])
def test_a_flood_of_small_requests(ground: Ground, reading: bool) -> None:
    with ground.under_attack(memory=128 * MIB):
        links = [ground.join() for _ in range(8)]
        pour(links, STATUS * 2_000, seconds=2.0, reading=reading)


def test_connections_that_come_and_go(ground: Ground) -> None:
    with ground.under_attack(memory=64 * MIB):
        end = time.monotonic() + 2
        while time.monotonic() < end:
            reset(ground.join())
