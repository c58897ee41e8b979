"""What peers may take of a server: each limit is reached, and what happens then is what it says."""

import contextlib
import errno
import logging
import os
import resource
import select
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from oncemq.transport.feed_publisher import FeedPublisher
from oncemq.transport.router import REQUEST_FRAMES_MAX, RouterSocket
from oncemq.transport.serving.connections import DROPPED, REFUSED, Connections
from oncemq.transport.serving.limits import ConnectionLimits
from oncemq.zmtp import commands
from tests.harness.raw_peer import RawPeer, handshake, message
from tests.harness.served import until_served

FRAME_BYTES_MAX = 1 << 20
A, B, C = (b"\0" * 7 + bytes((each,)) for each in (1, 2, 3))


@dataclass
class Place:
    """A server's sockets whose clock a test sets, and who is connected to them."""

    door: RouterSocket
    feed: FeedPublisher
    connections: Connections
    now: list[float]
    told: list[tuple[str, str]] = field(default_factory=list)
    peers: list[RawPeer] = field(default_factory=list)

    def peer(self, *said: bytes) -> RawPeer:
        self.peers.append(RawPeer(self.door.address, *said))
        return self.peers[-1]

    def known(self) -> tuple[RawPeer, bytes]:
        """One that is open, and the route to it."""
        peer = self.peer(handshake(), message(b"hello"))
        received = until_served(self.door, self.door.receive)
        assert list(received[1]) == [b"hello"]
        return peer, received[0]

    def listener(self, *subjects: bytes) -> RawPeer:
        joined = [message(b"\1" + subject) for subject in subjects]
        self.peers.append(RawPeer(self.feed.address, handshake(b"SUB"), *joined))
        return self.peers[-1]

    def pass_time(self, seconds: float, looks: int = 0) -> None:
        """At the pace at which a server looks; or in so many steps, while it is away."""
        looks = looks or round(seconds * 10)
        for _ in range(looks):
            self.now[0] += seconds / looks
            self.connections.wait(0)

    def is_served(self, peer: RawPeer, route: bytes) -> bool:
        peer.say(message(b"still there?"))
        found = until_served(self.door, self.door.receive)
        return found[0] == route and list(found[1]) == [b"still there?"]


@pytest.fixture
def place() -> Iterator[Callable[..., Place]]:
    made: list[Place] = []

    def make(**limits: int) -> Place:
        now = [1_000.0]
        connections = Connections(ConnectionLimits(**limits), lambda: now[0])
        door = RouterSocket(
            "tcp://127.0.0.1:*", frame_bytes_max=FRAME_BYTES_MAX, connections=connections
        )
        found = Place(door, FeedPublisher("tcp://127.0.0.1:*", connections), connections, now)

        def tell(kind: str, /, **facts: str | int) -> None:
            found.told.append((kind, str(facts["reason"]).partition(":")[0]))

        connections.tell = tell
        made.append(found)
        return found

    yield make
    for each in made:
        for peer in each.peers:
            peer.close()
        each.door.close()
        each.feed.close()


def test_who_does_not_shake_hands_is_gone_after_two_seconds(place) -> None:
    here = place()
    honest, route = here.known()
    silent, half = here.peer(), here.peer(handshake()[:70])
    until_served(here.door, lambda: here.connections.status["handshakes"] == 2 or None)
    here.pass_time(1.9)
    assert here.connections.status["handshakes"] == 2
    here.pass_time(0.6)
    for each in (silent, half):
        until_served(here.door, each.is_over)
    assert here.told == [(REFUSED, "handshake_ms")] * 2
    assert here.is_served(honest, route)


def test_a_newcomer_pushes_out_the_longest_handshake(place) -> None:
    here = place(handshakes_max=2)
    silent = [here.peer() for _ in range(3)]
    until_served(here.door, silent[0].is_over)
    assert here.told == [(REFUSED, "handshakes_max")]
    honest, route = here.known()
    assert here.is_served(honest, route)


def test_when_all_connections_are_taken_a_newcomer_is_closed_at_once(place, caplog) -> None:
    caplog.set_level(logging.INFO, "oncemq.server")
    here = place(connections_max=2)
    first, route = here.known()
    second, _ = here.known()
    until_served(here.door, here.peer(handshake()).is_over)
    assert here.told == [(REFUSED, "connections_max")]
    assert len(here.door.peers) == 2
    assert "connections at the limit connections=2" in caplog.text
    assert here.is_served(first, route)
    second.close()
    until_served(here.door, lambda: (here.door.receive(), here.connections.count == 1)[1] or None)
    here.pass_time(1)
    here.pass_time(5)
    assert caplog.text.count("connections below the limit connections=1") == 1
    here.known()
    until_served(here.door, here.peer(handshake()).is_over)
    assert caplog.text.count("connections at the limit connections=2") == 2


