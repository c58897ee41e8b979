"""Power cuts on a real file system: nothing that was acknowledged is lost, nothing is doubled.

The disk is an ext4 image whose power is cut at random moments under load; see
`oncemq.testing.power`. ONCEMQ_CUTS multiplies the cuts.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from oncemq.testing.power import PowerDisk, power_disk, why_no_power_disk
from tests.faults.cast import FaultNursery, FaultStorm

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(240),
    pytest.mark.usefixtures("full_gets"),
]

MORE = int(os.environ.get("ONCEMQ_CUTS", "1"))


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[PowerDisk]:
    if reason := why_no_power_disk():
        pytest.skip(f"no power cuts here: {reason}")
    with power_disk(tmp_path, mebibytes=96) as disk:
        yield disk


def storm_of(storm: FaultStorm, name: str, *, cuts: int, puts: int, messages: int) -> None:
    """Cut again and again, each time after some work; then look at everything."""
    storm.begin()
    for _ in range(cuts * MORE):
        storm.make_progress(puts)
        storm.let_pass(100)
        storm.cut_power()
    storm.prove(f"power-{name}", "power cut")
    assert storm.checked >= messages * MORE


def test_once_serve_keeps_what_it_acknowledged(
    nursery: FaultNursery, disk: PowerDisk, tmp_path: Path, seed: int
) -> None:
    sizes = (20, 100, 400)
    storm = FaultStorm(
        nursery, tmp_path, seed, command=True, disk=disk, on_disk=("server",), counts=sizes
    )
    storm_of(storm, "once-serve", cuts=18, puts=18, messages=50_000)


def test_a_server_that_checkpoints_and_compacts_keeps_what_it_acknowledged(
    nursery: FaultNursery, disk: PowerDisk, tmp_path: Path, seed: int
) -> None:
    sizes = (1, 20, 80, 200)
    storm = FaultStorm(nursery, tmp_path, seed, disk=disk, on_disk=("server",), counts=sizes)
    storm_of(storm, "compacting", cuts=20, puts=18, messages=20_000)


@pytest.mark.parametrize("on_disk", [("clients",), ("server", "clients")], ids="+".join)
def test_clients_whose_state_loses_power_send_once_and_are_given_once(
    nursery: FaultNursery, disk: PowerDisk, tmp_path: Path, seed: int, on_disk: tuple[str, ...]
) -> None:
    sizes = (1, 20, 80, 200)
    storm = FaultStorm(nursery, tmp_path, seed, disk=disk, on_disk=on_disk, counts=sizes)
    storm_of(storm, "-".join(on_disk), cuts=12, puts=18, messages=15_000)


@pytest.mark.parametrize(("sync_ms", "loses"), [(0, False), (3_600_000, True)])
def test_a_server_that_does_not_sync_is_seen_to_lose(
    nursery: FaultNursery, disk: PowerDisk, tmp_path: Path, seed: int, sync_ms: int, loses: bool
) -> None:
    """The control: if cuts lost nothing here, the tests above would show nothing."""
    log = {"sync_ms": sync_ms, "segment_bytes": 8 << 20, "checkpoint_records": 1 << 30}
    log |= {"checkpoint_bytes": 1 << 30}  # for a segment that is full, or covered, is synced
    storm = FaultStorm(nursery, tmp_path, seed, disk=disk, on_disk=("server", "clients"), log=log)
    storm.begin()
    storm.make_progress(20)
    storm.cut_power(restart=("server",))
    storm.serving.process.noted("ready")
    lost = storm.acknowledged() - storm.stored()
    nursery.end(storm.serving.process)
    assert bool(lost) == loses
