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

import msgspec

from oncemq.broker.broker import Broker
from oncemq.config import Config
from oncemq.errors import PortInUse, StorageRefused, TooManyFiles
from oncemq.protocol.limits import ServerLimits
from oncemq.server.clock import SteadyClock
from oncemq.server.driver import Driver
from oncemq.server.housekeeping import Housekeeping
from oncemq.server.loop import Loop, TurnLimits
from oncemq.server.recovery import recover
from oncemq.storage.disk import (
    LocalDisk,
    LockingDisk,
    Spares,
    files_for_owner_only,
    others_may_write,
)
from oncemq.storage.log.log import LogOptions
from oncemq.storage.log.recovery import Recovery, open_log
from oncemq.transport.feed_publisher import FeedPublisher
from oncemq.transport.router import RouterSocket
from oncemq.transport.serving.connections import Connections
from oncemq.transport.serving.limits import ConnectionLimits

PORT_MAX = 65_535
LOOPBACK = ("tcp://127.", "tcp://[::1]", "tcp://localhost")
# The writer wants to run again after each call of the system. By default a busy loop may keep it
# waiting for 5 ms each time: in a flood of requests a commit of 1 ms took 100.
THREADS_TURN_SECONDS = 0.000_05
# A full collection of garbage looks at every object, and everybody waits: 6 ms with a thousand long
# polls. What was recovered stays anyway; of what comes later, all of it is looked at more seldom.
COLLECT_AFTER = (10_000, 20, 50)
FILES_KEPT = 48  # open files that are the server's own: segments, pipes, spares

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
            shard, self.recovered, missing = recover(opened)
            broker = Broker(shard, rules)
            clock = SteadyClock(time.time_ns, time.monotonic_ns, shard.last_timestamp, ticks=1000)
            broker.recovered(clock())
            # A frame of twice the largest batch still gets a refusal; beyond, the peer is cut.
            size = 2 * rules.batch_bytes_max
            connections = Connections(_fitting(peers or ConnectionLimits(), size, files_kept))
            with files_for_owner_only():  # an ipc socket is one
                way_in = door(bind, frame_bytes_max=size, connections=connections)
                undo.callback(way_in.close)
                live = _open_feed(feed, bind, connections)
                if live is not None:
                    undo.callback(live.close)
            self.address = way_in.address
            self.feed = broker.listeners.feed = live.address if live else ""
            driver = Driver(broker, opened.log)
            # Holes first: killed in between, the next start finds the generation not begun yet.
            driver.lose([each.record for each in missing], clock())
            for each in missing:
                logger.warning("messages lost for good, as a person agreed: %s", each)
            driver.keep_time(clock.calendar, clock())
            driver.begin(clock())
            self._loop = Loop(driver, way_in, live, Housekeeping(driver, clock()), clock, turn)
            undo.pop_all()
        self.recovery_seconds = time.monotonic() - started
        self._tell_start(data, opened.report)

    def _tell_start(self, data: Path, report: Recovery) -> None:
        _warn(data, self.address)
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


def _warn(data: Path, address: str) -> None:
    """Say what leaves the server open to others."""
    if address.startswith("tcp://") and not address.startswith(LOOPBACK):
        logger.warning(
            "listening beyond this machine address=%s; there is no authentication yet: whoever "
            "reaches it can read and write everything",
            address,
        )
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


def _open_feed(feed: str, bind: str, connections: Connections) -> FeedPublisher | None:
    """The live feed. `auto`: the port after the server's, or one that the system chooses."""
    if feed == "none":
        return None
    if feed != "auto":
        return FeedPublisher(feed, connections)
    scheme, _, place = bind.partition("://")
    if scheme != "tcp":
        return FeedPublisher(f"{bind}.feed", connections)
    host, _, port = place.rpartition(":")
    if port.isdecimal() and int(port) < PORT_MAX:
        with contextlib.suppress(PortInUse):
            return FeedPublisher(f"tcp://{host}:{int(port) + 1}", connections)
    return FeedPublisher(f"tcp://{host}:*", connections)


def server_from(config: Config) -> Server:
    """A server as the settings say."""
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
    return Server(
        Path(config.data),
        config.bind,
        rules=rules,
        options=options,
        peers=peers,
        turn=turn,
        files_kept=config.files_kept,
        feed=config.feed,
    )


def _raise_file_limit() -> None:
    """As many connections as the system allows: each is a file, and 1,024 are soon used."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def serve(config: Config, *, ready: Callable[[Server], None]) -> None:
    """Run a server in the foreground until SIGTERM, SIGINT or SIGHUP; drains, then returns."""
    _raise_file_limit()
    sys.setswitchinterval(THREADS_TURN_SECONDS)
    server = server_from(config)
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
