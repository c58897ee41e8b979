"""The composition root: builds a server from its settings and runs it."""

import contextlib
import gc
import logging
import resource
import secrets
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from oncemq.broker.broker import Broker
from oncemq.cluster.cluster_server import ClusterIdentity, ClusterServer
from oncemq.config import Config
from oncemq.config.of_clusters import check_cluster
from oncemq.coordination.coordinator import Ring
from oncemq.coordination.etcd.connection import Access
from oncemq.coordination.etcd.coordinator import EtcdCoordinator
from oncemq.errors import StorageRefused
from oncemq.protocol.limits import ServerLimits
from oncemq.protocol.names import ServerId
from oncemq.server.clock import SteadyClock
from oncemq.server.driver import Driver
from oncemq.server.housekeeping import Housekeeping
from oncemq.server.loop import Loop, TurnLimits
from oncemq.server.recovery import recover
from oncemq.server.sockets import FILES_KEPT, ServerSockets, warn_of_others, warn_of_writers
from oncemq.storage.disk import (
    Disk,
    LocalDisk,
    LockingDisk,
    Spares,
)
from oncemq.storage.log.log import LogOptions
from oncemq.storage.log.recovery import Recovery, open_log
from oncemq.storage.segments.promised_epoch import promised_in
from oncemq.transport.router import RouterSocket
from oncemq.transport.serving.limits import ConnectionLimits

# The writer wants to run again after each call of the system. By default a busy loop may keep it
# waiting for 5 ms each time: in a flood of requests a commit of 1 ms took 100.
THREADS_TURN_SECONDS = 0.000_05
# A full collection of garbage looks at every object, and everybody waits: 6 ms with a thousand long
# polls. What was recovered stays anyway; of what comes later, all of it is looked at more seldom.
COLLECT_AFTER = (10_000, 20, 50)

logger = logging.getLogger("oncemq.server")


class Server:
    """A server on one data directory: opened (recovered and listening) when it exists."""

    def __init__(
        self,
        data: Path,
        bind: str,
        *,
        rules: ServerLimits,
        options: LogOptions,
        peers: ConnectionLimits | None = None,
        turn: TurnLimits | None = None,
        files_kept: int = FILES_KEPT,
        feed: str = "auto",
        disk: LockingDisk | None = None,
        door: Callable[..., RouterSocket] = RouterSocket,
    ) -> None:
        started = time.monotonic()
        self._spares = Spares()
        with contextlib.ExitStack() as undo:  # who fails to start leaves nothing open
            undo.callback(self._spares.release)
            disk = disk or LocalDisk(self._spares)
            opened = open_log(disk, str(data), options, random_bytes=secrets.token_bytes)
            self._log = opened.log
            undo.callback(opened.log.close)
            opened.log.room.secure()
            _must_be_alone(disk, data)
            shard, self.recovered, missing = recover(opened)
            broker = Broker(shard, rules)
            clock = SteadyClock(time.time_ns, time.monotonic_ns, shard.last_timestamp, ticks=1000)
            broker.recovered(clock())
            sockets = ServerSockets(
                bind, feed, rules=rules, peers=peers, files_kept=files_kept, door=door
            )
            undo.callback(sockets.close)
            self.address = sockets.address
            self.feed = broker.listeners.feed = sockets.feed_address
            driver = Driver(broker, opened.log)
            # Holes first: killed in between, the next start finds the generation not begun yet.
            driver.lose([each.record for each in missing], clock())
            for each in missing:
                logger.warning("messages lost for good, as a person agreed: %s", each)
            driver.keep_time(clock.calendar, clock())
            driver.begin(clock())
            housekeeping = Housekeeping(driver, clock())
            requests = sockets.requests
            self._loop = Loop(driver, requests, sockets.feed, housekeeping, clock, turn)
            undo.pop_all()
        self.recovery_seconds = time.monotonic() - started
        self._tell_start(data, opened.report)

    def _tell_start(self, data: Path, report: Recovery) -> None:
        warn_of_others(self.address)
        warn_of_writers(data)
        logger.info(
            "server started address=%s feed=%s records=%d segments=%d seconds=%.2f",
            self.address, self.feed or "none", self.recovered, report.segments,
            self.recovery_seconds,
        )  # fmt: skip
        for copy in report.torn:
            logger.warning("torn tail cut copy=%s", copy)
        for checkpoint in report.damaged_checkpoints:
            logger.warning("damaged checkpoint passed over path=%s", checkpoint)

    def run(self) -> None:
        """Serve until `stop`; raises StorageRefused when the disk failed (G9)."""
        try:
            self._loop.run()
            logger.info("server stopped serial=%d", self._log.last_serial)
        except OSError as error:
            raise StorageRefused(
                f"the disk failed ({error}); the server stopped without answering what was not "
                "durable. Look after the disk, then start it again: it recovers by itself",
                code="disk_failed",
            ) from error
        finally:
            self._log.close()
            self._spares.release()

    def stop(self) -> None:
        """Drain and end; from any thread or a signal handler."""
        self._loop.stop()


