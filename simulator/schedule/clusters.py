"""What is drawn for a world of three servers: which world a seed means, and what befalls whom."""

from collections.abc import Callable, Iterable, Iterator
from random import Random

from msgspec import structs

from simulator.clock import stream
from simulator.schedule.cast import SETTLING_MS, Cast, Value, WorldStep
from simulator.schedule.options import WorldOptions, options_of

# Those of one server's mishaps; each befalls one of three here.
OF_A_SERVER = (
    *("cut_server", "kill_server", "trap_server", "fail_sync", "slow_disk", "fill_disk"),
    "set_clock",
)
WHO = ("a", "b", "c", "leader", "leader", "follower", "other")
WHILE_MS = (50, 700, 2_500, 4_500, 8_000)


def cluster_options_of(seed: int) -> WorldOptions:
    """The world of three servers that a seed means."""
    draw = stream(seed, "cluster options")
    options = options_of(seed - seed % 10 + draw.choice((0, 1, 2, 3, 4, 5, 6, 7, 9)))
    share = draw.choice((0.15, 0.3, 0.6))
    faults = tuple(fault for fault in CLUSTER_FAULTS if draw.random() < share)
    return structs.replace(
        options,
        seed=seed,
        faults=options.faults + faults,
        cluster=True,
        cluster_mishaps=draw.choice((2, 6, 12, 20)) if faults else 0,
        leaders=0,
        back=False,
    )


def placed(steps: Iterable[WorldStep], draw: Random) -> Iterator[WorldStep]:
    """What befalls a server befalls one of three."""
    for step in steps:
        if step.do in OF_A_SERVER and not step.who:
            yield structs.replace(step, who=draw.choice(WHO))
        else:
            yield step


def cluster_deeds(cast: Cast, draw: Random) -> Iterator[WorldStep]:
    """What befalls a cluster and no server alone."""
    makers = [each for fault, each in (CLUSTER_FAULTS | AIMED_FAULTS).items() if cast.has(fault)]
    for _ in range(cast.options.cluster_mishaps if makers else 0):
        yield from draw.choice(makers)(draw, draw.randrange(SETTLING_MS, cast.options.chaos_ms))


def _freeze(draw: Random, at: int) -> Iterator[WorldStep]:
    yield WorldStep(at, "freeze", draw.choice(WHO), {"for_ms": draw.choice(WHILE_MS)})


def _cut_ways(draw: Random, at: int) -> Iterator[WorldStep]:
    args: dict[str, Value] = {
        "to": draw.choice(("a", "b", "c", "servers", "clients", "etcd", "all")),
        "out": draw.random() < 0.5,
        "back": False,
        "for_ms": draw.choice(WHILE_MS),
    }
    args["back"] = bool(args["out"]) and draw.random() < 0.5
    yield WorldStep(at, "cut_ways", draw.choice(WHO), args)


def _isolate_the_leader(draw: Random, at: int) -> Iterator[WorldStep]:
    """It goes on believing that it leads; so may clients that still reach it."""
    args: dict[str, Value] = {"to": "servers", "out": True, "back": draw.random() < 0.7}
    yield WorldStep(at, "cut_ways", "leader", {**args, "for_ms": draw.choice(WHILE_MS)})
    if draw.random() < 0.7:
        for_ms = draw.choice(WHILE_MS)
        yield WorldStep(at, "cut_ways", "leader", {**args, "to": "etcd", "for_ms": for_ms})


def _one_way_cut_after_the_other(draw: Random, at: int) -> Iterator[WorldStep]:
    """Whoever leads hears nobody, or is not heard; then, or just before that ends, the next one."""
    for _ in range(draw.choice((2, 3, 4))):
        for_ms = draw.choice((2_500, 4_500, 8_000))
        args: dict[str, Value] = {"to": "servers", "out": draw.random() < 0.5, "back": False}
        yield WorldStep(at, "cut_ways", "leader", {**args, "for_ms": for_ms})
        at += for_ms + draw.choice((-700, 20, 700, 1_900))


def _etcd_away(draw: Random, at: int) -> Iterator[WorldStep]:
    yield WorldStep(at, "etcd_away", "", {"for_ms": draw.choice(WHILE_MS)})
    if draw.random() < 0.3:
        yield WorldStep(at + 10, "kill_server", draw.choice(WHO), {"down_ms": 50})


def _etcd_lossy(draw: Random, at: int) -> Iterator[WorldStep]:
    yield WorldStep(at, "etcd_is_lossy", "", {"for_ms": draw.choice((2_500, 8_000))})


def _lease_lost(draw: Random, at: int) -> Iterator[WorldStep]:
    yield WorldStep(at, "end_leases")


def _history_forgotten(draw: Random, at: int) -> Iterator[WorldStep]:
    yield WorldStep(at, "forget_history")


def _drain(draw: Random, at: int) -> Iterator[WorldStep]:
    yield WorldStep(at, "drain", draw.choice(WHO), {"for_ms": draw.choice(WHILE_MS)})


def _disk_lost(draw: Random, at: int) -> Iterator[WorldStep]:
    yield WorldStep(at, "lose_disk", draw.choice(WHO), {"down_ms": draw.choice((1, 500, 3_000))})


def _disk_set_back(draw: Random, at: int) -> Iterator[WorldStep]:
    who = draw.choice(("a", "b", "c"))
    before = max(SETTLING_MS, at - draw.choice((300, 1_500, 5_000)))
    yield WorldStep(before, "copy_disk", who)
    yield WorldStep(at, "set_back_disk", who, {"down_ms": draw.choice((1, 500, 3_000))})


