"""The sockets that a server listens on: for requests, and for the live feed."""

import contextlib
import logging
import resource
from collections.abc import Callable
from pathlib import Path

import msgspec

from oncemq.errors import PortInUse, TooManyFiles
from oncemq.protocol.limits import ServerLimits
from oncemq.storage.disk import files_for_owner_only, others_may_write
from oncemq.transport.feed_publisher import FeedPublisher
from oncemq.transport.router import RouterSocket
from oncemq.transport.serving.connections import Connections
from oncemq.transport.serving.limits import ConnectionLimits

PORT_MAX = 65_535
FILES_KEPT = 48  # open files that are the server's own: segments, pipes, spares
LOOPBACK = ("tcp://127.", "tcp://[::1]", "tcp://localhost")

logger = logging.getLogger("oncemq.server")


class ServerSockets:
    """Open when it exists; a loop closes them."""

    def __init__(
        self,
        bind: str,
        feed: str,
        *,
        rules: ServerLimits,
        peers: ConnectionLimits | None,
        files_kept: int,
        door: Callable[..., RouterSocket],
        shares_host: bool = False,
    ) -> None:
        # A frame of twice the largest batch still gets a refusal; beyond, the peer is cut.
        size = 2 * rules.batch_bytes_max
        self.connections = Connections(_fitting(peers or ConnectionLimits(), size, files_kept))
        with contextlib.ExitStack() as undo, files_for_owner_only():  # an ipc socket is one
            self.requests = door(bind, frame_bytes_max=size, connections=self.connections)
            undo.callback(self.requests.close)
            beside = not shares_host
            self.feed = _open_feed(feed, bind, self.connections, beside=beside)
            undo.pop_all()

    @property
    def address(self) -> str:
        """Where requests are taken."""
        return self.requests.address

    @property
    def feed_address(self) -> str:
        """Where the feed is heard; empty: there is none."""
        return self.feed.address if self.feed else ""

    def close(self) -> None:
        """For who fails to start: a loop that runs closes them itself."""
        self.requests.close()
        if self.feed is not None:
            self.feed.close()


def warn_of_others(address: str) -> None:
    """Say what leaves the server open to others."""
    if address.startswith("tcp://") and not address.startswith(LOOPBACK):
        logger.warning(
            "listening beyond this machine address=%s; there is no authentication yet: whoever "
            "reaches it can read and write everything",
            address,
        )


def warn_of_writers(data: Path) -> None:
    """Say who else may change the log."""
    if others_may_write(str(data)):
        logger.warning(
            "data directory is writable by others path=%s; they can change or remove the log: "
            "chmod go-w it",
            data,
        )


def _fitting(peers: ConnectionLimits, frame_bytes_max: int, files_kept: int) -> ConnectionLimits:
    """The limits as they can be: of files there are so many, and the largest batch is possible."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = soft - files_kept if soft != resource.RLIM_INFINITY else peers.connections_max
    if files < 1:
        raise TooManyFiles(
            f"a server needs {files_kept} open files and one for each connection, and may have "
            f"{soft}: raise the limit (ulimit -n)"
        )
    return msgspec.structs.replace(
        peers,
        connections_max=min(peers.connections_max, files),
        unfinished_bytes_max=max(peers.unfinished_bytes_max, 2 * frame_bytes_max),
        owed_bytes_max=max(peers.owed_bytes_max, 2 * frame_bytes_max),
        owed_total_max=max(peers.owed_total_max, 4 * frame_bytes_max),
    )


def _open_feed(
    feed: str, bind: str, connections: Connections, *, beside: bool
) -> FeedPublisher | None:
    """The live feed. `auto`: the port after the server's, or one that the system chooses.

    Not `beside`: other servers may be on this host, and that port be the next one's.
    """
    if feed == "none":
        return None
    if feed != "auto":
        return FeedPublisher(feed, connections)
    scheme, _, place = bind.partition("://")
    if scheme != "tcp":
        return FeedPublisher(f"{bind}.feed", connections)
    host, _, port = place.rpartition(":")
    if beside and port.isdecimal() and int(port) < PORT_MAX:
        with contextlib.suppress(PortInUse):
            return FeedPublisher(f"tcp://{host}:{int(port) + 1}", connections)
    return FeedPublisher(f"tcp://{host}:*", connections)
