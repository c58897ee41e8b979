"""A schedule that is tried out: whatever comes of it is an outcome, also when the run crashes.

Law: no exception of a run ends a campaign, or a search for a smaller schedule: it is a finding,
and its kind says where it was raised.
"""

from pathlib import Path
from traceback import extract_tb

from simulator.schedule.schedule import Schedule
from simulator.world.simulation import WorldOutcome, run

CRASHED = "crashed"


def outcome_of(schedule: Schedule) -> WorldOutcome:
    """What becomes of a schedule."""
    try:
        return run(schedule)
    except Exception as error:
        where = extract_tb(error.__traceback__)[-1]
        place = f"{Path(where.filename).name}, line {where.lineno}"
        finding = f"{CRASHED} in {place}: {type(error).__name__}: {error}"
        return WorldOutcome([finding], {}, "", 0, 0, 0, 0)
