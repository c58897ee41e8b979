"""Many simulated histories: for a while, from a seed on, with their marks. `make sim SEED=n`.

    python -m simulator.campaign               fresh seeds, for a minute
    python -m simulator.campaign fresh 10      fresh seeds, for 10 minutes
    python -m simulator.campaign 7             the history of seed 7, shrunk if it fails
    python -m simulator.campaign cluster-7     the same of three servers, with etcd
    python -m simulator.campaign some.json     a schedule that was kept
    python -m simulator.campaign planted       which planted bugs are caught, and by which seed

Law: what fails is printed with its seed, and that seed alone brings it back.
"""

import logging
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain, count, islice
from pathlib import Path

from simulator import marks, proof
from simulator.planted.aims import AIMS, aimed
from simulator.planted.planted import NEEDS, PLANTED
from simulator.schedule.options import WorldOptions, options_of
from simulator.schedule.schedule import Schedule, cluster_schedule_of, load, schedule_of
from simulator.shrink import kinds, shrink
from simulator.trial import outcome_of
from simulator.world.simulation import WorldOutcome, run

CLUSTER = "cluster-"  # before a seed: its world of three servers
PLANTED_SEEDS = 300  # within so many worlds each planted bug must be caught
SLIPS = ("AttributeError", "TypeError", "NameError")  # of the stand-in itself: not what it breaks

# What the reliability card calls the mishaps of a schedule.
FAULTS = {
    "kill": "kill -9",
    "kill_server": "kill -9",
    "cut": "power cut",
    "cut_server": "power cut",
    "trap": "power cut",
    "trap_server": "power cut",
    "fail_sync": "failed sync",
    "fill_disk": "full disk",
    "slow_disk": "slow disk",
    "set_clock": "clock jump",
    "restore": "stale file",
    "go_back": "backup restored",
    "damage": "damage taken out",
    "reset": "reset with unknown delivery",
    "clog": "delay",
    "lead": "change of the leader",
    "double": "doubled message",
    "freeze": "frozen server",
    "etcd_away": "etcd away",
    "etcd_is_lossy": "lost answer of etcd",
    "end_leases": "lease lost early",
    "forget_history": "etcd's history compacted",
    "drain": "server drained",
    "lose_disk": "disk lost",
    "set_back_disk": "stale disk",
}


@dataclass(slots=True)
class Campaign:
    """What many histories added up to."""

    wanted: dict[str, str] = field(default_factory=lambda: marks.SOMETIMES)
    histories: int = 0
    seconds: float = 0.0
    simulated: int = 0  # nanoseconds
    puts: int = 0
    given: int = 0
    faults: dict[str, int] = field(default_factory=dict[str, int])
    marks: dict[str, int] = field(default_factory=dict[str, int])
    failures: dict[int, list[str]] = field(default_factory=dict[int, list[str]])

    def see(self, seed: int, schedule: Schedule, outcome: WorldOutcome) -> None:
        """Count one history."""
        self.histories += 1
        for fault in faults_of(schedule):
            self.faults[fault] = self.faults.get(fault, 0) + 1
        self.simulated += outcome.simulated
        self.puts += outcome.puts
        self.given += outcome.given
        marks.add(self.marks, outcome.marks)
        if outcome.findings:
            self.failures[seed] = outcome.findings

    @property
    def unseen(self) -> list[str]:
        """The marks that never came, if there were histories enough for them to."""
        return marks.missing(self.marks, self.wanted) if self.histories >= marks.ENOUGH else []

    def record(self, command: str, name: str = "simulation") -> None:
        """Keep the numbers for the reliability card; runs that are counted apart need two names."""
        counts: dict[str, float] = {
            "histories": self.histories,
            "simulated_seconds": self.simulated / 1e9,
            "messages": self.given,
            **{f"fault: {fault}": times for fault, times in self.faults.items()},
        }
        proof.record(name, command, counts, failures=len(self.failures))

    def __str__(self) -> str:
        rate = self.histories / max(self.seconds, 0.001) * 60
        hours = self.simulated / 3.6e12
        return (
            f"{self.histories} histories in {self.seconds:.0f} s ({rate:.0f} a minute), "
            f"{hours:.2f} simulated hours, {self.puts} puts, {self.given} messages given, "
            f"{len(self.failures)} failed"
        )


def faults_of(schedule: Schedule) -> Iterator[str]:
    """What befalls this world, as the reliability card names it."""
    for step in schedule.steps:
        if step.do in ("silence", "cut_ways"):
            is_both = step.args.get("up") and step.args.get("down")
            yield "partition" if is_both or step.args.get("back") else "one-way partition"
        elif step.args.get("mode") == "TORN":
            yield "torn write"
        elif step.do.startswith("trap") and not step.args.get("mode"):
            yield "kill -9"
        elif step.do in FAULTS:
            yield FAULTS[step.do]


def campaign(
    first: int,
    seconds: float,
    *,
    most: int | None = None,
    draw: Callable[[int], Schedule] = schedule_of,
) -> Campaign:
    """Run the seeds from `first` on for so long, and no more than `most`."""
    total = Campaign(marks.IN_CLUSTERS if draw is cluster_schedule_of else marks.SOMETIMES)
    begun = time.monotonic()
    for seed in islice(count(first), most):
        schedule = draw(seed)
        total.see(seed, schedule, outcome_of(schedule))
        total.seconds = time.monotonic() - begun
        if total.seconds >= seconds:
            break
    return total


