"""`make soak MINUTES=n`: every fault we have on real processes, mixed, from a fresh seed.

Rounds of half a minute: a server (`once serve`, or one that compacts all the time), clients,
perhaps a disk whose power can be cut under either or both, perhaps a bad wire. Each round ends
with the checker. One line a minute; the first finding is shown with its seed, and the exit code
is then 6. A seed draws the same faults again, though not at the same microseconds.
"""

import argparse
import random
import secrets
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from oncemq.testing.power import power_disk, why_no_power_disk
from simulator import proof
from tests.e2e import storm as storms
from tests.faults.cast import FaultNursery, FaultStorm
from tests.faults.conftest import GET_LIMIT
from tests.faults.inject import why_no_strace

FOUND = 6
ROUND_SECONDS = 25.0
PLACES = (("server",), ("clients",), ("server", "clients"))


class Soak:
    """Rounds, and what they add up to."""

    def __init__(self, seed: int, minutes: float) -> None:
        self.seed = seed
        self.minutes = minutes
        self.faults: Counter[str] = Counter()
        self.messages = 0
        self.rounds = 0
        self.silence = 0.0
        self._begun = time.monotonic()
        self._ends = self._begun + minutes * 60
        self._told = 0

    def run(self) -> int:
        """Rounds until the time is over; the exit code."""
        code = self._rounds()
        minutes = (time.monotonic() - self._begun) / 60
        proof.record(
            "soak",
            f"make soak MINUTES={self.minutes:g}",
            {
                "minutes": minutes,
                "messages": self.messages,
                **{f"fault: {fault}": times for fault, times in self.faults.items() if times},
            },
            failures=int(code == FOUND),
            worst={"all faults at once": self.silence},
        )
        return code

    def _rounds(self) -> int:
        while time.monotonic() < self._ends:
            seed = random.Random(f"{self.seed}:{self.rounds}").randrange(1 << 32)
            directory = Path(tempfile.mkdtemp(prefix="oncemq-soak-"))
            try:
                self._round(seed, directory)
            except Exception:
                traceback.print_exc()
                self._tell(findings=1)
                print(f"found in round {self.rounds} of seed {self.seed}; see {directory}")
                return FOUND
            shutil.rmtree(directory)
            self.rounds += 1
        self._tell()
        return 0

    def _round(self, seed: int, directory: Path) -> None:
        chance = random.Random(seed)
        with ExitStack() as stack:
            disk, on_disk = None, ()
            if chance.random() < 0.6 and not why_no_power_disk():
                disk, on_disk = stack.enter_context(power_disk()), chance.choice(PLACES)
            nursery = FaultNursery()
            stack.callback(nursery.close)
            storm = FaultStorm(
                nursery,
                directory,
                seed,
                command=chance.random() < 0.4,
                disk=disk,
                on_disk=on_disk,
                wire=chance.random() < 0.4,
            )
            if storm.wire is not None:
                stack.callback(storm.wire.close)
            storm.begin()
            faults = faults_of(storm)
            ends = min(time.monotonic() + ROUND_SECONDS, self._ends)
            while time.monotonic() < ends:
                if chance.random() < 0.7:
                    storm.make_progress(chance.randint(1, 10))
                storm.let_pass(150)
                chance.choice(faults)()
                if (time.monotonic() - self._begun) // 60 > self._told:
                    self._tell(storm)
            outcome = storm.end()
            outcome.check()
            self.messages += storm.checked
            self.faults.update(storm.injected())
            self.silence = max(self.silence, storm.longest_silence)

    def _tell(self, storm: FaultStorm | None = None, *, findings: int = 0) -> None:
        """One line."""
        self._told = int((time.monotonic() - self._begun) // 60)
        faults = self.faults + Counter(storm.injected() if storm else {})
        messages = self.messages + (storm.messages if storm else 0)
        kills, cuts = faults["kill -9"], faults["power cut"]
        print(
            f"{time.monotonic() - self._begun:6.0f} s  rounds {self.rounds}  messages {messages}  "
            f"kills {kills}  cuts {cuts}  other faults {faults.total() - kills - cuts}  "
            f"longest silence {self.silence:.1f} s  findings {findings}",
            flush=True,
        )


def faults_of(storm: FaultStorm) -> list[Callable[[], object]]:
    """What may happen in this round; what is listed twice happens twice as often."""
    chance = storm.random
    everyone = [*storm.publishers, *storm.subscribers]

    def some() -> list[str]:
        return chance.sample(everyone, chance.randint(1, 3))

    def stop() -> None:
        seconds = 17.0 if chance.random() < 0.03 else chance.uniform(0.05, 2.5)
        storm.stop_for(seconds, server=chance.random() < 0.5, clients=some())

    faults: list[Callable[[], object]] = [
        lambda: storm.kill(server=True),
        lambda: storm.kill(clients=some()),
        lambda: storm.kill(server=True, clients=some()),
        stop,
    ]
    if storm.disk is not None:
        faults += [storm.cut_power] * 4
    if storm.wire is not None:
        faults += [storm.trouble_wire] * 6
    if not why_no_strace():
        faults += [storm.fail_call, lambda: storm.fail_call(chance.choice(everyone))]
    return faults


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1 << 32))
    asked = parser.parse_args()
    storms.LIMIT = GET_LIMIT
    print(f"seed {asked.seed}; again with: make soak MINUTES={asked.minutes:g} SEED={asked.seed}")
    for what, why in (("power cuts", why_no_power_disk()), ("failing calls", why_no_strace())):
        if why:
            print(f"without {what}: {why}")
    return Soak(asked.seed, asked.minutes).run()


if __name__ == "__main__":
    sys.exit(main())
