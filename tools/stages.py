"""Which tests a mutant meets, and in which order: the cheapest first, each stage only by survivors.

    1, 2  the quick choice: the fast tests that run its line, the quickest of every file
    3     the other fast tests that run its line
    4     the first worlds of the simulation, if they run its line: always the same few
    5     the slow tests that run its line
    6     the tests of its area whose lines are not noted: they start processes, or interrupt

The later stages are bounded by the seconds that their tests took when they were noted. Whether a
mutant is noticed by luck is told by trying it again: see `is_certain`.
"""

from typing import NamedTuple

from tools.covers import INTERRUPTING, WORLDS, Coverage
from tools.mutants import Mutant, area_of

TESTS_FIRST = 25  # most mutants are killed by them
SECONDS_MAX = 300  # for all tests of one stage
SECONDS_OF_OTHERS = 90.0  # as long as they took when they were noted
SECONDS_OF_SLOW_ONES = 120.0

# What runs in processes of its own is noted nowhere, nor what a signal comes in the middle of.
IN_PROCESSES: dict[str, tuple[str, ...]] = {
    "relay": ("tests/relay/test_relay_kills.py", "tests/relay/test_relay_command.py"),
    "inbox": ("tests/databases/test_kills.py",),
    "sink": ("tests/spark/test_sink_on_spark.py",),
    "zmtp": ("tests/e2e/hostile", "tests/e2e/test_kills.py"),
    "transport": ("tests/e2e/hostile", "tests/e2e/test_kills.py"),
    "client": (INTERRUPTING, "tests/e2e/test_kills.py"),
    "storage": ("tests/e2e/test_kills.py", "tests/e2e/test_cli_people.py"),
}
IN_PROCESSES_ELSE = ("tests/e2e/test_kills.py", "tests/e2e/test_transaction_kills.py")

# One thread, no socket, no database: what they say does not depend on the load of the machine.
CERTAIN = (
    "tests/unit/audit",
    "tests/unit/broker",
    "tests/unit/cli",
    "tests/unit/protocol",
    "tests/unit/replication",
    "tests/unit/session",
    "tests/unit/storage",
    "tests/unit/wire",
    "tests/unit/zmtp",
    "tests/scenarios",
    "tests/properties",
    "tests/fuzz",
    "tests/simulation",
)


class Stage(NamedTuple):
    """Tests that run together."""

    tests: list[str]
    are_long: bool = False  # so long that running out of time says nothing

    def without(self, tests: set[str]) -> "Stage":
        """The same, but for these."""
        return self._replace(tests=[each for each in self.tests if each not in tests])


def stages_of(coverage: Coverage, mutant: Mutant, *, only_quick: bool = False) -> list[Stage]:
    """The stages of a mutant, none of them empty."""
    chosen = [each for each in coverage.tests_of(mutant) if not coverage.is_long(each)]
    stages = [Stage(chosen[:TESTS_FIRST]), Stage(chosen[TESTS_FIRST:])]
    if not only_quick:
        others = [each for each in coverage.all_of(mutant) if each not in set(chosen)]
        fast = [each for each in others if not coverage.is_slow(each)]
        slow = [each for each in others if coverage.is_slow(each) and each != WORLDS]
        stages += [
            Stage(_cheapest(coverage, fast, SECONDS_OF_OTHERS), are_long=True),
            Stage([each for each in others if each == WORLDS], are_long=True),
            Stage(_cheapest(coverage, slow, SECONDS_OF_SLOW_ONES), are_long=True),
            Stage(list(IN_PROCESSES.get(area_of(mutant), IN_PROCESSES_ELSE)), are_long=True),
        ]
    return [stage for stage in stages if stage.tests]


def after(stages: list[Stage], met: int) -> list[Stage]:
    """Those that are left for a mutant that has met so many tests of them."""
    for place, stage in enumerate(stages):
        if met < len(stage.tests):
            return stages[place:]
        met -= len(stage.tests)
    return []


def is_certain(test: str) -> bool:
    """Whether a failure of this test is due to the mutant, and to nothing else."""
    return test.startswith(CERTAIN)


def _cheapest(coverage: Coverage, tests: list[str], most: float) -> list[str]:
    """As many as take no longer than this together; one in any case."""
    chosen: list[str] = []
    for test in tests:  # the quickest come first
        most -= coverage.seconds_of(test)
        if most < 0 and chosen:
            break
        chosen.append(test)
    return chosen
