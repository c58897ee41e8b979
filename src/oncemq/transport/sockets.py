"""Every socket option, with its reason.

ROUTER for requests, XPUB for the live feed; SUB for benchmarks of it.

Laws: no send ever blocks the loop, no peer can make a queue grow without bound, and a peer
that does not finish its handshake is gone after two seconds.

No heartbeats of ZeroMQ's: libzmq (4.3.5) ends the whole process when one is due on a broken
connection that it had stopped reading from, its queue being full (zeromq/libzmq#3937).
"""

import zmq

HANDSHAKE_MS = 2_000  # libzmq's 30 s lets 200 silent connections shut honest clients out
# A peer that vanished without a FIN is noticed by the system, within 15 s.
KEEPALIVE = {
    zmq.TCP_KEEPALIVE: 1,
    zmq.TCP_KEEPALIVE_IDLE: 5,
    zmq.TCP_KEEPALIVE_INTVL: 5,
    zmq.TCP_KEEPALIVE_CNT: 2,
    zmq.TCP_MAXRT: 15_000,  # the same for what was sent and is not acknowledged
}
QUEUE_MESSAGES = 1_000  # high-water mark of one peer, each way
RECONNECT_MS = 20  # quick at first: a restarted server is back within a second
RECONNECT_MAX_MS = 1_000
LINGER_MS = 1_000  # at close, replies already owed may still leave
SERVER_BACKLOG = 4_096
FEED_MESSAGES = 128  # kept for a listener that does not keep up; what is more it pulls
SUBJECT_BYTES_MAX = 1_024  # what a subscriber may say at a time


def _common(socket: "zmq.Socket[bytes]") -> None:
    socket.setsockopt(zmq.SNDHWM, QUEUE_MESSAGES)
    socket.setsockopt(zmq.RCVHWM, QUEUE_MESSAGES)
    socket.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_MS)
    for option, value in KEEPALIVE.items():
        socket.setsockopt(option, value)


def allow_ipv6(socket: "zmq.Socket[bytes]", address: str) -> None:
    """Before a bind or a connect: an address in brackets is one of IPv6."""
    if "://[" in address:
        socket.setsockopt(zmq.IPV6, 1)


def router(
    context: "zmq.Context[zmq.Socket[bytes]]", *, frame_bytes_max: int
) -> "zmq.Socket[bytes]":
    """The server's socket for requests, not yet bound."""
    socket = context.socket(zmq.ROUTER)
    _common(socket)
    # A reply to a route that is gone raises instead of vanishing; a full one gives EAGAIN.
    socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
    # A second peer with a known routing id is ignored, never given the first one's replies.
    socket.setsockopt(zmq.ROUTER_HANDOVER, 0)
    socket.setsockopt(zmq.MAXMSGSIZE, frame_bytes_max)
    socket.setsockopt(zmq.BACKLOG, SERVER_BACKLOG)
    socket.setsockopt(zmq.LINGER, LINGER_MS)
    return socket


def publisher(context: "zmq.Context[zmq.Socket[bytes]]") -> "zmq.Socket[bytes]":
    """The server's socket for the live feed, not yet bound."""
    socket = context.socket(zmq.XPUB)
    _common(socket)
    # Times the most that is pushed at once, this is what a stopped listener costs the server.
    socket.setsockopt(zmq.SNDHWM, FEED_MESSAGES)
    # Every new subscription is told, not only the first: it is answered with the topic's end.
    socket.setsockopt(zmq.XPUB_VERBOSE, 1)
    socket.setsockopt(zmq.MAXMSGSIZE, SUBJECT_BYTES_MAX)
    socket.setsockopt(zmq.BACKLOG, SERVER_BACKLOG)
    socket.setsockopt(zmq.LINGER, 0)
    return socket


def subscriber(context: "zmq.Context[zmq.Socket[bytes]]") -> "zmq.Socket[bytes]":
    """A listener's socket for the live feed, not yet connected."""
    socket = context.socket(zmq.SUB)
    _common(socket)
    socket.setsockopt(zmq.RCVHWM, FEED_MESSAGES)
    socket.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MS)
    socket.setsockopt(zmq.RECONNECT_IVL_MAX, RECONNECT_MAX_MS)
    socket.setsockopt(zmq.LINGER, 0)
    return socket


# Plain integers: pyzmq's enums cost a microsecond each time they are combined.
_EVENTS = int(zmq.EVENTS)
_POLLIN = int(zmq.POLLIN)
NOBLOCK = int(zmq.NOBLOCK)


def readable(socket: "zmq.Socket[bytes]") -> bool:
    """Whether a receive would get something; a third of the price of catching zmq.Again."""
    return bool(int(socket.getsockopt(_EVENTS)) & _POLLIN)
