"""What the tests of faults share: processes, a seed, and small patience with what cannot be."""

import os
import random
from collections.abc import Iterator

import pytest

from tests.e2e import storm
from tests.faults.cast import FaultNursery

SEED = int(os.environ.get("ONCEMQ_SEED", "20211125"))
GET_LIMIT = 200  # as many messages a get as a batch may have, and more


@pytest.fixture(scope="session")
def nursery() -> Iterator[FaultNursery]:
    nursery = FaultNursery()
    try:
        yield nursery
    finally:
        nursery.close()


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """The test's own seed, drawn from ONCEMQ_SEED; printed."""
    drawn = random.Random(f"{SEED}{request.node.name}").randrange(1 << 32)
    print(f"ONCEMQ_SEED={SEED}: {request.node.name} draws {drawn}")
    return drawn


@pytest.fixture
def full_gets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Subscribers (and the checker's bound for what a killed one may not have noted)."""
    monkeypatch.setattr(storm, "LIMIT", GET_LIMIT)