def _must_be_alone(disk: Disk, data: Path) -> None:
    """A replica goes on in its cluster: alone, it would part from what the others have."""
    promised = promised_in(disk, str(data))
    if promised:
        raise StorageRefused(
            f"{data} is a replica of a cluster (leader epoch {promised}): start it with --cluster, "
            "--etcd and --server-id. To go on with a copy of it alone, make a backup of it and "
            "restore that: `once backup`, `once restore`",
            code="is_a_replica",
        )


class _Settings(NamedTuple):
    """What any server is built of."""

    rules: ServerLimits
    options: LogOptions
    peers: ConnectionLimits
    turn: TurnLimits


def _settings(config: Config) -> _Settings:
    rules = ServerLimits(
        message_bytes_max=config.message_max,
        batch_bytes_max=config.batch_max,
        idempotency_ms=int(config.idempotency_ttl * 1000),
        idempotency_keys_max=config.idempotency_keys_max,
        stage_ms=int(config.stage_ttl * 1000),
        stages_max=config.stages_max,
        stage_bytes_max=config.stage_bytes_max,
        clients_max=config.clients_max,
        producers_max=config.producers_max,
        sync_ms=config.sync_ms,
        retry_ms=round(config.retry * 1000),
        request_entries_max=config.request_entries_max,
        gathered_bytes_max=config.gathered_max,
        held_answers_max=config.held_answers_max,
    )
    options = LogOptions(
        segment_bytes=config.segment_bytes,
        segment_share=8,
        disk_bytes_max=config.disk_max,
        sync_ms=config.sync_ms,
    )
    peers = ConnectionLimits(
        connections_max=config.connections_max or ConnectionLimits().connections_max,
        handshakes_max=config.handshakes_max,
        handshake_ms=round(config.handshake_time * 1000),
        unfinished_bytes_max=config.unfinished_max,
        unfinished_ms=round(config.unfinished_time * 1000),
        owed_pause_bytes=config.owed_pause,
        owed_bytes_max=config.owed_max,
        owed_total_max=config.owed_total_max,
        owed_ms=round(config.owed_time * 1000),
        feed_owed_max=config.feed_owed_max,
        subjects_max=config.subjects_max,
        subjects_total_max=config.subjects_total_max,
    )
    turn = TurnLimits(config.turn_requests, config.turn_bytes, config.turn_micros)
    return _Settings(rules, options, peers, turn)


def server_from(config: Config) -> Server:
    """A server as the settings say."""
    files, feed = config.files_kept, config.feed
    own = _settings(config)._asdict()
    return Server(Path(config.data), config.bind, **own, files_kept=files, feed=feed)


def cluster_server_from(config: Config) -> ClusterServer:
    """A server of a cluster, as the settings say."""
    assert config.cluster is not None
    assert config.server_id is not None
    identity = ClusterIdentity(config.cluster, ServerId(config.server_id), config.advertise or "")
    access = Access(config.etcd)

    def coordinator(prefix: str, ring: Ring) -> EtcdCoordinator:
        return EtcdCoordinator(access, prefix, ring)

    files, feed = config.files_kept, config.feed
    own = _settings(config)._asdict()
    data = Path(config.data)
    return ClusterServer(
        data, config.bind, identity, coordinator, **own, files_kept=files, feed=feed
    )


def _raise_file_limit() -> None:
    """As many connections as the system allows: each is a file, and 1,024 are soon used."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def serve(config: Config, *, ready: Callable[[Server | ClusterServer], None]) -> None:
    """Run a server in the foreground until SIGTERM, SIGINT or SIGHUP; drains, then returns."""
    check_cluster(config)
    _raise_file_limit()
    sys.setswitchinterval(THREADS_TURN_SECONDS)
    server = cluster_server_from(config) if config.cluster else server_from(config)
    gc.freeze()
    gc.set_threshold(*COLLECT_AFTER)

    def stop(_number: int, _frame: FrameType | None) -> None:
        server.stop()

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, stop)
        signal.signal(signal.SIGINT, stop)
        signal.signal(signal.SIGHUP, stop)  # its terminal is gone
    ready(server)
    server.run()
