"""Between the greeting and the first message: READY each way, or a refusal that says why."""

import pytest

from oncemq.zmtp import commands
from oncemq.zmtp.connection import Heard, Opened, Phase, ZmtpConnection
from oncemq.zmtp.limits import WireLimits
from oncemq.zmtp.mechanism import PeerFacts
from tests.harness.zmtp import SMALL, frame, hello, long_head, owed, ping, ready, told


def told_after_greeting(*said: bytes, socket_type: bytes = b"ROUTER") -> tuple[list[object], str]:
    events, why = told(ZmtpConnection(socket_type, SMALL), [hello(), *said])
    return list(events), why


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (b"ROUTER", b"DEALER"),
        (b"ROUTER", b"REQ"),
        (b"ROUTER", b"ROUTER"),
        (b"DEALER", b"ROUTER"),
        (b"DEALER", b"DEALER"),
        (b"DEALER", b"REP"),
        (b"XPUB", b"SUB"),
        (b"XPUB", b"XSUB"),
        (b"SUB", b"PUB"),
        (b"SUB", b"XPUB"),
    ],
)
def test_sockets_that_fit_open(ours: bytes, theirs: bytes) -> None:
    connection = ZmtpConnection(ours, SMALL)
    expected = Opened(PeerFacts(theirs), minor=1)
    assert told(connection, [hello() + ready(theirs)]) == ([expected], "")
    assert connection.phase is Phase.OPEN
    assert not connection.is_partial


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (b"ROUTER", b"REP"),
        (b"ROUTER", b"SUB"),
        (b"ROUTER", b"dealer"),
        (b"ROUTER", b""),
        (b"DEALER", b"REQ"),
        (b"DEALER", b"XPUB"),
        (b"XPUB", b"PUB"),
        (b"XPUB", b"DEALER"),
        (b"SUB", b"SUB"),
        (b"SUB", b"ROUTER"),
    ],
)
def test_sockets_that_do_not_fit_are_told_so(ours: bytes, theirs: bytes) -> None:
    # RFC 37: "it SHOULD handle errors by returning an ERROR command, and then disconnecting".
    connection = ZmtpConnection(ours, SMALL)
    why = f"a socket of type {theirs.decode()!r} cannot talk to a {ours.decode()}"
    assert told(connection, [hello() + ready(theirs)]) == ([], why)
    assert owed(connection).endswith(commands.error(why))
    assert connection.phase is Phase.ENDED


def test_an_error_is_a_command_with_its_reason_behind_a_size() -> None:
    assert commands.error("no") == b"\x04\x09\x05ERROR\x02no"
    assert len(commands.error("n" * 300)) == 9 + 6 + 1 + 255
    assert commands.error("n\u00e9") == b"\x04\x09\x05ERROR\x02n?"


def test_a_ready_without_a_type_is_refused() -> None:
    bare = commands.command(b"READY")
    why = "a socket of type '' cannot talk to a ROUTER"
    assert told_after_greeting(bare) == ([], why)


def test_names_of_properties_have_no_case() -> None:
    said = commands.command(
        b"READY", commands.properties({b"SOCKET-type": b"REQ", b"iDENTITY": b"ada"})
    )
    assert told_after_greeting(said) == ([Opened(PeerFacts(b"REQ", b"ada"), minor=1)], "")


def test_properties_that_we_do_not_know_are_passed_over() -> None:
    said = ready(b"DEALER", {b"Resource": b"a/b", b"X-colour": b"blue", b"X-empty": b""})
    assert told_after_greeting(said) == ([Opened(PeerFacts(b"DEALER"), minor=1)], "")


@pytest.mark.parametrize("identity", [b"", b"ada", b"\0reserved", b"i" * 255])
def test_an_identity_is_noted_whatever_it_is(identity: bytes) -> None:
    # One that begins with zero is reserved for libzmq's own use: there it addresses the peer, and
    # to claim a number that is given out next ends the process. Here it addresses nobody.
    said = ready(b"DEALER", {b"Identity": identity})
    assert told_after_greeting(said) == ([Opened(PeerFacts(b"DEALER", identity), minor=1)], "")


def test_a_longer_identity_is_refused() -> None:
    said = ready(b"DEALER", {b"Identity": b"i" * 256})
    assert told_after_greeting(said) == ([], "an identity of 256 bytes")


