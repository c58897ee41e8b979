"""HTTP to one of several members of etcd, each step with a time limit.

Law: a member that fails is left for the next one, and the next one is kept until it fails: a member
that is frozen costs one time limit, not one at each turn.
"""

import contextlib
import socket
import ssl
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from urllib.parse import urlsplit

from oncemq.coordination.etcd.gateway import (
    LOGIN_PATH,
    WATCH_PATH,
    CallFailed,
    LeaseGone,
    Watched,
    call_answer,
    call_json,
    login_json,
    login_token,
    refusal,
    watch_json,
    watched,
)
from oncemq.coordination.etcd.rules.calls import Call, CallAnswer, Kept, WatchFrom

ANSWER_BYTES_MAX = 16 << 20  # etcd takes no request above 1.5 MiB; all keys of a cluster are less
DEFAULT_PORT = 2379


@dataclass(frozen=True, slots=True)
class Access:
    """How to reach etcd: its members, and what proves who is who. Passwords are never logged."""

    addresses: tuple[str, ...]
    ca_file: str | None = None  # who signs the members' certificates; None: the machine's own list
    certificate_file: str | None = None
    key_file: str | None = None
    user: str | None = None
    password: str | None = None

    def __post_init__(self) -> None:
        if not self.addresses:
            raise ValueError("name at least one address of etcd, as http://host:2379")
        for address in self.addresses:
            _parts(address)

    def __repr__(self) -> str:
        return f"Access({', '.join(self.addresses)})"


class EtcdConnection:
    """To one member at a time; for one thread, but for `interrupt`."""

    def __init__(self, access: Access, *, limit_seconds: float) -> None:
        self._access = access
        self._limit = limit_seconds
        self._chosen = 0
        self._http: HTTPConnection | None = None
        self._token = ""
        self.failures = 0  # in a row

    @property
    def all_failed(self) -> bool:
        """Whether every member failed, one after the other."""
        return self.failures >= len(self._access.addresses)

    @property
    def address(self) -> str:
        """The member in use."""
        return self._access.addresses[self._chosen]

    def call(self, call: Call) -> CallAnswer:
        """Ask, and have the answer; or `CallFailed`, and the next member is used from here on."""
        with self._leaving_on_failure():
            path, body = call_json(call)
            try:
                answer = call_answer(call, self._posted(path, body))
            except LeaseGone:
                answer = Kept(is_there=False)
            self.failures = 0
            return answer

    def watch(self, watch: WatchFrom, *, idle_seconds: float) -> Iterator[Watched]:
        """What changes, until nothing comes for a while; the first says that the watch began."""
        with self._leaving_on_failure():
            # Without this, a member that lost the others would go on watching in silence.
            response = self._sent(
                WATCH_PATH, watch_json(watch), {"Grpc-Metadata-hasleader": "true"}
            )
            yield watched(self._line(response))
            self.failures = 0
            if self._http is not None and self._http.sock is not None:
                self._http.sock.settimeout(idle_seconds)
            try:
                while True:
                    yield watched(self._line(response))
            except TimeoutError:
                return
            finally:
                self.close()  # an unfinished stream is no connection for anything else

    def interrupt(self) -> None:
        """From another thread: what is being read fails now."""
        http = self._http
        sock = http.sock if http is not None else None
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Begin anew at the next call, with the same member."""
        if self._http is not None:
            self._http.close()
            self._http = None

    @contextlib.contextmanager
    def _leaving_on_failure(self) -> Generator[None]:
        try:
            yield
        except (OSError, HTTPException, CallFailed) as error:
            self.close()
            self._token = ""
            failed = self.address
            self.failures += 1
            self._chosen = (self._chosen + 1) % len(self._access.addresses)
            if isinstance(error, CallFailed):
                error.args = (f"{failed}: {error}",)
                raise
            raise CallFailed(f"{failed}: {str(error) or type(error).__name__}") from None

    def _posted(self, path: str, body: bytes) -> bytes:
        response = self._sent(path, body, {})
        text = response.read(ANSWER_BYTES_MAX + 1)
        if len(text) > ANSWER_BYTES_MAX:
            raise CallFailed(f"an answer of more than {ANSWER_BYTES_MAX} bytes")
        return text

    def _sent(self, path: str, body: bytes, headers: dict[str, str]) -> HTTPResponse:
        http = self._connected()
        if self._token:
            headers = {**headers, "Authorization": self._token}
        http.request("POST", path, body, {"Content-Type": "application/json", **headers})
        response = http.getresponse()
        if response.status != 200:
            raise refusal(response.read(ANSWER_BYTES_MAX), status=response.status)
        return response

    def _connected(self) -> HTTPConnection:
        if self._http is None:
            host, port, is_secure = _parts(self.address)
            if is_secure:
                context = ssl.create_default_context(cafile=self._access.ca_file)
                if self._access.certificate_file is not None:
                    context.load_cert_chain(self._access.certificate_file, self._access.key_file)
                self._http = HTTPSConnection(host, port, timeout=self._limit, context=context)
            else:
                self._http = HTTPConnection(host, port, timeout=self._limit)
            if self._access.user is not None and not self._token:
                body = login_json(self._access.user, self._access.password or "")
                self._token = login_token(self._posted(LOGIN_PATH, body))
        return self._http

    def _line(self, response: HTTPResponse) -> bytes:
        line = response.readline(ANSWER_BYTES_MAX)
        if not line.endswith(b"\n"):
            raise CallFailed("the watch ended")
        return line


def _parts(address: str) -> tuple[str, int, bool]:
    """Host, port, and whether it is encrypted."""
    found = urlsplit(address if "://" in address else f"http://{address}")
    try:
        host, port = found.hostname, found.port or DEFAULT_PORT
    except ValueError:
        host, port = None, 0
    if not host or found.scheme not in ("http", "https") or found.path not in ("", "/"):
        raise ValueError(f"{address!r} is no address of etcd; write http://host:{DEFAULT_PORT}")
    return host, port, found.scheme == "https"
