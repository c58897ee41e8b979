"""What to compact next. Pure but for looking into the indexes of cold segments; loop thread.

Laws: nothing is rewritten in vain. What counts as free is what a rewriting really frees: a
batch that is settled in part is moved whole. A rewriting of mostly dead segments frees more
than it writes; so does one of a segment with very many stages in memory, and when it was rewritten
it has none; a merging of small neighbours writes no segment that is not twice as large as
the largest it is made of, so a byte is merged a logarithmic number of times, and both come to
rest. A log segment is rewritten once at most: it is a cold one then.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from oncemq.protocol.names import TopicId
from oncemq.storage.segments.entries import Extent
from oncemq.storage.segments.index import DamagedIndex
from oncemq.storage.segments.segment import COLD, Segment

SOURCES_MAX = 4
ROWS_A_LOOK = 10_000  # topics and stages looked at for one plan: about 50 ms


@dataclass(frozen=True, slots=True)
class LiveShare:
    """What of a topic still counts: offsets below `low` are settled by everyone."""

    name: str
    low: int
    end: int = 0  # of a stage of which nothing more will be published
    published: int = 0  # the last record that published some of it; 0: a topic, or another stage

    def lies_in(self, segments: Sequence[Segment], extents: Sequence[Extent | None]) -> bool:
        """Whether neighbours, with these extents of a stage, hold all that is needed of it.

        Then its parts are in them as well: a part comes after the messages it is made of.
        """
        if not self.published or self.published > segments[-1].last_serial:
            return False
        held = [extent for extent in extents if extent is not None]
        return held[0].first_offset <= self.low and held[-1].end_offset >= self.end


LiveOf = Callable[[TopicId], LiveShare | None]


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """Segments to drop, or neighbours to rewrite into one cold segment."""

    sources: tuple[Segment, ...]
    live: dict[int, LiveShare]  # empty: nothing in the sources lives
    rewrite: bool
    dissolved: frozenset[int] = frozenset()  # stages whose messages are copied into their topics


@dataclass(frozen=True, slots=True)
class Weighed:
    """A segment, and how many of its bytes must stay."""

    segment: Segment
    live: int
    usable: bool  # not in use, and covered by the older kept checkpoint
    stages: int = 0  # that a rewriting ends

    @property
    def mostly_dead(self) -> bool:
        return self.movable and 2 * self.live < self.segment.end - self.segment.header.size

    @property
    def mergeable(self) -> bool:
        return self.movable and self.segment.header.form == COLD

    @property
    def movable(self) -> bool:
        """Whether it may be rewritten."""
        return self.usable and self.live > 0 and not self.segment.damage


class Scales:
    """Weighs segments in turn, as many at a time as the loop can spare; the others weigh what they
    did. What is dead stays dead, so an old weight is at most too large. Owned by the loop thread.
    """

    def __init__(self) -> None:
        # bytes and stages by name, longest not looked at first
        self._weights: OrderedDict[str, tuple[int, int]] = OrderedDict()
        self._looked: set[str] = set()
        self._serial = -1
        self.looked_at_all = False  # while nothing was appended

    def weigh(
        self, segments: Sequence[Segment], covered: int, live_of: LiveOf, serial: int
    ) -> list[Weighed]:
        """Every segment, and what of it must stay; `serial` is the log's last one."""
        usable = {
            each.name: each
            for each in segments
            if each.file is None and each.last_serial <= covered
        }
        known = (name for name in self._weights if name in usable)
        order = [*(name for name in usable if name not in self._weights), *known]
        kept = {name: self._weights[name] for name in order if name in self._weights}
        self._weights = OrderedDict(kept)
        if serial != self._serial:
            self._serial = serial
            self._looked.clear()
        rows = 0
        for name in order:
            own = usable[name].index.rows()
            rows += own
            if rows > max(own, ROWS_A_LOOK):
                break
            self._weights[name] = weight_of(usable[name], live_of)
            self._weights.move_to_end(name)
            self._looked.add(name)
        self.looked_at_all = usable.keys() <= self._looked
        return [
            Weighed(each, live, each.name in self._weights, stages)
            for each in segments
            for live, stages in (self._weights.get(each.name, (0, 0)),)
        ]


