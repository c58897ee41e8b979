"""What housekeeping asks of a replica: a follower keeps its files small, and states no facts.

Marks, retention and the end of stages are records, so they are the leader's; a follower has them in
its own log, and its checkpoints and compaction follow from its own state.
"""

from collections.abc import Callable, Sequence

from oncemq.broker.state.shard import Shard
from oncemq.cluster.replica_directory import ReplicaDirectory
from oncemq.protocol.names import Micros, Serial, TopicId
from oncemq.server.driver import Driver
from oncemq.server.events import Events
from oncemq.storage.log.frame_runs import ChainLink
from oncemq.storage.log.log import Log


class Keeper:
    """Of one opened directory, whether this server leads or not."""

    def __init__(self, opened: ReplicaDirectory, events: Events) -> None:
        self.log: Log = opened.log
        self.shard: Shard = opened.shard
        self.events = events
        self.driver: Driver | None = None  # while clients are served
        self._opened = opened

    @property
    def settled_serial(self) -> Serial:
        """What checkpoints and compaction may rest on: it is committed, and on this disk."""
        if self.driver is not None:
            return self.driver.settled_serial
        return min(self._opened.applied, self.log.durable_serial)

    @property
    def folded(self) -> Callable[[], ChainLink] | None:
        """Where the state is; None: at the log's end, since this server decides."""
        return self._folded if self.driver is None else None

    def _folded(self) -> ChainLink:
        """A checkpoint that a follower began may be finished by a leader."""
        return self._opened.folded if self.driver is None else self.log.newest

    def upkeep(self, now: Micros) -> None:
        """Facts are the leader's."""
        if self.driver is not None:
            self.driver.upkeep(now)

    def mark(self, now: Micros) -> None:
        """As are marks."""
        if self.driver is not None:
            self.driver.mark(now)

    def end_stages(self, stage_ids: Sequence[TopicId], now: Micros) -> bool:
        """A follower keeps them in mind until it leads: the leader says it when it has copied."""
        return self.driver is not None and self.driver.end_stages(stage_ids, now)
