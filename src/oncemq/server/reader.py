"""Turns what the broker owes a reader into batches cut from the log.

Laws: a batch leaves as the bytes the publisher sent, or as a slice of them (which gets a checksum
of its own, as does what was staged and published); of several
topics the oldest message goes first, by the one clock of the shard. What is read for a reply, and
held meanwhile, is proportional to the reply, however many topics have something.
"""

import errno
import heapq
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

from oncemq.errors import Corrupt, StorageRefused
from oncemq.protocol.names import Micros, Offset, Sequence, TopicId
from oncemq.protocol.records import Run
from oncemq.protocol.replies import BatchHead, LostMessages, Messages, RefusedReply
from oncemq.protocol.step import Body, Deliver, Span
from oncemq.storage.catalog.commit_parts import StoredBatch
from oncemq.storage.log.log import Log
from oncemq.wire import batch

BODIES_MAX = 1_000  # batches in one reply; small ones come faster merged by compaction
AHEAD_BYTES = 4 << 10  # of one topic among many, read at once when its turn comes
READ_FACTOR = 4  # times what may be given is read for it at most: merged batches interleave
CUTS_KEPT = 8  # batches kept at hand while someone takes them in small pieces

logger = logging.getLogger("oncemq.server")


class BatchSlice(NamedTuple):
    """Messages `start` to `stop` of a stored batch, all of one run."""

    timestamp: Micros
    span: Span
    stored: StoredBatch
    start: int
    stop: int


class Turn(NamedTuple):
    """A topic's turn in the merge; without a piece, nothing of it is older than the timestamp."""

    timestamp: Micros
    piece: BatchSlice | None = None


_when: Callable[[Turn], Micros] = attrgetter("timestamp")


@dataclass(slots=True)
class Budget:
    """What one reply may still read."""

    messages: int
    bytes: int


class Reader:
    """Reads for one server."""

    def __init__(self, log: Log) -> None:
        self.verifies_all = False  # also what leaves uncut, which its reader verifies
        self._log = log
        self._verified: OrderedDict[tuple[TopicId, Offset], StoredBatch] = OrderedDict()

    def read(self, deliver: Deliver) -> tuple[Messages, list[Body]]:
        """The reply and its bodies."""
        chosen = self._choose(deliver)
        heads: list[BatchHead] = []
        bodies: list[Body] = []
        for piece in chosen:
            head, body = self._cut(piece)
            heads.append(head)
            bodies.append(body)
        given = {head.topic_id for head in heads}
        lost = tuple(
            LostMessages(span.topic, span.topic_id, *span.lost)
            for span in deliver.spans
            if span.lost is not None and (span.topic_id in given or span.start == span.end)
        )
        return Messages(tuple(heads), self._more(deliver, heads), lost), bodies

    def _choose(self, deliver: Deliver) -> list[BatchSlice]:
        """Which pieces fit: at least one message, at most the limits."""
        if len(deliver.spans) == 1:
            pieces = self._whole(deliver.spans[0], deliver)
        else:
            pieces = self._oldest_first(deliver)
        left, room = deliver.limit, deliver.bytes_max
        chosen: list[BatchSlice] = []
        for piece in pieces:
            stop = min(piece.stop, piece.start + left)
            record = piece.stored.record
            fits = stop if deliver.whole else batch.fit(
                piece.stored.body, record.count, record.columns,
                start=piece.start, stop=stop, bytes_max=room,
            )  # fmt: skip
            if fits == piece.start:
                if chosen:
                    break
                fits += 1  # one message goes even when it alone is over the size asked for
            taken = piece._replace(stop=fits)
            if chosen and chosen[-1].stored is taken.stored and chosen[-1].stop == taken.start:
                taken = taken._replace(start=chosen.pop().start)
            chosen.append(taken)
            left -= fits - piece.start
            room -= _size(piece, fits)
            if left == 0 or fits < piece.stop or len(chosen) >= BODIES_MAX:
                break
        return chosen

    def _oldest_first(self, deliver: Deliver) -> Iterator[BatchSlice]:
        """Pieces of several topics by the clock; a topic is read when its turn has come.

        What is read is bounded by what was asked for: beyond it the pieces end.
        """
        budget = Budget(deliver.limit, READ_FACTOR * deliver.bytes_max)
        turns = (self._turns(span, budget) for span in deliver.spans)
        for turn in heapq.merge(*turns, key=_when):
            if turn.piece is not None:
                yield turn.piece
                if budget.bytes <= 0:
                    return

    def _turns(self, span: Span, budget: Budget) -> Iterator[Turn]:
        """A topic's pieces, each after moments that it is not older than."""
        offset, ahead = span.start, AHEAD_BYTES
        while offset < span.end:
            for moment in self._log.moments(span.topic_id, offset):
                yield Turn(Micros(moment))
            room = max(1, min(ahead, budget.bytes))
            ahead *= 4  # it is a topic that has much of what is wanted
            found = list(self._stored(span, offset, budget.messages, room))
            budget.bytes -= sum(len(stored.body) for stored in found)
            for stored in found:
                offset = Offset(stored.record.first_offset + stored.record.count)
                for piece in _by_run(_piece(span, stored)):
                    yield Turn(piece.timestamp, piece)

    def _whole(self, span: Span, deliver: Deliver) -> Iterator[BatchSlice]:
        offset = span.start
        left, room = deliver.limit, deliver.bytes_max
        while offset < span.end and left > 0 and room > 0:
            for stored in self._stored(span, offset, left, room):
                yield _piece(span, stored)
                end = Offset(stored.record.first_offset + stored.record.count)
                left -= end - offset
                room -= len(stored.body)
                offset = end
            if deliver.whole:
                return  # the next one does not fit

    def _stored(self, span: Span, offset: Offset, left: int, room: int) -> Iterator[StoredBatch]:
        """The batches that one read gives: of so many messages and bytes, and one at least."""
        count = min(left, span.end - offset)  # no further: a hole may begin there
        found = self._log.read_many(span.topic_id, offset, count_max=count, bytes_max=room)
        if not found:
            raise Corrupt(f"{span.topic}@{offset} is not in the log, though it must be")
        for stored in found:
            end = Offset(stored.record.first_offset + stored.record.count)
            if not stored.record.first_offset <= offset < end:
                raise Corrupt(f"the log has a gap at {span.topic}@{offset}")
            yield stored
            offset = end
            if offset >= span.end:
                return

    def _cut(self, piece: BatchSlice) -> tuple[BatchHead, Body]:
        record, span = piece.stored.record, piece.span
        count = piece.stop - piece.start
        runs, checksum, body = record.runs, record.checksum, piece.stored.body
        if count < record.count or self.verifies_all:
            self._verify(piece)
        if count < record.count:
            runs = cut_runs(record.runs, start=piece.start, stop=piece.stop)
            body = batch.cut(body, record.count, record.columns, start=piece.start, stop=piece.stop)
        if count < record.count or piece.stored.published:
            first = runs[0]
            seed = batch.seed(span.topic, first.producer, first.first_sequence, count)
            checksum = batch.checksum(body, seed)
        head = BatchHead(
            topic=span.topic,
            topic_id=span.topic_id,
            subscription_id=span.subscription_id,
            first_offset=Offset(record.first_offset + piece.start),
            count=count,
            columns=record.columns,
            checksum=checksum,
            runs=runs,
        )
        return head, body

    def _verify(self, piece: BatchSlice) -> None:
        """A slice gets a checksum of its own, so the whole must be right first."""
        key = (piece.span.topic_id, piece.stored.record.first_offset)
        if piece.stored.published or self._verified.get(key) is piece.stored:
            return
        if batch.checksum(piece.stored.body, piece.stored.seed) != piece.stored.record.checksum:
            name = f"{piece.span.topic}@{piece.stored.record.first_offset}"
            raise Corrupt(f"the stored batch {name} does not match its checksum")
        self._verified[key] = piece.stored
        if len(self._verified) > CUTS_KEPT:
            self._verified.popitem(last=False)

    def _more(self, deliver: Deliver, heads: list[BatchHead]) -> bool:
        ends = {head.topic_id: head.first_offset + head.count for head in heads}
        return any(
            span.goes_on or ends.get(span.topic_id, span.start) < span.end for span in deliver.spans
        )