def _one_after_the_other(draw: Random, at: int) -> Iterator[WorldStep]:
    """Whoever leads is killed, or stands still, again and again."""
    for _ in range(draw.choice((2, 3, 4))):
        if draw.random() < 0.5:
            args: dict[str, Value] = {"down_ms": draw.choice((1, 500, 3_000))}
            yield WorldStep(at, "kill_server", "leader", args)
        else:
            yield WorldStep(at, "freeze", "leader", {"for_ms": draw.choice(WHILE_MS)})
        at += draw.choice((200, 3_600, 4_500))


def _left_behind(draw: Random, at: int) -> Iterator[WorldStep]:
    """One hears nothing for a moment, and leads when the two that went on stand still."""
    args: dict[str, Value] = {"to": "servers", "out": True, "back": True, "for_ms": 1_200}
    yield WorldStep(at, "cut_ways", "other", args)
    for who in ("follower", "leader"):
        yield WorldStep(at + draw.choice((600, 1_100)), "freeze", who, {"for_ms": 4_500})


def _followers_cut(draw: Random, at: int) -> Iterator[WorldStep]:
    """Both followers lose power, and whoever leads is gone when they are back."""
    for who in ("follower", "other"):
        args: dict[str, Value] = {"mode": "NOTHING", "down_ms": draw.choice((1, 200))}
        yield WorldStep(at, "cut_server", who, args)
    yield WorldStep(at + draw.choice((20, 60)), "kill_server", "leader", {"down_ms": 3_000})


def _all_cut(draw: Random, at: int) -> Iterator[WorldStep]:
    """The power of all of them, within moments."""
    for who in ("a", "b", "c"):
        mode = draw.choice(("NOTHING", "PREFIX", "REORDERED", "TORN", "ZEROED", "SIZE_LOST"))
        args: dict[str, Value] = {"mode": mode, "down_ms": draw.choice((1, 500, 3_000))}
        yield WorldStep(at + draw.choice((0, 1, 30)), "cut_server", who, args)


def _to_and_fro(draw: Random, at: int) -> Iterator[WorldStep]:
    """Whoever leads gives the lead away, and soon has it again: copies of puts come late."""
    for _ in range(8):
        for who in ("p0", "p1", "g0"):
            copies: dict[str, Value] = {"count": 20, "delay_ms": draw.choice((900, 2_500))}
            yield WorldStep(at, "double", who, copies)
        yield WorldStep(at, "drain", "leader", {"for_ms": 300})
        at += draw.choice((350, 500, 800))


def _forgotten(draw: Random, at: int) -> Iterator[WorldStep]:
    """A leader stands still, and hears of no other when it goes on; one client reaches it alone.

    While it stood still others stored elsewhere: it does not know of that, nor waits for a commit.
    """
    away: dict[str, Value] = {"out": True, "back": True, "for_ms": 9_000}
    for who in ("p0", "p1", "g0", "s0", "s2"):
        yield WorldStep(at - 60, "cut_ways", "leader", {**away, "to": who})
    for who, to in (("follower", "s1"), ("other", "s1"), ("leader", "servers"), ("leader", "etcd")):
        yield WorldStep(at, "cut_ways", who, {**away, "to": to})
    yield WorldStep(at, "freeze", "leader", {"for_ms": 5_200})
    for number in range(12):
        yield WorldStep(at + 4_500 + 250 * number, "ask", "s1", {"topic": "t0"})


def _back_and_alone(draw: Random, at: int) -> Iterator[WorldStep]:
    """A disk is set back; who leads is gone when its server is there again."""
    before = max(SETTLING_MS, at - draw.choice((1_500, 3_000)))
    yield WorldStep(before, "copy_disk", "a")
    yield WorldStep(at, "set_back_disk", "a", {"down_ms": 1})
    for_ms = draw.choice((4_500, 8_000))
    yield WorldStep(at + draw.choice((20, 60, 200)), "freeze", "leader", {"for_ms": for_ms})


def _left_alone(draw: Random, at: int) -> Iterator[WorldStep]:
    """The only subscriber leaves a leader that is alone, and is gone; that one leads again first.

    What it leaves is not committed: its messages are kept.
    """
    for to in ("servers", "etcd"):
        args: dict[str, Value] = {"to": to, "out": True, "back": True, "for_ms": 6_500}
        yield WorldStep(at, "cut_ways", "leader", args)
    yield WorldStep(at + draw.choice((100, 600)), "unsubscribe", "s0", {"topic": "t0"})
    yield WorldStep(at + draw.choice((1_800, 2_700)), "kill", "s0", {"down_ms": 8_000})
    for number in range(5):
        yield WorldStep(at + 7_000 + 500 * number, "drain", "leader", {"for_ms": 400})


CLUSTER_FAULTS: dict[str, Callable[[Random, int], Iterator[WorldStep]]] = {
    "freeze": _freeze,
    "cut_ways": _cut_ways,
    "isolation": _isolate_the_leader,
    "etcd_away": _etcd_away,
    "etcd_lossy": _etcd_lossy,
    "lease_lost": _lease_lost,
    "history_forgotten": _history_forgotten,
    "drain": _drain,
    "disk_lost": _disk_lost,
    "disk_set_back": _disk_set_back,
    "one_after_the_other": _one_after_the_other,
    "left_behind": _left_behind,
    "followers_cut": _followers_cut,
    "all_cut": _all_cut,
    "one_way_cuts": _one_way_cut_after_the_other,
}
# Only in worlds that are aimed at a planted bug (`simulator/planted/clusters`).
AIMED_FAULTS: dict[str, Callable[[Random, int], Iterator[WorldStep]]] = {
    "to_and_fro": _to_and_fro,
    "forgotten": _forgotten,
    "back_and_alone": _back_and_alone,
    "left_alone": _left_alone,
}