def catch(
    bug: str, *, seeds: int = PLANTED_SEEDS, hint: int | None = None
) -> tuple[int, str] | None:
    """The first seed that catches a planted bug, and how; None when none does.

    The worlds of the bug are those that are aimed at it, or else those with one of its needs. The
    same world without the bug is the control: it must find nothing. `hint` is tried first. What a
    stand-in breaks because it does not fit the shipped code any more shows nothing.
    """
    worlds = count() if bug in AIMS else _worlds_with(NEEDS[bug])
    for seed in chain(() if hint is None else (hint,), islice(worlds, seeds)):
        schedule = schedule_of(seed, aimed(bug, seed))
        with PLANTED[bug]():
            findings = run(schedule).findings
        if slips := [each for each in findings if is_slip(each)]:
            raise AssertionError(f"the stand-in for {bug} does not fit: {slips[0]}")
        telling = [each for each in findings if _tells(bug, each)]
        if telling and not run(schedule).findings:
            return seed, telling[0]
    return None


def _tells(bug: str, finding: str) -> bool:
    """Whether it is of a kind that this bug leads to."""
    return bug not in AIMS or bool(kinds([finding]) & set(AIMS[bug].shows))


def is_slip(finding: str) -> bool:
    """Whether it tells of code that cannot run, and not of a promise."""
    return finding.startswith("broke: ") and any(f" raised {slip}: " in finding for slip in SLIPS)


def _worlds_with(faults: tuple[str, ...]) -> Iterator[int]:
    """The seeds of worlds that have at least one of these."""
    return (seed for seed in count() if not faults or set(faults) & _kinds(options_of(seed)))


def _kinds(options: WorldOptions) -> set[str]:
    faults = options.faults
    inbox = ("inbox", *(f"inbox and {fault}" for fault in faults)) if options.inbox else ()
    wild = ("wild", *(f"wild and {fault}" for fault in faults)) if options.wild else ()
    sinks = ("sinks", *(f"sinks and {fault}" for fault in faults)) if options.sinks else ()
    beside = [*faults, *(name for name in ("deals", "inbox", "wild") if getattr(options, name))]
    back = ("back", *(f"back and {each}" for each in beside)) if options.back else ()
    alone = [name for name in ("required", "leases", "leaders") if getattr(options, name)]
    return {*faults, *inbox, *wild, *sinks, *back, *alone}


def score(*, seeds: int = PLANTED_SEEDS) -> Iterator[tuple[str, tuple[int, str] | None]]:
    """Every planted bug, and what caught it."""
    for bug in PLANTED:
        yield bug, catch(bug, seeds=seeds)


# The command


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _show(name: str, schedule: Schedule) -> int:
    """One history; when it fails, also the smallest one that fails like it."""
    outcome = outcome_of(schedule)
    _say(f"{name}: {schedule.options}")
    _say(f"{len(schedule.steps)} steps, {outcome.events} events, trace {outcome.trace}")
    for mark, times in sorted(outcome.marks.items()):
        _say(f"  {mark}: {times}")
    if not outcome.findings:
        _say(f"{outcome.puts} puts, {outcome.given} messages given, nothing found")
        return 0
    for finding in outcome.findings[:10]:
        _say(f"FOUND {finding}")
    small = shrink(schedule)
    path = Path("build") / f"failed-{name}.json"
    path.parent.mkdir(exist_ok=True)
    small.save(path)
    _say(f"the smallest that fails like it has {len(small.steps)} steps; kept as {path}:")
    for step in small.steps:
        _say(f"  {step.at_ms} ms {step.do} {step.who} {step.args}")
    return 1


def _score() -> int:
    caught = 0
    for bug, found in score():
        caught += found is not None
        how = f"seed {found[0]}: {found[1][:90]}" if found else "NOT CAUGHT"
        _say(f"{bug.replace('_', ' '):55} {how}")
    _say(f"planted bugs caught: {caught} of {len(PLANTED)}")
    return 0 if caught == len(PLANTED) else 1


def _many(first: int, seconds: float, name: str) -> int:
    is_cluster = name == CLUSTER
    _say(f"{name} seeds from {first} on, for {seconds:.0f} s".strip())
    total = campaign(first, seconds, draw=cluster_schedule_of if is_cluster else schedule_of)
    total.record("make sim", "simulation-cluster" if is_cluster else "simulation")
    _say(str(total))
    for mark in total.wanted:
        _say(f"  {mark}: {total.marks.get(mark, 0)}")
    for seed, findings in total.failures.items():
        _say(f"FOUND by seed {name}{seed}: {findings[0]}")
    for mark in total.unseen:
        _say(f"NEVER SEEN: {mark}")
    return 1 if total.failures or total.unseen else 0


def main(arguments: list[str]) -> int:
    """What the command line asks for."""
    logging.disable(logging.CRITICAL)  # servers are meant to complain here
    what, minutes = [*arguments, *("fresh", "1")[len(arguments) :]][:2]
    if what == "planted":
        return _score()
    if what == "fresh":
        first, half = time.time_ns() // 1_000_000, float(minutes) * 30
        return max(_many(first, half, ""), _many(first, half, CLUSTER))
    if what.endswith(".json"):
        return _show(Path(what).stem, load(Path(what)))
    if what.startswith(CLUSTER):
        return _show(what, cluster_schedule_of(int(what.removeprefix(CLUSTER))))
    return _show(f"seed-{what}", schedule_of(int(what)))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
