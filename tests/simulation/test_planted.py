"""Planted bugs: a promise no simulation ever saw broken is one no simulation tests."""

import pytest

from oncemq.testing import proof
from oncemq.testing.campaign import PLANTED_SEEDS, catch
from oncemq.testing.planted import PLANTED


def test_there_are_at_least_sixteen() -> None:
    assert len(PLANTED) >= 16


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_caught(bug: str) -> None:
    found = catch(bug)
    counts = {"planted": 1, "caught": int(found is not None)}
    proof.record(f"planted-{bug.replace('_', '-')}", "make test", counts)
    assert found is not None, f"{bug} was not caught within {PLANTED_SEEDS} seeds"
    print(f"{bug}: caught by seed {found[0]}: {found[1]}")
