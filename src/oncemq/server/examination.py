"""Examines a data directory as its server would: whether it is sound and holds what is kept.

Laws: looking changes nothing. Nothing is called sound that a server refuses: the log is folded
and compared with what its segments hold, as at a start.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from oncemq.broker.state.shard import Shard
from oncemq.server import completeness
from oncemq.server.completeness import Missing
from oncemq.server.recovery import fold
from oncemq.storage.catalog.catalog import Catalog
from oncemq.storage.catalog.gaps import gaps
from oncemq.storage.disk import LockingDisk
from oncemq.storage.repair import repair
from oncemq.storage.repair.findings import Diagnosis, SurvivingContents
from oncemq.storage.repair.ownership import must_be_a_servers
from oncemq.storage.segments.layout import FormatHole


@dataclass(slots=True)
class Examination:
    """What is wrong with a directory; `missing` is what its topics would lack."""

    diagnosis: Diagnosis
    missing: list[Missing] = field(default_factory=list[Missing])
    agreed: list[Missing] = field(default_factory=list[Missing])  # by a person: noted at the start
    generation: int = 0  # the newest one that the log knows; 0: it cannot be read

    @property
    def sound(self) -> bool:
        return self.diagnosis.healthy and not self.missing


class _Shelves:
    """What the segments hold, for the inventory."""

    def __init__(self, catalog: Catalog) -> None:
        self.extents = catalog.extents
        self.staged_from = catalog.staged_from
        self._catalog = catalog

    def gaps(self, topic_id: int, low: int, end: int) -> list[tuple[int, int]]:
        return list(gaps(self._catalog, topic_id, low, end))


def examine(disk: LockingDisk, directory: str) -> Examination:
    """Verify every byte, then compare what is left with what the state says is kept."""
    must_be_a_servers(disk, directory)
    return _compare(repair.diagnose(disk, directory))


def faults(diagnosis: Diagnosis) -> list[str]:
    """What is wrong with a log that was diagnosed, as its server would find it, in words."""
    missing = _compare(diagnosis).missing
    return [*diagnosis.faults(), *(f"{each}: kept, but in no segment" for each in missing)]


def _compare(diagnosis: Diagnosis) -> Examination:
    found = Examination(diagnosis)
    contents = found.diagnosis.contents
    if contents is not None:
        try:
            shard = _fold(contents)
            found.generation = shard.generation
            holes = contents.form.agreed if contents.form.generation > shard.generation else ()
            for each in completeness.missing(shard, _Shelves(contents.catalog)):
                known = completeness.beyond(each.record, holes) is None
                (found.agreed if known else found.missing).append(each)
        finally:
            contents.catalog.close()
        found.diagnosis.names.update({each.id: each.name for each in shard.topics.values()})
    return found


def accept_loss(
    disk: LockingDisk, directory: str, *, random_bytes: Callable[[int], bytes]
) -> Examination:
    """Go on without what is damaged or missing; what that was, as found before."""
    found = examine(disk, directory)
    if not found.sound:
        repair.accept_loss(
            disk,
            directory,
            random_bytes=random_bytes,
            holes=[
                FormatHole(each.record.topic_id, each.record.first_offset, each.record.end_offset)
                for each in (*found.missing, *found.agreed)
            ],
            known=found.generation,
        )
    return found


def _fold(contents: SurvivingContents) -> Shard:
    shard = Shard(contents.form.tag)
    fold(shard, contents.states, contents.checkpoint_end, contents.replay)
    shard.recovered()
    return shard
