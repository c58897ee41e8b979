"""What the checker finds: each kind with the promise it breaks.

Law: each finding is counted, and the first FINDINGS_KEPT of a kind are told.
"""

import msgspec

from oncemq.protocol.names import Offset

FINDINGS_KEPT = 20  # of each kind: who has ten million has one cause

# kind: the promise it breaks, and what it means
KINDS: dict[str, tuple[str, str]] = {
    "lost": ("G1", "a put was acknowledged or recorded, and its message is not there"),
    "lost_prefix": ("G4", "a subscription's first messages took no effect"),
    "lost_middle": ("G4", "messages between others took no effect"),
    "lost_tail": ("G4", "the last messages took no effect"),
    "gap": ("G3", "an offset that should be stored is not"),
    "lost_sequence": ("G2", "a producer's number is missing"),
    "duplicate": ("G2", "a message is stored twice"),
    "redelivered": ("G4", "a message took effect twice"),
    "reordered": ("G3", "a message came after a later one of its topic"),
    "reordered_publisher": ("G3", "a publisher's messages are not in its order"),
    "torn_batch": ("G3", "the messages of one put do not stand together"),
    "time_back": ("G3", "a message is older than the one before it"),
    "phantom": ("G3", "something is there, or took effect, that was never put"),
    "corrupt": ("G3", "bytes are not the ones that were put"),
    "failed_but_delivered": ("G2", "a put that was told it failed is there"),
    "discarded": ("G1", "a put was discarded, though somebody subscribed or it was required"),
    "conflict": ("G2", "a producer's number stands for two payloads"),
    "boundary": ("G6", "a message from outside of a subscription's life"),
    "changed_receipt": ("G2", "a receipt names a place where another message is"),
    "diverged": ("G7", "two replicas, or two readers, have different messages in one place"),
    "not_fenced": ("G4", "an older process of a client acted after a newer one began"),
}


class Finding(msgspec.Struct, frozen=True):
    """One broken promise. `count` offsets from `offset` on are concerned."""

    kind: str
    topic: str
    offset: Offset
    detail: str
    count: int = 1

    @property
    def promise(self) -> str:
        """The number of the guarantee."""
        return KINDS[self.kind][0]

    def __str__(self) -> str:
        return f"{self.kind}: {self.topic}@{self.offset}: {self.detail}"


class Findings:
    """Every finding is counted; the first of each kind are kept word for word."""

    def __init__(self) -> None:
        self.kept: list[Finding] = []
        self.counts: dict[str, int] = {}
        self._told: dict[str, int] = {}

    def add(self, kind: str, topic: str, offset: int, detail: str, count: int = 1) -> None:
        """Something is wrong."""
        assert kind in KINDS
        self.counts[kind] = self.counts.get(kind, 0) + count
        told = self._told.get(kind, 0)
        if told < FINDINGS_KEPT:
            self._told[kind] = told + 1
            self.kept.append(Finding(kind, topic, Offset(offset), detail, count))