def test_one_that_has_not_shaken_hands_makes_room_for_a_newcomer(place) -> None:
    here = place(connections_max=2)
    here.known()
    silent = here.peer()
    until_served(here.door, lambda: here.connections.count == 2 or None)
    here.known()
    until_served(here.door, silent.is_over)


def test_a_frame_over_the_limit_ends_the_connection_at_its_head(place) -> None:
    here = place()
    honest, route = here.known()
    rude, _ = here.known()
    rude.say(b"\2" + (FRAME_BYTES_MAX + 1).to_bytes(8, "big"))
    until_served(here.door, lambda: here.door.receive() or rude.is_over())
    assert here.told == [(DROPPED, "a frame of 1048577 bytes, over the limit of 1048576")]
    assert here.connections.held_bytes == 0
    assert here.is_served(honest, route)


def test_a_message_of_too_many_frames_ends_the_connection(place) -> None:
    here = place()
    rude, _ = here.known()
    rude.say(b"\1\0" * (REQUEST_FRAMES_MAX + 1))
    until_served(here.door, lambda: here.door.receive() or rude.is_over())
    assert [kind for kind, _ in here.told] == [DROPPED]


def test_a_message_that_stands_still_is_given_up(place) -> None:
    here = place()
    honest, route = here.known()
    slow, _ = here.known()
    slow.say(b"\2" + (100_000).to_bytes(8, "big") + bytes(10))
    until_served(here.door, lambda: here.door.receive() or here.connections.held_bytes or None)
    here.pass_time(29)
    assert here.told == []
    here.pass_time(2)
    until_served(here.door, slow.is_over)
    assert here.told == [(DROPPED, "unfinished_ms")]
    assert here.connections.held_bytes == 0
    assert here.is_served(honest, route)


def test_a_message_that_comes_slowly_and_fast_enough_is_heard(place) -> None:
    here = place(progress_bytes_min=100)
    slow, _ = here.known()
    whole = message(bytes(20_000))
    for at in range(0, len(whole), 4_000):
        slow.say(whole[at : at + 4_000])
        if at + 4_000 < len(whole):
            came = at + 3_000
            until_served(
                here.door,
                lambda came=came: here.door.receive() or here.connections.held_bytes > came or None,
            )
            here.pass_time(20)
    assert list(until_served(here.door, here.door.receive)[1]) == [bytes(20_000)]
    assert here.told == []


def test_no_time_passes_for_peers_while_the_server_hears_nobody(place) -> None:
    here = place()
    slow, route = here.known()
    slow.say(message(b"whole")[:3])
    until_served(here.door, lambda: here.door.receive() or here.connections.held_bytes or None)
    begun, clock = here.now[0], here.connections

    class Stalled:
        def wait(self, _: int) -> None:
            here.now[0] = begun + 600

    clock.bells = Stalled()  # type: ignore[assignment]
    here.door.rest(200)
    here.pass_time(1)
    assert here.told == []
    slow.say(message(b"whole")[3:])
    assert until_served(here.door, here.door.receive) == (route, [b"whole"])


def test_unfinished_messages_of_all_peers_are_bounded_and_the_oldest_goes(place) -> None:
    here = place(unfinished_bytes_max=500_000)
    peers = [here.known()[0] for _ in range(3)]
    for number, each in enumerate(peers):
        each.say(b"\2" + (900_000).to_bytes(8, "big") + bytes(200))
        until_served(
            here.door,
            lambda number=number: (
                here.door.receive() or here.connections.held_bytes > 200 * number or None
            ),
        )
    for each in peers:
        each.say(bytes(150_000))
    until_served(here.door, lambda: here.door.receive() or peers[0].is_over())
    assert here.told[0] == (DROPPED, "unfinished_bytes_max")
    assert here.connections.held_bytes <= 500_000


def owing(here: Place, route: bytes, most: int) -> None:
    """Send to a peer that does not read, until it owes more than so much."""
    until_served(
        here.door,
        lambda: (
            (here.door.send(route, [bytes(100_000)]), here.connections.owed_bytes > most)[1] or None
        ),
    )


