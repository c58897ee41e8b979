"""What one seed means: how large the world is, and which kinds of fault it has. Swarm testing.

Law: the options follow from the seed alone, and a schedule carries them, so that it can be run
again whatever becomes of the drawing.
"""

from random import Random

import msgspec

from oncemq.storage.log.log import LogOptions
from simulator.clock import stream

# Each is switched on or off as a whole.
FAULTS = (
    "server_cut",  # the server's machine loses power
    "server_kill",  # the server's process is killed
    "server_trap",  # either, at a certain disk call
    "sync_error",  # a sync fails, its bytes are dropped, the server ends
    "slow_disk",  # syncs take longer than clients wait
    "full_disk",  # no room for a while
    "clock_jump",  # the server's clock is set
    "blackout",  # the server and a client lose power within moments
    "client_kill",
    "client_cut",
    "client_trap",
    "client_stop",  # an orderly restart
    "twin",  # a second process with the same id
    "stale",  # the state directory is restored from a copy
    "reset",  # a connection breaks
    "silence",  # one direction, or both, deliver nothing for a while
    "clog",  # everything arrives late
    "double",  # requests arrive twice
    "moving",  # clients unsubscribe and subscribe again
    "forgery",  # a client uses a number again for something else
)
LISTENING = "listening"  # subscribers listen, to a feed that loses some; drawn apart from the rest
# What would leave nobody knowing who lost what, where the server goes back in time.
NOT_BACK = ("stale", "moving", "forgery")
CLIENT_DISK = "client_disk"  # disks of publishers fail, or fill up; in some worlds of their own
# Each in some of the worlds that go back in time; the last was added later, and is drawn last.
BESIDE_BACK = ("deals", CLIENT_DISK, "inbox", "wild")


class WorldOptions(msgspec.Struct, frozen=True):
    """One world."""

    seed: int
    faults: tuple[str, ...]
    topics: int
    publishers: int  # with state
    guests: int  # without: they only publish
    subscribers: int
    deeds: int  # of applications
    mishaps: int
    chaos_ms: int
    size_max: int
    delay_us: int  # the most a message usually takes
    late_ms: int  # how late leftovers of a broken connection may arrive
    sync_us: int
    segment_bytes: int
    allocate_bytes: int
    checkpoint_records: int
    checkpoint_bytes: int
    rotate_bytes: int  # of an outbox
    inbox: bool = False  # subscribers consume into a database of their own
    deals: int = 0  # transactions, staged commits and keyed puts
    sinks: int = 0  # deeds of drivers of two Spark sinks
    wild: int = 0  # deeds of watchers, who subscribe by pattern, and of who publishes to them
    required: int = 0  # puts that are required, also to a topic that nobody subscribes to yet
    churn: int = 0  # rolling restarts and kills of publishers to a topic that is made anew
    leases: int = 0  # gets of clients whose subscriptions are leased
    leaders: int = 0  # changes of the leader, in a cluster of three addresses
    cluster: bool = False  # three servers that are replicas, with etcd; see `schedule/clusters`
    cluster_mishaps: int = 0  # that befall only a cluster
    back: bool = False  # the server goes back in time: a backup is restored, damage taken out
    # A pattern is left between the backup and the going back to it: only in worlds that are aimed
    # at a planted bug (`simulator/planted/aims`).
    leaving: bool = False

    def log_options(self) -> LogOptions:
        """How the server keeps its log: small, so that everything happens often."""
        return LogOptions(
            segment_bytes=self.segment_bytes,
            allocate_bytes=self.allocate_bytes,
            reserve_bytes=2048,
            checkpoint_bytes=self.checkpoint_bytes,
            checkpoint_records=self.checkpoint_records,
            checkpoint_idle_ms=300,
            segment_stages=6,
            stages_kept=0,
        )


def options_of(seed: int) -> WorldOptions:
    """The world of a seed."""
    draw = stream(seed, "options")
    back = seed % 10 == 8
    beside = _beside_back(seed) if back else ()
    faults = _swarm(draw)
    return WorldOptions(
        seed=seed,
        faults=(
            *(fault for fault in faults if not back or fault not in NOT_BACK),
            *_listening(seed),
            *_client_disk(seed, beside),
        ),
        topics=draw.choice((1, 2, 2, 3)),
        publishers=draw.choice((1, 2, 2)),
        guests=draw.choice((0, 0, 1)),
        subscribers=draw.choice((1, 2, 2, 3)),
        deeds=draw.choice((40, 80, 120)),
        mishaps=draw.choice((1, 4, 8, 14)),
        chaos_ms=draw.choice((3_000, 8_000, 15_000)),
        size_max=draw.choice((40, 600, 3_000)),
        delay_us=draw.choice((500, 2_000, 20_000)),
        late_ms=draw.choice((2, 50, 1_500)),
        sync_us=draw.choice((200, 2_000, 30_000)),
        segment_bytes=draw.choice((8, 12, 32, 128)) << 10,
        allocate_bytes=draw.choice((2, 8, 64)) << 10,
        checkpoint_records=draw.choice((15, 50, 1_000)),
        checkpoint_bytes=draw.choice((4, 16, 1_000)) << 10,
        rotate_bytes=draw.choice((1, 4, 1_000)) << 10,
        inbox=seed % 6 == 5 or "inbox" in beside,
        deals=stream(seed, "deals option").choice((15, 40) if back else (0, 15, 40))
        if not back or "deals" in beside
        else 0,
        sinks=20 if seed % 10 in (1, 5) else 0,
        wild=60 if seed % 10 in (0, 2) or seed % 20 == 16 or _is_watched(beside) else 0,
        required=30 if seed % 10 == 3 else 0,
        churn=25 if seed % 20 == 16 else 0,
        leases=20 if seed % 20 == 14 else 0,
        leaders=8 if seed % 40 in (19, 33) else 0,
        back=back,
    )


def _swarm(draw: Random) -> tuple[str, ...]:
    """Most faults off: a world with all of them explores less than many with some."""
    share = draw.choice((0.15, 0.3, 0.6))
    return tuple(fault for fault in FAULTS if draw.random() < share)


def _listening(seed: int) -> tuple[str, ...]:
    """Drawn by itself, so that the seeds from before still mean the worlds they meant."""
    return (LISTENING,) if stream(seed, LISTENING).random() < 0.4 else ()


def _beside_back(seed: int) -> tuple[str, ...]:
    draw = stream(seed, "beside back")
    return tuple(kind for kind in BESIDE_BACK if draw.random() < 0.35)


def _is_watched(beside: tuple[str, ...]) -> bool:
    """Not where a person moves rows of databases: whose they are is not told by a pattern."""
    return "wild" in beside and "inbox" not in beside


def _client_disk(seed: int, beside: tuple[str, ...]) -> tuple[str, ...]:
    return (CLIENT_DISK,) if seed % 20 in (13, 16) or CLIENT_DISK in beside else ()
