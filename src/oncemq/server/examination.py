"""Examines a data directory as its server would: whether it is sound and holds what is kept.

Laws: looking changes nothing. Nothing is called sound that a server refuses: the log is folded
and compared with what its segments hold, as at a start.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from oncemq.broker.state.shard import Shard
from oncemq.errors import Corrupt, StorageRefused
from oncemq.protocol.replicas.leader_epochs import ALONE
from oncemq.server import completeness
from oncemq.server.completeness import Missing
from oncemq.server.recovery import fold
from oncemq.storage.catalog.catalog import Catalog
from oncemq.storage.catalog.gaps import gaps
from oncemq.storage.disk import Disk, LockingDisk
from oncemq.storage.repair import repair
from oncemq.storage.repair.findings import Diagnosis, SurvivingContents
from oncemq.storage.repair.ownership import must_be_a_servers
from oncemq.storage.segments.layout import FormatHole
from oncemq.storage.segments.promised_epoch import promised_in


@dataclass(slots=True)
class Examination:
    """What is wrong with a directory; `missing` is what its topics would lack."""

    diagnosis: Diagnosis
    missing: list[Missing] = field(default_factory=list[Missing])
    agreed: list[Missing] = field(default_factory=list[Missing])  # by a person: noted at the start
    generation: int = 0  # the newest one that the log knows; 0: it cannot be read
    is_replica: bool = False  # of a cluster, where others have what is lost here

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
    found = _compare(repair.diagnose(disk, directory))
    found.is_replica = _is_replica(disk, directory)
    return found


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
    disk: LockingDisk,
    directory: str,
    *,
    random_bytes: Callable[[int], bytes],
    is_last_copy: bool = False,
) -> Examination:
    """Go on without what is damaged or missing; what that was, as found before.

    `is_last_copy`: of a cluster; else a replica is refused. If it led one day, what it agreed to
    lose would be lost for all.
    """
    found = examine(disk, directory)
    if found.is_replica and not found.sound and not is_last_copy:
        raise StorageRefused(
            f"{directory} is a replica of a cluster, and the others have what is damaged here: "
            "start the server, and it is filled by them. Only where no other directory is left: "
            "--accept-loss --last-copy",
            code="is_a_replica",
        )
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


def _is_replica(disk: Disk, directory: str) -> bool:
    try:
        return promised_in(disk, directory) > ALONE
    except Corrupt:
        return True


def _fold(contents: SurvivingContents) -> Shard:
    shard = Shard(contents.form.tag)
    fold(shard, contents.states, contents.checkpoint_end, contents.replay)
    shard.recovered()
    return shard