def test_who_does_not_read_its_replies_is_not_heard_until_it_does(place) -> None:
    here = place(owed_pause_bytes=200_000)
    honest, honest_route = here.known()
    peer, route = here.known()
    owing(here, route, 200_000)
    peer.say(message(b"more"))
    assert here.is_served(honest, honest_route)
    here.connections.wait(0)
    assert here.door.receive() is None
    assert here.told == []
    found: list[tuple[bytes, object]] = []

    def read() -> object:
        peer.heard()
        found.extend(filter(None, [here.door.receive()]))
        return found or None

    until_served(here.door, read)
    assert found == [(route, [b"more"])]


def test_who_reads_a_little_is_not_heard_before_half_of_the_limit(place) -> None:
    here = place(owed_pause_bytes=200_000)
    peer, route = here.known()
    owing(here, route, 8_000_000)
    while here.connections.owed_bytes:
        peer.heard()
        here.connections.wait(0)
        assert here.door.takes(route) == (here.connections.owed_bytes <= 100_000)


@pytest.mark.parametrize("broken", [None, select.POLLERR, select.POLLHUP])
def test_who_breaks_off_while_it_is_not_heard_is_gone(place, broken: int | None) -> None:
    """Nobody would read why, and the poller would tell of it again and again."""
    here = place(owed_pause_bytes=200_000)
    peer, route = here.known()
    owing(here, route, 200_000)
    assert not here.door.takes(route)
    if broken is None:
        peer.close()  # it did not read what it was sent: the system resets the connection
        until_served(here.door, lambda: not here.connections.count or None)
    else:
        (served,) = here.connections._peers.values()
        here.connections._happened(served, broken)  # and no room to write
    assert (here.connections.count, here.connections.owed_bytes) == (0, 0)


def test_who_is_owed_too_much_is_dropped(place) -> None:
    here = place(owed_pause_bytes=100_000, owed_bytes_max=400_000)
    honest, honest_route = here.known()
    _, route = here.known()
    until_served(here.door, lambda: not here.door.send(route, [bytes(100_000)]) or None)
    assert here.told == [(DROPPED, "owed_bytes_max")]
    assert here.connections.owed_bytes == 0
    assert here.is_served(honest, honest_route)


def test_of_all_that_are_owed_too_much_the_oldest_goes(place) -> None:
    here = place(owed_total_max=600_000)
    _, first = here.known()
    owing(here, first, 400_000)
    _, second = here.known()
    until_served(
        here.door,
        lambda: (
            (here.door.send(second, [bytes(100_000)]), not here.door.send(first, [b""]))[1] or None
        ),
    )
    assert here.told == [(DROPPED, "owed_total_max")]
    assert here.door.send(second, [b""])


def test_who_takes_nothing_for_long_is_dropped(place) -> None:
    here = place()
    peer, route = here.known()
    owing(here, route, 1)
    here.pass_time(29)
    assert here.told == []
    here.pass_time(2)
    assert here.told == [(DROPPED, "owed_ms")]
    until_served(here.door, peer.is_over)


def test_a_server_that_once_heard_nobody_for_long_drops_who_takes_nothing_as_soon(place) -> None:
    here = place()
    begun = here.now[0]

    class Stalled:
        def wait(self, _: int) -> None:
            here.now[0] = begun + 600

    here.connections.bells = Stalled()  # type: ignore[assignment]
    here.door.rest(200)
    peer, route = here.known()
    owing(here, route, 1)
    here.pass_time(31)
    assert here.told == [(DROPPED, "owed_ms")]
    until_served(here.door, peer.is_over)


def test_no_time_passes_for_peers_while_the_server_is_away_altogether(place) -> None:
    """As in a sync that the loop waits for, or while its machine sleeps."""
    here = place()
    honest, route = here.known()
    slow, _ = here.known()
    slow.say(message(b"whole")[:3])
    until_served(here.door, lambda: here.door.receive() or here.connections.held_bytes or None)
    newcomer = here.peer()
    until_served(here.door, lambda: here.connections.status["handshakes"] or None)
    here.pass_time(3_600, looks=1)
    assert here.told == []
    newcomer.say(handshake(), message(b"late"))
    assert list(until_served(here.door, here.door.receive)[1]) == [b"late"]
    here.pass_time(31)
    assert here.told == [(DROPPED, "unfinished_ms")]
    assert here.is_served(honest, route)


