"""Everything that will be done in a simulated world, drawn in advance: a list that can be cut.

Law: running a schedule draws only what the network and the disk do by chance; what applications
do, and which mishaps befall whom and when, stands in the list. So a failing one can be shrunk,
kept as JSON, and run again. `FORMAT` grows when the meaning of a step changes.
"""

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from random import Random

import msgspec

from oncemq.testing.unsynced_changes import PowerCut
from simulator.clock import stream
from simulator.schedule.cast import SETTLING_MS, Cast, Value, WorldStep
from simulator.schedule.churn import churn_deeds, disk_deeds
from simulator.schedule.clusters import cluster_deeds, cluster_options_of, placed
from simulator.schedule.going_back import back_deeds
from simulator.schedule.leaders import leader_deeds
from simulator.schedule.leases import lease_deeds
from simulator.schedule.options import LISTENING, WorldOptions, options_of
from simulator.schedule.patterns import wild_deeds
from simulator.schedule.required import required_deeds
from simulator.schedule.sequences import SEQUENCES
from simulator.schedule.sinks import sink_deeds

FORMAT = 1
DAYS_MS = 8 * 86_400_000  # longer than anything is remembered for a time
CLOCK_SET_MS = (-3_600_000, -900, 900, 7_200_000, -DAYS_MS, DAYS_MS)
CUTS = tuple(cut.name for cut in PowerCut)


class Schedule(msgspec.Struct, frozen=True):
    """A whole history to be."""

    format: int
    options: WorldOptions
    steps: tuple[WorldStep, ...]

    def save(self, path: Path) -> None:
        """Keep it, readable."""
        path.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n")


def load(path: Path) -> Schedule:
    """A schedule that was kept."""
    return msgspec.json.decode(path.read_bytes(), type=Schedule)


def schedule_of(seed: int, options: WorldOptions | None = None) -> Schedule:
    """The schedule of a seed."""
    options = options or options_of(seed)
    cast = Cast(options)
    steps = [*_opening(cast, stream(seed, "opening")), *_deeds(cast, stream(seed, "workload"))]
    steps += _mishaps(cast, stream(seed, "faults"))
    steps += _listens(cast, stream(seed, "listens"))
    steps += _deals(cast, stream(seed, "deals"))
    steps += sink_deeds(cast, stream(seed, "sinks"))
    steps += wild_deeds(cast, stream(seed, "wild"))
    steps += required_deeds(cast, stream(seed, "required"))
    steps += churn_deeds(cast, stream(seed, "churn"))
    steps += disk_deeds(cast, stream(seed, "client disk"))
    steps += lease_deeds(cast, stream(seed, "leases"))
    steps += leader_deeds(cast, stream(seed, "leaders"))
    steps += back_deeds(cast, stream(seed, "back"))
    if options.cluster:
        steps += cluster_deeds(cast, stream(seed, "cluster deeds"))
        steps = list(placed(steps, stream(seed, "cluster")))
    return Schedule(FORMAT, options, tuple(sorted(steps, key=lambda step: step.at_ms)))


def cluster_schedule_of(seed: int) -> Schedule:
    """The schedule of the world of three servers that a seed means."""
    return schedule_of(seed, cluster_options_of(seed))


def _opening(cast: Cast, draw: Random) -> Iterator[WorldStep]:
    """The first subscriptions; one client subscribes to nearly everything, and stays."""
    for number, who in enumerate(cast.subscribers):
        for topic in cast.topics:
            if draw.random() < (0.9 if number == 0 else 0.6):
                at = draw.randrange(50, 250) if number == 0 else draw.randrange(50, 2_000)
                where = "earliest" if draw.random() < 0.2 else "new"
                yield WorldStep(at, "subscribe", who, {"topic": topic, "where": where})


def _deeds(cast: Cast, draw: Random) -> Iterator[WorldStep]:
    options = cast.options
    for number in range(1, options.deeds + 1):
        at = draw.randrange(SETTLING_MS, options.chaos_ms)
        kind = draw.random()
        if kind < 0.5:
            yield _put(cast, draw, at, number)
        elif kind < 0.9 or not (cast.has("moving") or cast.has("forgery")):
            yield _get(cast, draw, at)
        elif cast.has("moving") and (kind < 0.97 or not cast.has("forgery")):
            yield from _move(cast, draw, at)
        elif cast.has("forgery"):
            yield WorldStep(
                at, "forge", draw.choice(cast.lasting), {"topic": draw.choice(cast.topics)}
            )


