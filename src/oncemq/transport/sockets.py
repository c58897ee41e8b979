"""Every option of a client's sockets, with its reason: DEALER, and SUB for the live feed.

Laws: no send ever blocks, no peer can make a queue grow without bound, and a peer that does not
finish its handshake is gone after two seconds.

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
FEED_MESSAGES = 128  # kept for a listener that does not keep up; what is more it pulls


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


def dealer(context: "zmq.Context[zmq.Socket[bytes]]") -> "zmq.Socket[bytes]":
    """A client's socket, not yet connected."""
    socket = context.socket(zmq.DEALER)
    _common(socket)
    # Without a connection a send fails at once, so that what is unsent stays ours to resend.
    socket.setsockopt(zmq.IMMEDIATE, 1)
    socket.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MS)
    socket.setsockopt(zmq.RECONNECT_IVL_MAX, RECONNECT_MAX_MS)
    socket.setsockopt(zmq.LINGER, 0)  # receipts say what arrived; nothing is sent blindly
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
_POLLOUT = int(zmq.POLLOUT)
NOBLOCK = int(zmq.NOBLOCK)


def readable(socket: "zmq.Socket[bytes]") -> bool:
    """Whether a receive would get something; a third of the price of catching zmq.Again."""
    return bool(int(socket.getsockopt(_EVENTS)) & _POLLIN)


def writable(socket: "zmq.Socket[bytes]") -> bool:
    """Whether a send would leave; libzmq takes note of a new connection by being asked this."""
    return bool(int(socket.getsockopt(_EVENTS)) & _POLLOUT)
