"""Which messages of a topic no segment holds, to the offset: every index entry is looked at.

What lies in an unreadable batch is no gap: its entry is there, and `once repair` deals with it.
"""

from collections.abc import Iterator

from oncemq.storage.catalog.batch_places import BatchPlace
from oncemq.storage.catalog.catalog import Catalog

Gap = tuple[int, int]  # from, up to


def gaps(catalog: Catalog, topic_id: int, low: int, end: int) -> Iterator[Gap]:
    """The offsets from `low` up to `end` that cannot be read, in order.

    What a topic got by a commit lies in a stage: it is missing where the stage has a gap.
    """
    at = low
    for place in catalog.places(topic_id, low):
        if place.first_offset >= end:
            break
        if at < place.first_offset:
            yield at, place.first_offset
        if place.is_part:
            yield from _in_stage(catalog, topic_id, place, low, end)
        at = max(at, place.first_offset + place.count)
    if at < end:
        yield at, end


def _in_stage(
    catalog: Catalog, topic_id: int, place: BatchPlace, low: int, end: int
) -> Iterator[Gap]:
    part = catalog.read_part(topic_id, place)
    ahead = part.stage_offset - part.first_offset  # of the topic's offsets
    first, stop = max(low, part.first_offset), min(end, part.first_offset + part.count)
    for begin, until in gaps(catalog, part.stage_id, first + ahead, stop + ahead):
        yield begin - ahead, until - ahead