def test_pings_are_answered_and_what_they_are_owed_is_bounded_as_well(place) -> None:
    here = place(owed_pause_bytes=100_000)
    honest, honest_route = here.known()
    rude, _ = here.known()
    pings = commands.command(commands.PING, b"\0\0" + b"x" * 16) * 1_000
    left = b""  # what the system did not take: a ping is said to its end

    def flood() -> bool | None:
        nonlocal left
        left = left or pings
        with contextlib.suppress(BlockingIOError):
            left = left[rude.say(left) :]
        for _ in range(30):
            here.door.receive()
        return here.connections.owed_bytes > 100_000 or None

    until_served(here.door, flood)
    assert here.connections.owed_bytes < 300_000
    assert here.is_served(honest, honest_route)


def test_a_thousand_requests_of_one_do_not_keep_the_next_one_waiting(place) -> None:
    here = place()
    (flood, first), (other, second) = here.known(), here.known()
    flood.say(message(b"again") * 1_000)
    other.say(message(b"once"))
    routes: list[bytes] = []

    def take() -> bool | None:
        if (found := here.door.receive()) is not None:
            routes.append(found[0])
        return second in routes or None

    until_served(here.door, take)
    assert set(routes[:-1]) <= {first}
    assert len(routes) <= 2 * 16 + 1


def test_subjects_of_a_listener_and_of_all_are_bounded(place) -> None:
    here = place(subjects_max=2, subjects_total_max=3, subject_bytes_max=8)
    here.listener(A, b"far too long", B, C)
    changes = [until_served(here.feed, here.feed.change) for _ in range(2)]
    assert changes == [(True, A), (True, B)]
    here.listener(A, B)
    assert until_served(here.feed, here.feed.change) == (True, A)
    until_served(here.feed, lambda: here.feed.change() is None or None)
    assert here.feed.status["feed_subjects"] == 3


def test_who_leaves_what_it_never_wanted_changes_nothing(place) -> None:
    here = place()
    honest = here.listener(A)
    assert until_served(here.feed, here.feed.change) == (True, A)
    rude = here.listener(B)
    assert until_served(here.feed, here.feed.change) == (True, B)
    rude.say(message(b"\0" + A), message(b"\0" + B))
    assert until_served(here.feed, here.feed.change) == (False, B)
    here.feed.send([A, b"still pushed"])
    until_served(here.feed, lambda: message(A, b"still pushed") in (honest.heard() or b"") or None)


def test_a_listener_that_does_not_read_misses_whole_messages(place) -> None:
    here = place(feed_owed_max=200_000)
    slow, quick = here.listener(A), here.listener(A)
    for _ in range(2):
        until_served(here.feed, here.feed.change)
    came: list[bytes] = []
    sent = 0

    def push() -> bool | None:
        nonlocal sent
        here.feed.send([A, sent.to_bytes(4, "big") * 10_000])
        sent += 1
        came.append(quick.heard() or b"")
        return here.feed.status["feed_missed"] > 3 or None

    until_served(here.feed, push)
    assert here.connections.owed_bytes <= 2 * 200_000 + 50_000

    def read() -> bool | None:
        said = slow.heard()
        got.append(said or b"")
        return True if said is None and not here.connections.owed_bytes else None

    got: list[bytes] = []
    until_served(here.feed, lambda: (quick.heard(), read())[1])
    whole = b"".join(got)
    whole = whole[whole.index(b"\1\x08" + A) :]
    size = len(message(A, bytes(40_000)))
    numbers = [
        int.from_bytes(whole[at + size - 4 : at + size], "big") for at in range(0, len(whole), size)
    ]
    assert len(whole) % size == 0
    assert numbers == sorted(set(numbers))
    assert numbers[0] == 0


def test_what_listeners_are_owed_counts_the_message_that_is_to_be_sent(place) -> None:
    here = place(feed_owed_max=100_000)
    here.listener(A)
    until_served(here.feed, here.feed.change)

    def missed() -> int | None:
        here.feed.send([A, bytes(60_000)])
        return here.feed.status["feed_missed"] or None

    assert until_served(here.feed, missed) == 1
    assert 0 < here.connections.owed_bytes <= 100_000


@contextlib.contextmanager
def no_file_left() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_while_no_file_is_left_newcomers_wait_and_the_server_does_not_spin(place) -> None:
    here = place()
    honest, route = here.known()
    late = here.peer(handshake(), message(b"hello"))
    with no_file_left():
        here.connections.wait(1_000)  # there is somebody, and no file for it
        assert here.connections.poller.wait(0) == []
        assert here.is_served(honest, route)
    here.pass_time(1)
    assert list(until_served(here.door, here.door.receive)[1]) == [b"hello"]
    late.close()


