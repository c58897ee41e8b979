"""Addresses of servers as users write them: `tcp://host:port`, and `ipc://` with a path.

A host is an IPv4 address, an IPv6 address in brackets, or a name. What is no name is understood at
once, without asking anybody.
"""

import socket
from typing import Any, NamedTuple

from oncemq.errors import ConfigError

PORT_MAX = 65_535


class Endpoint(NamedTuple):
    """What a socket connects to."""

    family: int
    address: Any  # as the family has it


class ServerAddress(NamedTuple):
    """Where a server is: endpoints that are known, or a name and a port to look up."""

    text: str
    endpoints: tuple[Endpoint, ...] = ()
    host: str = ""
    port: int = 0


def server_address(text: str) -> ServerAddress:
    """What an address says, or `ConfigError`."""
    scheme, separator, place = text.partition("://")
    if separator and scheme == "ipc":
        return ServerAddress(text, (_unix_endpoint(text, place),))
    if not separator or scheme != "tcp":
        raise _no_address(text, "it begins with neither tcp:// nor ipc://")
    host, colon, digits = place.rpartition(":")
    if not colon or not host:
        raise _no_address(text, "it has no port")
    if not (digits.isascii() and digits.isdigit()) or not 0 < int(digits[:6]) <= PORT_MAX:
        raise _no_address(text, f"its port is not one from 1 to {PORT_MAX}")
    port = int(digits)
    if host[0] == "[" and host[-1] == "]":
        endpoints = _numeric(host[1:-1], port, socket.AF_INET6)
        if not endpoints:
            raise _no_address(text, "what is in brackets is no address of IPv6")
        return ServerAddress(text, endpoints)
    if ":" in host or "*" in host or "/" in host:
        raise _no_address(text, "its host is no name (an address of IPv6 is put in brackets)")
    return ServerAddress(text, _numeric(host, port, socket.AF_INET), host, port)


def look_up(host: str, port: int) -> list[Endpoint]:
    """The endpoints of a name, in the order to try them in; this may take long."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(Endpoint(family, address) for family, _, _, _, address in found))


def _numeric(host: str, port: int, family: int) -> tuple[Endpoint, ...]:
    """The endpoint, where the host is an address; asks nobody."""
    try:
        found = socket.getaddrinfo(
            host, port, family, socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST
        )
    except (OSError, UnicodeError):
        return ()
    return (Endpoint(family, found[0][4]),)


def _unix_endpoint(text: str, path: str) -> Endpoint:
    # "@name" is a name without a file, as libzmq has it (Linux only).
    name = b"\0" + path[1:].encode() if path[:1] == "@" else path.encode()
    if len(name) < 1 + (path[:1] == "@"):
        raise _no_address(text, "it has no path")
    if len(name) > 103:  # what every system has room for
        raise _no_address(text, "its path is longer than 103 bytes")
    return Endpoint(socket.AF_UNIX, name)


def _no_address(text: str, reason: str) -> ConfigError:
    return ConfigError(
        f"cannot connect to {text!r}: {reason}; the address of a server looks "
        "like tcp://127.0.0.1:5556, or ipc:///run/oncemq.sock"
    )
