"""The first 64 bytes each way: that this is ZMTP, which version, and which mechanism.

A peer of ZMTP 1 or 2 is told from one that speaks something else, so that a log line can say what
is to be done; neither is spoken with.
"""

import struct

from oncemq.zmtp.limits import WireError

GREETING_BYTES = 64
MAJOR, MINOR = 3, 1

_GREETING = struct.Struct(">10sBB20sB31x")
_SIGNATURE = b"\xff" + bytes(8) + b"\x7f"
_MECHANISM_BYTES = 20


def greeting(mechanism: bytes, *, as_server: bool) -> bytes:
    """What an end says first."""
    name = mechanism.ljust(_MECHANISM_BYTES, b"\0")
    return _GREETING.pack(_SIGNATURE, MAJOR, MINOR, name, as_server)


def check_beginning(data: bytes) -> None:
    """Refuse what cannot become a greeting, as early as that is known."""
    if not data:
        return
    # The 8 bytes between the signature's ends may be anything: ZMTP 1 has a length there.
    if data[0] != 0xFF or (len(data) > 9 and not data[9] & 1):
        raise WireError("the peer does not speak ZMTP 3 (ZMTP 1, or another protocol)")
    if len(data) > 10 and data[10] < MAJOR:  # ZMTP 2.0 says 1, as some of its peers 2
        raise WireError(f"the peer speaks ZMTP {2 if data[10] else 1}, this end {MAJOR}.{MINOR}")


def minor_version(data: bytes, mechanism: bytes) -> int:
    """The peer's minor version, from its whole greeting; refuses another mechanism than ours.

    Who speaks a version above ours is spoken to in ours, and understands it.
    """
    _, major, minor, name, _ = _GREETING.unpack(data)
    if name.rstrip(b"\0") != mechanism:
        theirs, ours = (each.rstrip(b"\0").decode("ascii", "replace") for each in (name, mechanism))
        raise WireError(f"the peer's mechanism is {theirs!r}, this end's {ours}")
    return minor if major == MAJOR else MINOR