def _put(cast: Cast, draw: Random, at: int, number: int) -> WorldStep:
    who = draw.choice([*cast.publishers, *cast.publishers, *cast.guests, cast.subscribers[-1]])
    args: dict[str, Value] = {
        "number": number,
        "topic": draw.choice(cast.topics),
        "count": draw.choice((1, 1, 1, 3, 8)),
        "size": draw.randrange(8, cast.options.size_max),
        "durable": draw.random() < 0.8,
        "wait": draw.random() < 0.5,
        "older": draw.random() < 0.3,
        "again": draw.choice((1, 1, 1, 4)),  # so many like it, one right after the other
    }
    return WorldStep(at, "put", who, args)


def _get(cast: Cast, draw: Random, at: int) -> WorldStep:
    args: dict[str, Value] = {
        "topic": "" if draw.random() < 0.25 else draw.choice(cast.topics),
        "limit": draw.choice((1, 2, 5, 20)),
        "wait_ms": draw.choice((0, 0, 300, 2_000)),
        "older": draw.random() < 0.3,
        "rounds": draw.choice((1, 1, 1, 5)),
    }
    if draw.random() < 0.4:
        args["hold_ms"] = draw.choice((1, 20, 400))
        args["fails"] = draw.random() < 0.5
    return WorldStep(at, "get", draw.choice(cast.subscribers), args)


