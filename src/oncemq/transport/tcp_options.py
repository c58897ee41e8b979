"""The options of a TCP connection at either end, with their reasons."""

import fcntl
import socket
import sys
import termios

KEEPALIVE_SECONDS = 5
KEEPALIVE_PROBES = 2
UNACKNOWLEDGED_MS = 15_000

# A peer that vanished without a FIN is noticed by the system, within 15 s. No heartbeats of ours:
# who is busy with a message answers none, and would be taken for dead. Servers of a cluster, which
# answer each other all the time, wait less long (`replication/awaited_answer`).
_KEEPALIVE = {
    "TCP_KEEPIDLE": KEEPALIVE_SECONDS,
    "TCP_KEEPALIVE": KEEPALIVE_SECONDS,  # the same, as macOS calls it
    "TCP_KEEPINTVL": KEEPALIVE_SECONDS,
    "TCP_KEEPCNT": KEEPALIVE_PROBES,
    "TCP_USER_TIMEOUT": UNACKNOWLEDGED_MS,  # the same for what was sent and is not acknowledged
}
_OPTIONS = [
    (getattr(socket, name), value) for name, value in _KEEPALIVE.items() if hasattr(socket, name)
]


def set_tcp_options(each: socket.socket) -> None:
    """Before it connects; or before it listens, for all that it accepts."""
    # A message is one send: nothing is gained by waiting for more of it.
    each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    each.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _OPTIONS:
        each.setsockopt(socket.IPPROTO_TCP, option, value)


def unacknowledged(each: socket.socket) -> int:
    """How many bytes this system keeps of what was sent; 0, where it does not tell."""
    try:
        told = fcntl.ioctl(each, termios.TIOCOUTQ, bytes(4))
    except OSError:
        return 0
    return int.from_bytes(told, sys.byteorder, signed=True)
