"""What is said between the greeting and the first message; NULL: a READY each way.

A mechanism is given each command of the handshake and says what to answer and whether it is done.
Once it has a `peer`, the connection is open and goes on by itself; CURVE would also unpack frames.
"""

from typing import NamedTuple

from oncemq.zmtp import commands
from oncemq.zmtp.limits import WireError

# Which types of sockets may talk to each other, as far as we are one of them.
PARTNERS: dict[bytes, frozenset[bytes]] = {
    b"ROUTER": frozenset((b"DEALER", b"REQ", b"ROUTER")),
    b"DEALER": frozenset((b"ROUTER", b"DEALER", b"REP")),
    b"XPUB": frozenset((b"SUB", b"XSUB")),
    b"SUB": frozenset((b"PUB", b"XPUB")),
}

IDENTITY_BYTES_MAX = 255
SAID_BYTES_MAX = 20  # of what a peer says, in a line of ours


class PeerFacts(NamedTuple):
    """What a peer says of itself; believed for nothing but how to talk to it."""

    socket_type: bytes
    identity: bytes = b""


class NullMechanism:
    """No key, no secret: who can connect is let in."""

    name = b"NULL"

    def __init__(self, socket_type: bytes) -> None:
        self._socket_type = socket_type
        self.peer: PeerFacts | None = None  # once the handshake is over

    def begin(self) -> bytes:
        """What to say after the greeting."""
        said = {b"Socket-Type": self._socket_type}
        if self._socket_type in (b"DEALER", b"ROUTER"):
            said[b"Identity"] = b""
        return commands.command(commands.READY, commands.properties(said))

    def on_command(self, name: bytes, data: bytes) -> bytes:
        """What to answer to a command of the peer's."""
        if name == commands.ERROR:
            raise WireError(f"the peer ended the handshake: {commands.error_reason(data)!r}")
        if name != commands.READY:
            raise WireError(f"{name[:SAID_BYTES_MAX]!r} in a handshake of NULL")
        said = commands.read_properties(data)
        kind = said.get(b"socket-type", b"")
        if kind not in PARTNERS[self._socket_type]:
            named = kind[:SAID_BYTES_MAX].decode("ascii", "replace")
            raise WireError(
                f"a socket of type {named!r} cannot talk to a {self._socket_type.decode()}"
            )
        identity = said.get(b"identity", b"")
        if len(identity) > IDENTITY_BYTES_MAX:
            raise WireError(f"an identity of {len(identity)} bytes")
        self.peer = PeerFacts(kind, identity)
        return b""