@pytest.mark.parametrize(
    "data",
    [
        b"\x0b",
        b"\x0bSocket-Typ",
        b"\x0bSocket-Type\0\0\0",
        b"\x0bSocket-Type\0\0\0\x07DEALER",
        b"\x0bSocket-Type\xff\xff\xff\xffDEALER",
        b"\x0bSocket-Type\0\0\0\x06DEALER\x01",
    ],
)
def test_a_property_that_is_cut_short_is_refused(data: bytes) -> None:
    assert told_after_greeting(commands.command(b"READY", data)) == (
        [],
        "a property of READY is cut short",
    )


def test_a_property_without_a_name_is_refused() -> None:
    data = commands.command(b"READY", b"\0\0\0\0\x06DEALER")
    assert told_after_greeting(data) == ([], "a property of READY has no name")


def test_an_error_of_the_peer_ends_it() -> None:
    assert told_after_greeting(commands.error("go away")) == (
        [],
        "the peer ended the handshake: 'go away'",
    )


@pytest.mark.parametrize("data", [b"", b"\x07abc", b"\x03\x1b[m"])
def test_an_error_that_lies_about_its_reason_ends_it_too(data: bytes) -> None:
    _, why = told_after_greeting(commands.command(b"ERROR", data))
    assert why.startswith("the peer ended the handshake: ")
    assert why.isprintable()


@pytest.mark.parametrize("name", [b"HELLO", b"PING", b"ready", b"SUBSCRIBE", b"N" * 255])
def test_another_command_than_ready_is_refused(name: bytes) -> None:
    why = f"{name[:20]!r} in a handshake of NULL"
    assert told_after_greeting(commands.command(name, b"")) == ([], why)


@pytest.mark.parametrize("body", [b"", b"\0", b"\0READY", b"\x06READY"])
def test_a_command_without_a_name_is_refused(body: bytes) -> None:
    assert told_after_greeting(b"\x04" + bytes((len(body),)) + body) == (
        [],
        "a command has no name",
    )


@pytest.mark.parametrize("flags", [0, 1, 2, 3, 5, 7, 8, 0x84, 0xFF])
def test_anything_but_a_command_is_refused_before_the_handshake_is_over(flags: int) -> None:
    why = f"a frame begins with {flags:#04x} before the handshake is over"
    assert told_after_greeting(bytes((flags, 0))) == ([], why)


def test_a_ready_with_a_long_head_is_one_too() -> None:
    body = ready(b"DEALER")[2:]
    said = long_head(len(body), command=True) + body
    assert told_after_greeting(said) == ([Opened(PeerFacts(b"DEALER"), minor=1)], "")


def test_a_command_over_the_limit_is_refused_at_its_head() -> None:
    most = SMALL.handshake_bytes_max
    assert told_after_greeting(long_head(most, command=True)) == ([], "")
    why = f"a command of {most + 1} bytes in the handshake"
    assert told_after_greeting(long_head(most + 1, command=True)) == ([], why)
    assert told_after_greeting(long_head(2**64 - 1, command=True))[1].startswith("a command of 184")


def test_a_ready_as_large_as_it_may_be_opens() -> None:
    filler = SMALL.handshake_bytes_max - len(ready(b"DEALER", {b"X": b""})) + 2
    said = ready(b"DEALER", {b"X": bytes(filler - 7)})
    assert told_after_greeting(said) == ([Opened(PeerFacts(b"DEALER"), minor=1)], "")


def test_what_a_peer_says_is_short_in_our_line() -> None:
    _, why = told_after_greeting(ready(b"\x1b]0;" + b"D" * 500))
    assert why == "a socket of type '\\x1b]0;DDDDDDDDDDDDDDDD' cannot talk to a ROUTER"


def test_messages_right_behind_the_handshake_are_heard() -> None:
    events, why = told_after_greeting(ready(b"DEALER") + frame(b"a", more=True) + frame(b"b"))
    assert (events[1:], why) == ([[b"a", b"b"]], "")


def test_until_it_is_open_it_is_unfinished() -> None:
    connection = ZmtpConnection(b"ROUTER", WireLimits())
    assert connection.is_partial
    told(connection, [hello()])
    assert connection.is_partial
    told(connection, [ready(b"DEALER")])
    assert not connection.is_partial


def test_a_ready_after_the_handshake_changes_nothing() -> None:
    connection = ZmtpConnection(b"ROUTER", SMALL)
    events, why = told(connection, [hello(), ready(b"REQ"), ready(b"SUB"), ping()])
    expected = [Opened(PeerFacts(b"REQ"), minor=1), Heard(b"READY"), Heard(b"PING")]
    assert (events, why) == (expected, "")
