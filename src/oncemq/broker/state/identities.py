"""The numbers of topics, stages and subscriptions: a tag in the upper half, a count in the lower.

Each generation of the log has a tag of its own. Laws: a number is never given twice, neither by
this log nor by a future of it that was lost; for a number that was given once the log says
whether it was given in the history that the log has, or in one that was lost.
"""

TAGS_KEPT = 64  # generations whose numbers are told apart; those before count as lost
COUNT_BITS = 32
COUNT_MAX = (1 << COUNT_BITS) - 1  # of one tag


class Identities:
    """What was given so far, by each tag; the newest tag is the one in use."""

    def __init__(self, tag: int) -> None:
        self._tag = tag
        self.counts: dict[int, int] = {}

    def next(self) -> int:
        """A number no topic, no stage and no subscription of any log ever had."""
        assert self.has(1), "who asks has looked: `Scribe.identity_refusal`"
        return self._tag << COUNT_BITS | (self.counts.get(self._tag, 0) + 1)

    def has(self, count: int) -> bool:
        """Whether so many are left; one more would be another tag's."""
        return self.given + count <= COUNT_MAX

    def seen(self, identity: int) -> None:
        """The log has this one."""
        tag, count = identity >> COUNT_BITS, identity & 0xFFFF_FFFF
        self.counts[tag] = max(self.counts.get(tag, 0), count)

    def is_lost(self, identity: int) -> bool:
        """Whether a number that a client knows was never given in this log's history."""
        tag, count = identity >> COUNT_BITS, identity & 0xFFFF_FFFF
        return count > self.counts.get(tag, 0)

    def restore(self, counts: tuple[tuple[int, int], ...], given: int) -> None:
        """What a checkpoint kept; an older one only has the sum, of the only tag there was."""
        for tag, count in counts or [(tag, given) for tag in [*self.counts, self._tag]]:
            self.counts[tag] = max(self.counts.get(tag, 0), count)

    def capture(self) -> tuple[tuple[int, int], ...]:
        """The newest of them, as a value."""
        others = [each for each in self.counts.items() if each[0] != self._tag]
        own = self.counts.get(self._tag, 0)
        return (*others[1 - TAGS_KEPT :], (self._tag, own))

    @property
    def given(self) -> int:
        """How many the tag in use has given."""
        return self.counts.get(self._tag, 0)
