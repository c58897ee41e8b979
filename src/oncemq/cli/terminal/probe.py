"""Why no server answers at an address: looked at without the client, in a second or two."""

import socket
from urllib.parse import urlsplit

SECONDS = 2.0
_SIGNATURE_BYTES = 10  # how a peer that speaks ZeroMQ begins: 0xFF, eight bytes, 0x7F


def trouble_at(address: str) -> str | None:
    """What is wrong at an address, in words; None when a ZeroMQ peer is there."""
    if not address.startswith("tcp://"):
        return _trouble_of_path(address)
    try:
        parts = urlsplit(address)
        host, port = parts.hostname or "", parts.port or 0
    except ValueError:
        return None  # the client has told what is wrong with it
    try:
        with socket.create_connection((host, port), SECONDS) as connection:
            return _trouble_of_greeting(_greeting_of(connection), address)
    except (socket.gaierror, UnicodeError):
        return f"the host name '{host}' is not known"
    except ConnectionRefusedError:
        return f"nothing listens at {address}: the connection is refused"
    except OSError as error:
        return f"no connection to {address}: {error.strerror or 'no answer'}"


def _trouble_of_path(address: str) -> str | None:
    path = address.removeprefix("ipc://")
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(SECONDS)
        try:
            connection.connect(path)
        except OSError as error:
            return f"no connection to {address}: {error.strerror or 'no answer'}"
    return None


def _greeting_of(connection: socket.socket) -> bytes:
    """The first bytes a peer says by itself; none when it waits to be spoken to."""
    said = b""
    try:
        while len(said) < _SIGNATURE_BYTES and (more := connection.recv(64)):
            said += more
    except TimeoutError:
        pass
    return said


def _trouble_of_greeting(said: bytes, address: str) -> str | None:
    if said[:1] == b"\xff" and said[9:10] == b"\x7f":
        return None
    if not said:
        return (
            f"what listens at {address} does not speak ZeroMQ, or hangs: it says nothing within "
            f"{SECONDS:g} s"
        )
    return f"what listens at {address} does not speak ZeroMQ: it is no OnceMQ server"
