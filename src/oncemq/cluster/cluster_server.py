"""A server of a cluster: its sockets, its replica, its threads. The counterpart of a server alone.

It listens from its start on, and refuses clients with the leader's address until it leads itself.
"""

import contextlib
import logging
import secrets
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from oncemq.cluster.agreement.shard_agreement import ShardAgreement
from oncemq.cluster.links import ReplicaLinks
from oncemq.cluster.replica import Replica
from oncemq.cluster.replica_directory import Home, ReplicaPlace
from oncemq.cluster.serving import Serving
from oncemq.coordination.coordinator import Coordinator, Ring
from oncemq.coordination.values import ClusterConfig, ClusterKeys
from oncemq.errors import StorageRefused
from oncemq.protocol.limits import ServerLimits
from oncemq.protocol.names import ServerId, ShardId
from oncemq.replication.view import ReplicationLimits
from oncemq.server.clock import SteadyClock
from oncemq.server.loop import Loop, TurnLimits
from oncemq.server.sockets import FILES_KEPT, ServerSockets, warn_of_others, warn_of_writers
from oncemq.storage.disk import LocalDisk, LockingDisk, Spares
from oncemq.storage.log.log import LogOptions
from oncemq.transport.router import RouterSocket
from oncemq.transport.serving.limits import ConnectionLimits

FIRST_SHARD = ShardId(1)

logger = logging.getLogger("oncemq.server")

MakeCoordinator = Callable[[str, Ring], Coordinator]  # of the keys with this prefix


class ClusterIdentity(msgspec.Struct, frozen=True):
    """Which server of which cluster this is."""

    cluster: str
    server_id: ServerId
    advertise: str = ""  # the address that others are told; empty: the one it listens on
    founding: ClusterConfig = ClusterConfig(nonce="")


class ClusterServer:
    """Listening, and not yet let in, when it exists."""

    def __init__(
        self,
        data: Path,
        bind: str,
        identity: ClusterIdentity,
        coordinator: MakeCoordinator,
        *,
        rules: ServerLimits,
        options: LogOptions,
        peers: ConnectionLimits | None = None,
        turn: TurnLimits | None = None,
        limits: ReplicationLimits | None = None,
        files_kept: int = FILES_KEPT,
        feed: str = "auto",
        disk: LockingDisk | None = None,
        door: Callable[..., RouterSocket] = RouterSocket,
    ) -> None:
        started = time.monotonic()
        self._spares = Spares()
        with contextlib.ExitStack() as undo:  # who fails to start leaves nothing open
            undo.callback(self._spares.release)
            sockets = ServerSockets(
                bind, feed, rules=rules, peers=peers, files_kept=files_kept, door=door,
                shares_host=True,
            )  # fmt: skip
            undo.callback(sockets.close)
            self.address, self.feed = sockets.address, sockets.feed_address
            keys = ClusterKeys(identity.cluster)
            address = identity.advertise or self.address
            agreement = _agreement(identity, keys, address)
            clock = SteadyClock(time.time_ns, time.monotonic_ns, ticks=1000)
            self._links = ReplicaLinks(sockets.connections)
            undo.callback(self._links.close)
            asker = coordinator(keys.prefix, self._ring)
            undo.callback(asker.close)
            home = Home(disk or LocalDisk(self._spares), str(data), options, secrets.token_bytes)
            place = ReplicaPlace(
                identity.server_id, FIRST_SHARD, home, limits or ReplicationLimits()
            )
            serving = Serving(rules, feed=self.feed)
            self._replica = Replica(
                place, agreement, asker, self._links, serving, clock(), address=address
            )
            self._loop = Loop(
                self._replica, sockets.requests, sockets.feed, self._replica, clock, turn
            )
            serving.reads = self._loop.lend("oncemq-reader")
            undo.pop_all()
        self.recovered = self._replica.recovered
        self.recovery_seconds = time.monotonic() - started
        warn_of_others(self.address)
        warn_of_writers(data)
        logger.info(
            "server started cluster=%s id=%s address=%s feed=%s",
            identity.cluster, identity.server_id, self.address, self.feed or "none",
        )  # fmt: skip

    def _ring(self) -> None:
        """From a thread of the coordinator's: it has something to say."""
        if loop := getattr(self, "_loop", None):
            loop.ring()

    def run(self) -> None:
        """Serve until `stop`; raises StorageRefused when the disk failed (G9)."""
        try:
            self._loop.run()
            logger.info("server stopped")
        except OSError as error:
            raise StorageRefused(
                f"the disk failed ({error}); the server stopped without answering what was not "
                "durable. Look after the disk, then start it again: it recovers by itself",
                code="disk_failed",
            ) from error
        finally:
            self._replica.close()
            self._spares.release()

    def stop(self) -> None:
        """Give the lead away and end; from any thread or a signal handler."""
        self._loop.stop()


def _agreement(identity: ClusterIdentity, keys: ClusterKeys, address: str) -> ShardAgreement:
    return ShardAgreement(
        identity.server_id,
        keys,
        FIRST_SHARD,
        founding=identity.founding,
        address=address,
        claim=_nonce(),
        new_nonce=_nonce,
    )


def _nonce() -> str:
    return secrets.token_hex(8)
