"""The connections to the other servers: made, made again elsewhere, and never waited for."""

from collections import deque
from collections.abc import Sequence

import pytest

from oncemq.cluster import links as links_module
from oncemq.cluster.links import MESSAGES_A_LOOK, ReplicaLinks
from oncemq.errors import ConfigError, TooManyFiles
from oncemq.protocol.names import Micros, ServerId
from oncemq.protocol.step import Body
from oncemq.transport.connecting.addresses import server_address
from oncemq.transport.wakeup import Bell
from tests.harness.agreement import A, B, C

AT_A, AT_B = "tcp://a:1", "tcp://b:1"
NOW = Micros(1_000_000)


class PlayedSocket:
    """Stands for a DealerSocket: what it says is put there by a test."""

    trouble: Exception | None = None  # of the next ones that connect

    def __init__(self, owed_bytes_max: int = 0) -> None:
        self.owed_bytes_max = owed_bytes_max
        self.descriptors = (7,)
        self.address = ""
        self.news_left: deque[bool] = deque()
        self.messages: deque[Sequence[Body]] = deque()
        self.sent: list[Sequence[Body]] = []
        self.has_room, self.is_closed = True, False
        self.deadline: Micros | None = None
        self.connects = 0
        self.unarrived = 0

    def connect(self, address: str) -> None:
        server_address(address)
        self.connects += 1
        if PlayedSocket.trouble is not None:
            raise PlayedSocket.trouble
        self.address = address

    def news(self) -> bool | None:
        return self.news_left.popleft() if self.news_left else None

    def receive(self) -> Sequence[Body] | None:
        return self.messages.popleft() if self.messages else None

    def send(self, frames: Sequence[Body]) -> bool:
        if self.has_room:
            self.sent.append(frames)
        return self.has_room

    def next_deadline(self) -> Micros | None:
        return self.deadline

    def close(self) -> None:
        self.is_closed = True


class Played:
    """Links over such sockets, and the bells that somebody watches."""

    def __init__(self) -> None:
        self.bells: list[Bell] = []
        self.links = ReplicaLinks(self)

    def watch_bell(self, bell: Bell) -> None:
        self.bells.append(bell)

    def forget_bell(self, bell: Bell) -> None:
        self.bells.remove(bell)

    def socket(self, server: ServerId) -> PlayedSocket:
        socket = self.links._links[server].socket
        assert isinstance(socket, PlayedSocket)
        return socket

    def ring(self) -> None:
        for bell in self.bells:
            bell.silence()

    def heard(self) -> list[tuple[ServerId, Sequence[Body]]]:
        return list(self.links.receive())


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Played:
    monkeypatch.setattr(links_module, "DealerSocket", PlayedSocket)
    monkeypatch.setattr(PlayedSocket, "trouble", None)
    return Played()


@pytest.fixture
def both(played: Played) -> Played:
    played.links.meet({A: AT_A, B: AT_B})
    return played


def test_each_server_has_one_connection_which_is_watched(both: Played) -> None:
    first = both.socket(A)
    both.links.meet({A: AT_A, B: AT_B})
    assert both.socket(A) is first
    assert (first.address, both.socket(B).address) == (AT_A, AT_B)
    assert [bell.descriptor for bell in both.bells] == [7, 7]


def test_who_is_no_server_any_more_is_parted_from(both: Played) -> None:
    gone = both.socket(B)
    both.links.meet({A: AT_A})
    assert gone.is_closed
    assert len(both.bells) == 1
    assert not both.links.send(B, [b"x"])


def test_who_moved_is_met_where_it_is_now(both: Played) -> None:
    before = both.socket(B)
    both.links.meet({A: AT_A, B: "tcp://b:2"})
    assert both.socket(B).address == "tcp://b:2"
    assert before.is_closed or before is both.socket(B)
    assert len(both.bells) == 2


def test_a_message_is_sent_now_or_not_at_all(both: Played) -> None:
    assert both.links.send(A, [b"x"])
    both.socket(A).has_room = False
    assert not both.links.send(A, [b"y"])
    assert not both.links.send(C, [b"x"])
    assert both.socket(A).sent == [[b"x"]]


def test_only_who_rang_is_heard(both: Played) -> None:
    both.socket(A).messages.append([b"one"])
    assert both.heard() == []
    both.ring()
    assert both.heard() == [(A, [b"one"])]
    both.socket(A).messages.append([b"two"])
    assert both.heard() == []


def test_nobody_talks_so_long_that_others_are_not_heard(both: Played) -> None:
    both.socket(A).messages.extend([[b"a"]] * (MESSAGES_A_LOOK + 1))
    both.socket(B).messages.append([b"b"])
    both.ring()
    assert both.heard() == [(A, [b"a"])] * MESSAGES_A_LOOK + [(B, [b"b"])]
    assert both.heard() == [(A, [b"a"])]  # without another ring
    assert both.heard() == []


def test_who_is_reached_again_is_told_once(both: Played) -> None:
    both.socket(A).news_left.append(True)
    both.socket(B).news_left.extend([True, False])
    both.ring()
    both.heard()
    assert both.links.connected() == [A]
    assert both.links.connected() == []


