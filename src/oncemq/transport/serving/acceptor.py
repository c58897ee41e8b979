"""An address that is listened on: `tcp://host:port`, or `ipc://path`.

Laws: an address that somebody listens on is never taken over; the file of a socket whose server is
dead is. What one accepted connection needs is set where it is listened, and inherited.
"""

import errno
import socket
from contextlib import suppress
from pathlib import Path

from oncemq.errors import ConfigError, TooManyFiles
from oncemq.transport.tcp_options import set_tcp_options

BACKLOG = 4_096
PORT_MAX = 65_535
NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)
# No file, or no memory in the system for a socket: newcomers have to wait until there is some.
NO_ROOM = (*NO_DESCRIPTORS, errno.ENOBUFS, errno.ENOMEM)
# What accept tells of the newcomer's own connection, as Linux does; it is gone.
GONE = (
    *(errno.ECONNABORTED, errno.ECONNRESET, errno.EPROTO, errno.ENOPROTOOPT, errno.EOPNOTSUPP),
    *(errno.ENETDOWN, errno.ENETUNREACH, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ETIMEDOUT),
    *(errno.EPERM, getattr(errno, "ENONET", errno.ENETDOWN)),  # a firewall's no, the first
)


class Acceptor:
    """A listening socket; raises OSError when it cannot be had."""

    def __init__(self, address: str) -> None:
        scheme, _, place = address.partition("://")
        self._path: Path | None = None
        self._inode = 0
        try:
            if scheme == "tcp":
                self._socket = _tcp(place)
                self.address = _tcp_address(self._socket)
            elif scheme == "ipc":
                self._socket = self._of_path(place)
                self.address = address
            else:
                raise ConfigError(
                    f"a server cannot listen on {address!r}; write tcp://127.0.0.1:5556, or "
                    "ipc:///run/oncemq.sock"
                )
        except OSError as error:
            if error.errno in NO_DESCRIPTORS:
                raise TooManyFiles(
                    f"the server's sockets need open files, and no more can be had "
                    f"({error.strerror}). Raise the limit (ulimit -n)"
                ) from error
            raise
        self.descriptor = self._socket.fileno()

    def accept(self) -> socket.socket | None:
        """The next who came; None when there is nobody more. Raises when there is no room."""
        try:
            link, _ = self._socket.accept()
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno not in GONE:
                raise
            return None  # the poller tells of who comes after it
        link.setblocking(False)
        return link

    def close(self) -> None:
        """Listen no longer."""
        self._socket.close()
        if self._path is not None:
            with suppress(OSError):
                if self._path.stat().st_ino == self._inode:  # else it is another server's by now
                    self._path.unlink()

    def _of_path(self, place: str) -> socket.socket:
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            if place.startswith("@"):  # Linux: a name that is no file
                _listen(listening, "\0" + place[1:])
                return listening
            try:
                listening.bind(place)
            except OSError as error:
                if error.errno != errno.EADDRINUSE or not _is_stale(place):
                    raise
                Path(place).unlink()
                listening.bind(place)
            self._path = Path(place)
            self._inode = self._path.stat().st_ino
            _listen(listening, None)
        except BaseException:
            listening.close()
            raise
        return listening


def _tcp(place: str) -> socket.socket:
    host, _, port = place.rpartition(":")
    family = socket.AF_INET6 if host.startswith("[") else socket.AF_INET
    host = "0.0.0.0" if host == "*" else host.strip("[]")
    number = "0" if port == "*" else port
    if number.isdecimal() and int(number) > PORT_MAX:  # the system would take it modulo 65536
        raise ConfigError(f"a server cannot listen on port {number}: the last one is {PORT_MAX}")
    found = socket.getaddrinfo(host, number, family, socket.SOCK_STREAM)
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        set_tcp_options(listening)
        _listen(listening, found[0][4])
    except BaseException:
        listening.close()
        raise
    return listening


def _listen(listening: socket.socket, place: object) -> None:
    listening.setblocking(False)
    if place is not None:
        listening.bind(place)  # type: ignore[arg-type]
    listening.listen(BACKLOG)


def _tcp_address(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"


def _is_stale(place: str) -> bool:
    """Whether it is a socket's path that nobody listens on."""
    if not Path(place).is_socket():
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(place)
        except ConnectionRefusedError:
            return True
        except OSError:
            return False  # a full backlog is somebody's
    return False
