"""The first 64 bytes: who is spoken with, and what the others are told in a log line."""

import pytest

from oncemq.zmtp.connection import Phase, ZmtpConnection
from oncemq.zmtp.limits import WireLimits
from tests.harness.zmtp import give, hello, owed, ready, told

NOT_ZMTP = "the peer does not speak ZMTP 3 (ZMTP 1, or another protocol)"


def router() -> ZmtpConnection:
    return ZmtpConnection(b"ROUTER", WireLimits())


def test_an_end_greets_at_once_and_whole() -> None:
    # RFC 37: who needs no older versions sends the full greeting immediately.
    connection = router()
    assert connection.has_output
    assert owed(connection) == (
        b"\xff\0\0\0\0\0\0\0\0\x7f\x03\x01NULL" + bytes(16) + b"\0" + bytes(31)
    )
    assert not connection.has_output
    assert connection.phase is Phase.GREETING


def test_nothing_more_is_said_before_the_peer_greeted() -> None:
    connection = router()
    owed(connection)
    assert told(connection, [hello()[:63]]) == ([], "")
    assert owed(connection) == b""


def test_a_greeting_is_answered_with_ready() -> None:
    connection = router()
    owed(connection)
    assert told(connection, [hello()]) == ([], "")
    assert (
        owed(connection) == b"\x04\x29\x05READY\x0bSocket-Type\0\0\0\x06ROUTER\x08Identity\0\0\0\0"
    )
    assert connection.phase is Phase.HANDSHAKE


@pytest.mark.parametrize("socket_type", [b"XPUB", b"SUB"])
def test_only_requests_and_replies_know_identities(socket_type: bytes) -> None:
    connection = ZmtpConnection(socket_type, WireLimits())
    owed(connection)
    list(give(connection, hello()))
    assert owed(connection) == ready(socket_type)


def test_the_padding_of_the_signature_means_nothing() -> None:
    # libzmq puts the length of its identity there, for ZMTP 1.
    padded = b"\xff" + b"\0\0\0\0\0\0\0\x06" + hello()[9:]
    assert told(router(), [padded]) == ([], "")


@pytest.mark.parametrize(
    ("major", "minor", "spoken"),
    [(3, 0, 0), (3, 1, 1), (3, 2, 2), (3, 255, 255), (4, 0, 1), (200, 9, 1)],
)
def test_a_version_from_ours_on_is_spoken_with(major: int, minor: int, spoken: int) -> None:
    # RFC 37: a peer MUST accept higher versions, and speaks its own to them: commands for subjects
    # to a ZMTP 4.0, though its minor version is 0.
    connection = router()
    assert told(connection, [hello(major, minor)]) == ([], "")
    assert connection.minor == spoken


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b"\x01\x00", NOT_ZMTP),  # ZMTP 1.0, anonymous
        (b"\x06\x00alice", NOT_ZMTP),  # ZMTP 1.0, with an identity
        (b"\xff\0\0\0\0\0\0\x01\x00\x00", NOT_ZMTP),  # ZMTP 1.0, with a long identity
        (b"\xff\0\0\0\0\0\0\0\x01\x7f\x00", "the peer speaks ZMTP 1, this end 3.1"),
        (b"\xff\0\0\0\0\0\0\0\x01\x7f\x01\x05", "the peer speaks ZMTP 2, this end 3.1"),
        (b"\xff\0\0\0\0\0\0\0\x01\x7f\x02\x05", "the peer speaks ZMTP 2, this end 3.1"),
        (b"GET / HTTP/1.1\r\n", NOT_ZMTP),
        (b"\x16\x03\x01\x02\x00\x01\x00", NOT_ZMTP),  # TLS
    ],
)
def test_who_speaks_something_else_is_refused_in_words(said: bytes, why: str) -> None:
    connection = router()
    assert told(connection, [said]) == ([], why)
    assert connection.phase is Phase.ENDED


@pytest.mark.parametrize(
    ("said", "bytes_needed"),
    [(b"\x01\x00", 1), (b"\xff" + bytes(8) + b"\x00", 10), (b"\xff" + bytes(8) + b"\x7f\x01", 11)],
)
def test_it_is_refused_at_the_first_byte_that_tells(said: bytes, bytes_needed: int) -> None:
    connection = router()
    assert told(connection, [said[: bytes_needed - 1]]) == ([], "")
    _, why = told(connection, [said[bytes_needed - 1 : bytes_needed]])
    assert why


@pytest.mark.parametrize("mechanism", [b"PLAIN", b"CURVE", b"GSSAPI", b"", b"null", b"NULLL"])
def test_another_mechanism_is_refused(mechanism: bytes) -> None:
    connection = router()
    why = f"the peer's mechanism is {mechanism.decode()!r}, this end's NULL"
    assert told(connection, [hello(mechanism=mechanism)]) == ([], why)


def test_a_mechanism_is_shown_without_what_a_terminal_would_obey() -> None:
    _, why = told(router(), [hello(mechanism=b"\x1b[2J\xff\n")])
    assert why.isprintable()


def test_the_full_greeting_was_sent_also_to_whom_it_did_not_fit() -> None:
    # RFC 37: who reads a full greeting must have sent one, or both might wait.
    connection = router()
    told(connection, [hello(mechanism=b"CURVE")])
    assert owed(connection) == hello()


def test_as_server_means_nothing_without_a_key() -> None:
    assert told(router(), [hello(as_server=1)]) == ([], "")


def test_after_a_refusal_nothing_is_heard() -> None:
    connection = router()
    told(connection, [b"\x01\x00"])
    assert told(connection, [hello() + ready(b"DEALER")]) == ([], "")
    assert not connection.is_partial
    assert connection.held_bytes == 0
