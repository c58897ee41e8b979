"""Commands on an open connection: heartbeats, subjects, an ERROR, and what we do not know."""

import pytest

from oncemq.zmtp import commands
from oncemq.zmtp.connection import Heard, SubjectChange
from oncemq.zmtp.messages import subscription
from tests.harness.zmtp import SMALL, frame, long_head, opened, owed, ping, told


def publisher(minor: int = 1):
    return opened(b"XPUB", b"SUB", minor=minor)


# ------------------------------------------------------------------ heartbeats


@pytest.mark.parametrize("context", [b"", b"c", b"x" * 16])
def test_a_ping_is_answered_with_its_context(context: bytes) -> None:
    connection = opened()
    assert told(connection, [ping(context, ttl=300)]) == ([Heard(b"PING")], "")
    assert owed(connection) == b"\x04" + bytes((5 + len(context),)) + b"\x04PONG" + context


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\0" + b"x" * 17])
def test_a_ping_that_is_none_ends_it(data: bytes) -> None:
    # A PING without its time to live made libzmq answer with bytes of its own memory.
    said = commands.command(b"PING", data)
    assert told(opened(), [said]) == ([], f"a PING of {len(data)} bytes")


def test_pings_are_answered_in_their_order_in_one_piece() -> None:
    connection = opened()
    contexts = [b"%d" % n for n in range(3_000)]
    told(connection, [b"".join(map(ping, contexts))])
    output = connection.take_output()
    assert len(output) == 1
    assert output[0] == b"".join(commands.command(b"PONG", each) for each in contexts)
    assert connection.take_output() == ()


def test_each_command_is_an_event_of_its_own() -> None:
    # So that who holds the socket may end a peer's turn between any two of them: 64 KB of pings
    # understood in one call took 16 ms of the loop.
    connection = opened()
    connection.receive(ping() * 2)
    assert connection.next_event() == Heard(b"PING")
    assert owed(connection) == b"\x04\x05\x04PONG"
    assert connection.next_event() == Heard(b"PING")
    assert owed(connection) == b"\x04\x05\x04PONG"
    assert connection.next_event() is None


def test_an_answer_is_never_longer_than_its_ping() -> None:
    connection = opened()
    for context in (b"", b"x" * 16):
        told(connection, [ping(context)])
        assert len(owed(connection)) < len(ping(context))


# ------------------------------------------------------------------ others


@pytest.mark.parametrize("name", [b"PONG", b"READY", b"JOIN", b"X", b"N" * 255, b"\xff\0"])
def test_what_asks_nothing_is_passed_over(name: bytes) -> None:
    connection = opened()
    data = b"" if len(name) > 200 else b"data"
    assert told(connection, [commands.command(name, data), frame(b"next")]) == (
        [Heard(name), [b"next"]],
        "",
    )
    assert not connection.has_output


def test_an_error_ends_it() -> None:
    why = "the peer ended the connection: 'no more'"
    assert told(opened(), [commands.error("no more") + frame(b"x")]) == ([], why)


@pytest.mark.parametrize("body", [b"", b"\0", b"\x05PING"])
def test_a_command_without_a_name_ends_it(body: bytes) -> None:
    said = b"\x04" + bytes((len(body),)) + body
    assert told(opened(), [said]) == ([], "a command has no name")


def test_a_command_over_the_limit_is_refused_at_its_head() -> None:
    most = SMALL.command_bytes_max
    assert told(opened(), [long_head(most, command=True)]) == ([], "")
    why = f"a command of {most + 1} bytes"
    assert told(opened(), [long_head(most + 1, command=True)]) == ([], why)


# ------------------------------------------------------------------ subjects


@pytest.mark.parametrize("minor", [0, 1, 7])
@pytest.mark.parametrize("subject", [b"", b"t", b"x" * 240, b"x" * 280])
@pytest.mark.parametrize("joined", [True, False])
def test_a_subject_is_asked_for_as_the_peer_has_it(
    minor: int, subject: bytes, joined: bool
) -> None:
    said = subscription(subject, joined=joined, minor=minor)
    assert told(publisher(minor), [said]) == ([SubjectChange(joined, subject)], "")


def test_the_two_forms_are_those_of_their_versions() -> None:
    assert subscription(b"t", joined=True, minor=0) == b"\x00\x02\x01t"
    assert subscription(b"t", joined=False, minor=0) == b"\x00\x02\x00t"
    assert subscription(b"t", joined=True, minor=1) == b"\x04\x0b\x09SUBSCRIBEt"
    assert subscription(b"t", joined=False, minor=1) == b"\x04\x08\x06CANCELt"


def test_each_form_is_understood_whatever_the_version() -> None:
    for minor in (0, 1):
        said = subscription(b"a", joined=True, minor=0) + subscription(b"b", joined=True, minor=1)
        expected = [SubjectChange(True, b"a"), SubjectChange(True, b"b")]
        assert told(publisher(minor), [said]) == (expected, "")


@pytest.mark.parametrize("message", [[b""], [b"\x02t"], [b"\x01t", b""], [b"", b"\x01t"]])
def test_what_is_no_wish_for_a_subject_is_a_message(message: list[bytes]) -> None:
    said = b"".join(frame(each, more=True) for each in message[:-1]) + frame(message[-1])
    assert told(publisher(), [said]) == ([message], "")


def test_only_a_publisher_is_asked_for_subjects() -> None:
    said = subscription(b"t", joined=True, minor=1) + subscription(b"t", joined=True, minor=0)
    for connection in (opened(), opened(b"SUB", b"XPUB"), opened(b"DEALER", b"ROUTER")):
        assert told(connection, [said]) == ([Heard(b"SUBSCRIBE"), [b"\x01t"]], "")