def _listens(cast: Cast, draw: Random) -> Iterator[WorldStep]:
    """Subscribers that listen now and then, between their gets or instead of them."""
    if not cast.has(LISTENING):
        return
    for _ in range(cast.options.deeds // 3):
        at = draw.randrange(SETTLING_MS, cast.options.chaos_ms)
        topics = draw.sample(cast.topics, draw.randint(0, len(cast.topics)))
        args: dict[str, Value] = {
            "topics": " ".join(topics),
            "limit": draw.choice((1, 5, 20)),
            "wait_ms": draw.choice((50, 300, 2_000)),
            "hold_ms": draw.choice((0, 0, 5, 300)),
            "fails": draw.random() < 0.2,
            "leaves": draw.random() < 0.2,
            "rounds": draw.choice((1, 3, 10)),
            "older": draw.random() < 0.2,
        }
        yield WorldStep(at, "listen", draw.choice(cast.subscribers), args)


def _deals(cast: Cast, draw: Random) -> Iterator[WorldStep]:
    """Transactions, commits of stages, keyed puts; some are tried twice, by two clients."""
    numbers = count(1_000_000, 10)
    for deal in range(cast.options.deals):
        at = draw.randrange(SETTLING_MS, cast.options.chaos_ms)
        kind = draw.random()
        size = draw.randrange(8, cast.options.size_max)
        topics = draw.sample(cast.topics, min(len(cast.topics), draw.choice((1, 1, 2))))
        args: dict[str, Value] = {"number": next(numbers), "size": size}
        if kind < 0.6:
            args |= {
                "source": draw.choice((*cast.topics, *cast.topics, "")),
                "targets": "\n".join(topics),
                "limit": draw.choice((1, 3, 10)),
                "hold_ms": draw.choice((0, 0, 1, 50, 800)),
                "fails": draw.random() < 0.2,
                "older": draw.random() < 0.3,
            }
            yield WorldStep(at, "transact", draw.choice(cast.subscribers), args)
            continue
        args |= {"topic": topics[0], "count": draw.choice((1, 2, 6))}
        do = "stage" if kind < 0.8 else "keyed"
        if do == "stage":
            args |= {"owner": f"query-{deal % 2}", "commit": deal + 1}
        for _ in range(draw.choice((1, 2, 3))):
            who = draw.choice([*cast.lasting, *cast.guests])
            yield WorldStep(at, do, who, dict(args))
            at += draw.choice((0, 3, 200, 2_500))
            if do == "stage":
                args["number"] = next(numbers)


def _move(cast: Cast, draw: Random, at: int) -> Iterator[WorldStep]:
    """Leave and come back, or look for messages in between; the first subscriber stays."""
    if len(cast.subscribers) == 1:
        return
    who, topic = draw.choice(cast.subscribers[1:]), draw.choice(cast.topics)
    pause = draw.choice((0, 5, 500))
    yield WorldStep(at, "unsubscribe", who, {"topic": topic})
    if draw.random() < 0.4:
        args: dict[str, Value] = {"topic": topic, "limit": 5, "wait_ms": 0, "older": False}
        yield WorldStep(at + pause // 2, "get", who, args)
    if draw.random() < 0.8:
        where = "earliest" if draw.random() < 0.2 else "new"
        yield WorldStep(at + pause, "subscribe", who, {"topic": topic, "where": where})
        if cast.has("server_cut") and draw.random() < 0.5:
            yield _power_cut(draw, at + pause + draw.choice((2, 10, 40)))


def _mishaps(cast: Cast, draw: Random) -> Iterator[WorldStep]:
    options = cast.options
    if not options.faults:
        return
    makers = [MISHAPS[fault] for fault in options.faults if fault in MISHAPS]
    for _ in range(options.mishaps if makers else 0):
        at = draw.randrange(SETTLING_MS, options.chaos_ms)
        yield from draw.choice(makers)(cast, draw, at)


def _down(draw: Random) -> int:
    return draw.choice((1, 50, 500, 3_000))


def _power_cut(draw: Random, at: int) -> WorldStep:
    """At that time, or in the middle of the first write after it."""
    args: dict[str, Value] = {"mode": draw.choice(CUTS), "down_ms": _down(draw)}
    if draw.random() < 0.3:
        return WorldStep(at, "cut_server", "", args)
    left = draw.choice((1, 1, 2))
    return WorldStep(at, "trap_server", "", {**args, "calls": "sync", "left": left, "again": False})


def _server_cut(cast: Cast, draw: Random, at: int) -> Iterator[WorldStep]:
    yield _power_cut(draw, at)


def _server_kill(cast: Cast, draw: Random, at: int) -> Iterator[WorldStep]:
    yield WorldStep(at, "kill_server", "", {"down_ms": _down(draw)})
    if draw.random() < 0.5:  # what was recovered from the page cache must be durable by then
        yield _power_cut(draw, at + draw.choice((100, 700)))


def _trap(draw: Random) -> dict[str, Value]:
    calls = draw.choice(("", "sync", "sync", "write", "rename", "remove", "sync_directory"))
    return {
        "calls": calls,
        "left": draw.randrange(1, 30 if not calls else 4),
        "mode": draw.choice((*CUTS, "", "", "")),
        "down_ms": _down(draw),
        "again": draw.random() < 0.4,  # and once more while it comes back
    }


def _server_trap(cast: Cast, draw: Random, at: int) -> Iterator[WorldStep]:
    yield WorldStep(at, "trap_server", "", _trap(draw))
    if draw.random() < 0.5:
        yield _power_cut(draw, at + draw.choice((50, 600, 1500)))


def _sync_error(cast: Cast, draw: Random, at: int) -> Iterator[WorldStep]:
    yield WorldStep(at, "fail_sync", "", {"down_ms": _down(draw)})
    if draw.random() < 0.6:
        yield _power_cut(draw, at + draw.choice((100, 700, 2000)))


def _slow_disk(cast: Cast, draw: Random, at: int) -> Iterator[WorldStep]:
    args: dict[str, Value] = {"sync_ms": draw.choice((200, 1_500, 3_000))}
    args["for_ms"] = draw.choice((500, 3_000))
    yield WorldStep(at, "slow_disk", "", args)
    if draw.random() < 0.6:  # most likely in the middle of a sync
        yield _power_cut(draw, at + draw.randrange(50, 3_000))


def _full_disk(cast: Cast, draw: Random, at: int) -> Iterator[WorldStep]:
    args: dict[str, Value] = {"spare": draw.choice((0, 3_000, 8_000))}
    args["for_ms"] = draw.choice((300, 2_000, 4_000))
    yield WorldStep(at, "fill_disk", "", args)


def _clock_jump(cast: Cast, draw: Random, at: int) -> Iterator[WorldStep]:
    yield WorldStep(at, "set_clock", "", {"ms": draw.choice(CLOCK_SET_MS)})


def _blackout(cast: Cast, draw: Random, at: int) -> Iterator[WorldStep]:
    """The server and a publisher lose power while something is on its way between them."""
    who = draw.choice(cast.lasting)
    for moment in (at - draw.choice((2, 20)), at + draw.choice((5, 30))):
        put = _put(cast, draw, moment, next(cast.numbers))
        yield msgspec.structs.replace(put, who=who)
    yield _power_cut(draw, at)
    args: dict[str, Value] = {"mode": draw.choice(CUTS), "down_ms": _down(draw)}
    yield WorldStep(at + draw.choice((0, 40, 300)), "cut", who, args)


def _client_kill(cast: Cast, draw: Random, at: int) -> Iterator[WorldStep]:
    who = draw.choice([*cast.lasting, *cast.guests])
    yield WorldStep(at, "kill", who, {"down_ms": _down(draw)})


def _client_cut(cast: Cast, draw: Random, at: int) -> Iterator[WorldStep]:
    args: dict[str, Value] = {"mode": draw.choice(CUTS), "down_ms": _down(draw)}
    yield WorldStep(at, "cut", draw.choice(cast.lasting), args)


def _client_trap(cast: Cast, draw: Random, at: int) -> Iterator[WorldStep]:
    yield WorldStep(at, "trap", draw.choice(cast.publishers), _trap(draw))


def _client_stop(cast: Cast, draw: Random, at: int) -> Iterator[WorldStep]:
    yield WorldStep(
        at, "stop", draw.choice([*cast.lasting, *cast.guests]), {"down_ms": _down(draw)}
    )


def _twin(cast: Cast, draw: Random, at: int) -> Iterator[WorldStep]:
    """A second process begins while the first one works on messages, and gets some, too."""
    who = draw.choice(cast.lasting)
    args: dict[str, Value] = {"topic": draw.choice(cast.topics), "limit": 5, "wait_ms": 300}
    if who in cast.subscribers:
        yield WorldStep(at - draw.choice((1, 50)), "get", who, {**args, "hold_ms": 400})
    yield WorldStep(at, "twin", who)
    if who in cast.subscribers:
        yield WorldStep(at + draw.choice((1, 50)), "get", who, args)


def _stale(cast: Cast, draw: Random, at: int) -> Iterator[WorldStep]:
    who = draw.choice(cast.lasting)
    yield WorldStep(max(SETTLING_MS, at - draw.choice((100, 1_000, 4_000))), "copy", who)
    yield WorldStep(at, "restore", who)


def _reset(cast: Cast, draw: Random, at: int) -> Iterator[WorldStep]:
    for _ in range(draw.choice((1, 1, 3))):
        yield WorldStep(at, "reset", draw.choice([*cast.lasting, *cast.guests]))
        at += draw.choice((3, 40))


def _silence(cast: Cast, draw: Random, at: int) -> Iterator[WorldStep]:
    ways: dict[str, Value] = dict(
        draw.choice(({"up": True}, {"down": True}, {"up": True, "down": True}))
    )
    ways["for_ms"] = draw.choice((100, 1_500, 5_000))
    ways["resets"] = draw.random() < 0.3
    yield WorldStep(at, "silence", draw.choice([*cast.lasting, *cast.guests]), ways)


def _clog(cast: Cast, draw: Random, at: int) -> Iterator[WorldStep]:
    args: dict[str, Value] = {"for_ms": draw.choice((100, 1_200, 4_000))}
    yield WorldStep(at, "clog", draw.choice([*cast.lasting, *cast.guests]), args)


def _double(cast: Cast, draw: Random, at: int) -> Iterator[WorldStep]:
    args: dict[str, Value] = {
        "count": draw.choice((1, 5, 20)),
        "delay_ms": draw.choice((1, 30, 900)),
    }
    yield WorldStep(at, "double", draw.choice([*cast.lasting, *cast.guests]), args)


MISHAPS = {
    "server_cut": _server_cut,
    "server_kill": _server_kill,
    "server_trap": _server_trap,
    "sync_error": _sync_error,
    "slow_disk": _slow_disk,
    "full_disk": _full_disk,
    "clock_jump": _clock_jump,
    "blackout": _blackout,
    "client_kill": _client_kill,
    "client_cut": _client_cut,
    "client_trap": _client_trap,
    "client_stop": _client_stop,
    "twin": _twin,
    "stale": _stale,
    "reset": _reset,
    "silence": _silence,
    "clog": _clog,
    "double": _double,
    **SEQUENCES,
}