def _piece(span: Span, stored: StoredBatch) -> BatchSlice:
    """What of a batch belongs to a span."""
    record = stored.record
    start = max(0, span.start - record.first_offset)
    stop = min(record.count, span.end - record.first_offset)
    return BatchSlice(record.runs[0].timestamp, span, stored, start, stop)


def _by_run(piece: BatchSlice) -> Iterator[BatchSlice]:
    """A piece by the moments at which its messages were stored."""
    first = 0
    for run in piece.stored.record.runs:
        start, stop = max(first, piece.start), min(first + run.count, piece.stop)
        if start < stop:
            yield BatchSlice(run.timestamp, piece.span, piece.stored, start, stop)
        first += run.count


def cut_runs(runs: tuple[Run, ...], *, start: int, stop: int) -> tuple[Run, ...]:
    """The runs of messages `start` to `stop` alone."""
    kept: list[Run] = []
    first = 0
    for run in runs:
        begin, end = max(first, start), min(first + run.count, stop)
        if begin < end:
            kept.append(
                Run(
                    end - begin,
                    run.producer,
                    run.producer_epoch,
                    Sequence(run.first_sequence + begin - first),
                    run.timestamp,
                )
            )
        first += run.count
    return tuple(kept)


def _size(piece: BatchSlice, stop: int) -> int:
    record = piece.stored.record
    return len(piece.stored.body) * (stop - piece.start) // record.count


def unreadable(trouble: StorageRefused | OSError) -> RefusedReply:
    """What a reader is told of a log that cannot be read: the others are served on."""
    if isinstance(trouble, StorageRefused):
        return RefusedReply(trouble.code, f"{trouble.detail}; see once repair")
    logger.error("log not read error=%r", trouble)
    return RefusedReply(
        "storage_unreadable",
        f"the server could not read its log: {trouble}. Nothing was lost by that: try again, and "
        "look at the server's disk and its limit of open files",
    )


def damage_in(trouble: StorageRefused | OSError) -> str:
    """What is broken in the log; nothing, when something else kept it from being read."""
    if isinstance(trouble, Corrupt):
        return trouble.detail
    is_read_error = isinstance(trouble, OSError) and trouble.errno == errno.EIO
    return f"the disk does not give what is on it ({trouble})" if is_read_error else ""