class FaultyListener:
    """A listening socket that tells of an error first."""

    def __init__(self, listening: socket.socket, number: int) -> None:
        self._listening = listening
        self._number = number
        self.close = listening.close

    def accept(self) -> tuple[socket.socket, object]:
        if number := self._number:
            self._number = 0
            raise OSError(number, os.strerror(number))
        return self._listening.accept()


@pytest.mark.parametrize("name", "EPROTO ENETDOWN EHOSTUNREACH EPERM ECONNABORTED".split())
def test_a_newcomer_whose_connection_is_broken_already_ends_nobody_else_s(place, name) -> None:
    """Linux tells such things at the accept; a server that took them for its own would end."""
    here = place()
    here.door._acceptor._socket = FaultyListener(here.door._acceptor._socket, getattr(errno, name))
    here.known()


@pytest.mark.parametrize("name", ["ENOMEM", "ENOBUFS"])
def test_while_the_system_has_no_memory_for_newcomers_they_wait(place, name, caplog) -> None:
    here = place()
    honest, route = here.known()
    here.door._acceptor._socket = FaultyListener(here.door._acceptor._socket, getattr(errno, name))
    late = here.peer(handshake(), message(b"hello"))
    here.connections.wait(1_000)
    assert here.connections.poller.wait(0) == []
    assert "connections at the limit" in caplog.text
    assert here.is_served(honest, route)
    here.pass_time(1)
    assert list(until_served(here.door, here.door.receive)[1]) == [b"hello"]
    late.close()


def test_who_waits_for_a_file_is_let_in_as_soon_as_somebody_leaves(place, caplog) -> None:
    caplog.set_level(logging.INFO, "oncemq.server")
    here = place()
    leaving, _ = here.known()
    here.peer(handshake(), message(b"hello"))
    with no_file_left():
        here.connections.wait(1_000)
    assert "newcomers are turned away" in caplog.text
    leaving.close()  # and no time passes
    assert list(until_served(here.door, here.door.receive)[1]) == [b"hello"]


def test_an_address_that_is_closed_while_newcomers_wait_for_a_file_is_forgotten(place) -> None:
    here = place()
    door = RouterSocket(
        "tcp://127.0.0.1:*", frame_bytes_max=FRAME_BYTES_MAX, connections=here.connections
    )
    late = RawPeer(door.address, handshake())
    with no_file_left():
        here.connections.wait(1_000)
    door.close()
    here.pass_time(1)
    honest, route = here.known()
    assert here.is_served(honest, route)
    late.close()


def test_who_does_not_fit_is_told_why_before_the_end(place) -> None:
    here = place()
    odd = here.peer(handshake(b"PUB"))
    said = b""
    while part := until_served(here.door, odd.heard):
        said += part
    assert b"\5ERROR" in said


class FullLink:
    """A peer's link that takes nothing the first time."""

    def __init__(self, real: socket.socket) -> None:
        self._real = real
        self._is_full = True

    def __getattr__(self, name: str) -> Any:
        if name in ("send", "sendmsg") and self._is_full:
            return self._fail
        return getattr(self._real, name)

    def _fail(self, *_: object) -> None:
        self._is_full = False
        raise BlockingIOError


@pytest.mark.parametrize("frames", [[b"x"], [b"x", bytes(10_000)]], ids=["send", "sendmsg"])
def test_a_reply_of_which_nothing_fits_is_owed_whole(place, frames: list[bytes]) -> None:
    here = place()
    peer, route = here.known()
    here.door.peers[route].link = FullLink(here.door.peers[route].link)
    assert here.door.send(route, frames)
    assert here.door.send(route, [b"next"])
    expected = message(*frames) + message(b"next")
    assert here.connections.owed_bytes == len(expected)
    said = b""
    while not said.endswith(expected):
        said += until_served(here.door, peer.heard)


LARGE = bytes(range(256)) * 200


@pytest.mark.parametrize(
    "frames",
    [[LARGE], [b"x", LARGE], [LARGE, b"x"], [b"x", LARGE, b"y"], [LARGE] * 3, [b"x"] * 9],
    ids=lambda frames: " ".join(str(len(frame)) for frame in frames),
)
def test_a_reply_comes_whole_however_many_buffers_it_is_sent_in(place, frames: list[bytes]) -> None:
    here = place()
    peer, route = here.known()
    assert here.door.send(route, frames)
    assert here.door.send(route, [b"next"])
    expected = message(*frames) + message(b"next")
    said = b""
    while not said.endswith(expected):
        said += until_served(here.door, peer.heard)
    assert here.connections.owed_bytes == 0