def plan(
    weighed: Sequence[Weighed], live_of: LiveOf, *, merged_bytes_max: int, stages_max: int
) -> CompactionPlan | None:
    """The next thing worth doing, if any: drop what is dead, rewrite what is mostly so, or what has
    many stages, merge. A rewriting ends every stage that lies in its sources as a whole."""
    dead = tuple(one.segment for one in weighed if one.usable and not one.live)
    if dead:
        return CompactionPlan(dead, {}, rewrite=False)
    chosen = (
        _neighbours(weighed, lambda one: one.mostly_dead)
        or _neighbours(weighed, lambda one: one.movable and one.stages > stages_max)
        or _small(weighed, merged_bytes_max)
    )
    if not chosen:
        return None
    found: dict[int, LiveShare] = {}
    dissolved: set[int] = set()
    for topic_id in {topic_id for segment in chosen for topic_id in segment.index.topics()}:
        live = live_of(TopicId(topic_id))
        if live is None:
            continue
        if live.lies_in(chosen, [segment.index.extent(topic_id) for segment in chosen]):
            dissolved.add(topic_id)
        else:
            found[topic_id] = live
    return CompactionPlan(tuple(chosen), found, rewrite=True, dissolved=frozenset(dissolved))


def _neighbours(weighed: Sequence[Weighed], wanted: Callable[[Weighed], bool]) -> list[Segment]:
    """The first neighbours that are all of this kind."""
    run: list[Segment] = []
    for one in weighed:
        if wanted(one) and len(run) < SOURCES_MAX:
            run.append(one.segment)
        elif run:
            break
    return run


def _small(weighed: Sequence[Weighed], bytes_max: int) -> list[Segment]:
    """The first cold neighbours that make one of at least twice the size of the largest."""
    for start in range(len(weighed)):
        best = total = largest = 0
        for number, one in enumerate(weighed[start : start + SOURCES_MAX], 1):
            total, largest = total + one.live, max(largest, one.live)
            if not one.mergeable or total > bytes_max:
                break
            if total >= 2 * largest:
                best = number
        if best:
            return [one.segment for one in weighed[start : start + best]]
    return []


def weight_of(segment: Segment, live_of: LiveOf) -> tuple[int, int]:
    """How many bytes of a segment a compaction has to move, and how many stages it would end.

    No bytes exactly when nothing lives. Exact for a cold segment; for a log segment about right, by
    the share of the offsets.
    """
    total = stages = 0
    for topic_id in segment.index.topics():
        live = live_of(TopicId(topic_id))
        extent = segment.index.extent(topic_id)
        if live is None or extent is None or extent.end_offset <= live.low:
            segment.weights.pop(topic_id, None)
            continue
        stages += live.lies_in([segment], [extent])
        if live.low <= extent.first_offset:
            total += extent.bytes
        elif segment.header.form == COLD:
            total += _moved_bytes(segment, topic_id, extent, live.low)
        else:
            share = extent.end_offset - live.low
            total += max(1, extent.bytes * share // (extent.end_offset - extent.first_offset))
    return total, stages


def _moved_bytes(segment: Segment, topic_id: int, extent: Extent, low: int) -> int:
    """How many bytes the batches from the one with `low` in it on have, in a cold segment.

    A topic's batches lie side by side there, so two looks into the index tell; only a cursor
    that moves on asks for another look. What cannot be looked up counts as live.
    """
    weight = segment.weights.get(topic_id)
    if weight is None or weight[0] != low:
        try:
            first = next(segment.index.entries_from(topic_id, extent.first_offset))
            moved = next(segment.index.entries_from(topic_id, low))
        except (DamagedIndex, OSError):
            return extent.bytes
        weight = segment.weights[topic_id] = low, extent.bytes - (moved.position - first.position)
    return weight[1]
