"""One server for the attacks of a module; one that died is a failure of the test that killed it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.hostile.ground import Ground


@pytest.fixture(scope="module")
def _standing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Ground]]:
    grounds = [Ground(tmp_path_factory.mktemp("ground"))]
    yield grounds
    grounds[-1].close()


@pytest.fixture
def ground(_standing: list[Ground], tmp_path: Path) -> Ground:
    """The server that is up, or another when the last one was ended."""
    if _standing[-1].serving.process.poll() is not None:
        _standing.append(Ground(tmp_path))
    return _standing[-1]
