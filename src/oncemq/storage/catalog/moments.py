"""When a message was stored, without reading it: what a reader of many topics goes by.

Law: no more is looked at than is asked for; most topics are seen to be younger in memory alone.
"""

from collections.abc import Iterator

from oncemq.storage.catalog.catalog import Catalog
from oncemq.storage.segments.segment import COLD


def moments(catalog: Catalog, topic_id: int, offset: int) -> Iterator[int]:
    """Moments that the message at an offset is not older than; the last is its own.

    Each costs more than the one before: memory, a block of an index, the head of a batch.
    """
    extent = catalog.extent_at(topic_id, offset)
    if extent is None:
        return
    yield extent.first_timestamp
    if offset == extent.first_offset:
        return
    place = next(catalog.places(topic_id, offset), None)
    if place is None:
        return
    if place.segment.header.form != COLD or place.is_part:
        yield place.last_timestamp  # a batch as it was put has one timestamp
        return
    first = place.first_offset
    for run in catalog.runs(place):
        first += run.count
        if offset < first:
            yield run.timestamp
            return