def test_who_is_not_connected_is_looked_at_when_nothing_rings(both: Played) -> None:
    both.socket(A).deadline = Micros(0)
    both.socket(A).messages.append([b"a"])
    both.socket(B).messages.append([b"b"])
    both.links.look(NOW)
    assert both.heard() == [(A, [b"a"])]


@pytest.mark.parametrize("trouble", [TooManyFiles("no descriptor"), OSError(24, "too many")])
def test_who_cannot_be_met_for_want_of_files_is_met_at_a_later_look(
    played: Played, monkeypatch: pytest.MonkeyPatch, trouble: Exception
) -> None:
    monkeypatch.setattr(PlayedSocket, "trouble", trouble)
    played.links.meet({A: AT_A})
    played.links.look(NOW)
    assert not played.links.send(A, [b"x"])
    monkeypatch.setattr(PlayedSocket, "trouble", None)
    played.links.look(NOW)
    assert played.links.send(A, [b"x"])
    assert len(played.bells) == 1


def test_who_moves_while_files_are_lacking_is_met_later(
    both: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PlayedSocket, "trouble", TooManyFiles("no descriptor"))
    both.links.meet({A: AT_A, B: "tcp://b:2"})
    monkeypatch.setattr(PlayedSocket, "trouble", None)
    both.links.look(NOW)
    assert both.socket(B).address == "tcp://b:2"
    assert both.links.send(B, [b"x"])
    assert len(both.bells) == 2


def looked_at(played: Played, seconds: int) -> None:
    """Looks, 0.1 s apart."""
    for tenth in range(10 * seconds + 1):
        played.links.look(Micros(NOW + tenth * 100_000))


def test_a_server_that_answers_nothing_is_connected_anew(both: Played) -> None:
    both.links.send(A, [b"x"])
    looked_at(both, 1)
    assert (both.socket(A).connects, both.socket(B).connects) == (2, 1)
    assert both.socket(A).address == AT_A


def test_a_server_that_answers_keeps_its_connection(both: Played) -> None:
    both.links.send(A, [b"x"])
    both.socket(A).messages.append([b"y"])
    both.ring()
    both.heard()
    looked_at(both, 5)
    assert both.socket(A).connects == 1


def test_a_server_that_takes_a_large_message_keeps_its_connection_and_is_named(
    both: Played,
) -> None:
    """60 MB on a wire of 100 Mbit/s: it was connected anew each second, and sent them anew."""
    socket = both.socket(A)
    socket.unarrived = 60_000_000
    both.links.send(A, [bytes(1_000)])
    named: list[list[ServerId]] = []
    for tenth in range(50):
        socket.unarrived -= 1_200_000
        both.links.look(Micros(NOW + tenth * 100_000))
        named.append(both.links.taking())
    assert socket.connects == 1
    assert named == [[A]] * 49 + [[]]  # the last part: it is whole, and may be answered
    for tenth in range(50, 60):
        both.links.look(Micros(NOW + tenth * 100_000))
    assert socket.connects == 2


def test_a_server_that_takes_nothing_more_of_a_large_message_is_connected_anew(
    both: Played,
) -> None:
    both.socket(A).unarrived = 60_000_000
    both.links.send(A, [bytes(1_000)])
    looked_at(both, 1)
    assert both.socket(A).connects == 2
    assert both.links.taking() == []


def test_what_did_not_leave_is_owed_no_answer(both: Played) -> None:
    both.socket(A).has_room = False
    both.links.send(A, [b"x"])
    looked_at(both, 5)
    assert both.socket(A).connects == 1


def test_what_was_sent_before_it_was_connected_again_is_owed_no_answer(both: Played) -> None:
    both.links.send(A, [b"x"])
    both.socket(A).news_left.extend([False, True])
    both.ring()
    both.heard()
    looked_at(both, 5)
    assert both.socket(A).connects == 1


def test_who_cannot_be_connected_anew_for_want_of_files_stays_met(
    both: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    both.links.send(A, [b"x"])
    monkeypatch.setattr(PlayedSocket, "trouble", TooManyFiles("no descriptor"))
    looked_at(both, 1)
    assert both.socket(A).connects == 2
    assert both.links.send(A, [b"y"])  # as the socket connects by itself


def test_an_address_that_is_none_costs_the_others_nothing_and_is_said_once(
    both: Played, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ConfigError):
        server_address("tcp://::1:5556")
    for _ in range(3):
        both.links.meet({A: "tcp://::1:5556", B: AT_B})
        both.links.look(NOW)
    assert not both.links.send(A, [b"x"])
    assert both.links.send(B, [b"x"])
    (said,) = [each.getMessage() for each in caplog.records]
    assert said.startswith("server cannot be met id=a")
    assert "brackets" in said
    both.links.meet({A: AT_A, B: AT_B})
    assert both.links.send(A, [b"x"])


def test_the_end_closes_them_all(both: Played) -> None:
    sockets = [both.socket(A), both.socket(B)]
    both.links.close()
    assert all(each.is_closed for each in sockets)
    assert both.bells == []
    both.links.look(NOW)
    assert not both.links.send(A, [b"x"])
