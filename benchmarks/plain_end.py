"""The far end of the bare limit of a put: receive, write, sync, reply; a program of its own.

Two plain sockets and nothing else: what the system alone takes for a put that is synced.
"""

import os
import socket
import sys

ROOM_BYTES = 64 << 20
REPLY = bytes(40)


def main() -> None:
    """Serve one peer, into a file at the path given."""
    descriptor = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o600)
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, ROOM_BYTES)
    sync = getattr(os, "fdatasync", os.fsync)  # macOS has no fdatasync
    sync(descriptor)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        print(listening.getsockname()[1], flush=True)
        peer, _ = listening.accept()
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    position = 0
    while request := peer.recv(16 << 10):
        os.pwrite(descriptor, request, position)
        sync(descriptor)
        position += len(request)
        peer.send(REPLY)


if __name__ == "__main__":
    main()
