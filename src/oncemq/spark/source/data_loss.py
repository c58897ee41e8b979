"""Rows that were to be read and are no longer there: a failure that names them, or a warning."""

import logging

from oncemq.errors import OnceMQError

log = logging.getLogger(__name__)

WAY_OUT = (
    "To go on without them set the option failOnDataLoss to false; to keep messages until they "
    "are read give the topic retention, or the query its own subscription"
)


class DataLost(OnceMQError):
    """Messages of a range are not kept any more, or their topic is another one now."""

    code = "data_lost"


def lost(what: str, *, fail: bool) -> None:
    """Fail, or say so and go on without."""
    if fail:
        raise DataLost(f"{what}. {WAY_OUT}")
    log.warning("rows skipped, as failOnDataLoss is false: %s", what)


def made_again(topic: str) -> str:
    """In words: the topic of this name is not the one that the query has read."""
    return (
        f"topic {topic!r} was deleted and made again: what it held is gone, and the one that is "
        "there now is to be read from its beginning"
    )


def went_back(topic: str, offset: int, *, agreed: int) -> str:
    """In words: which offsets of which topic mean other messages than this query has read."""
    return (
        f"the server's log went back in time (loss was accepted there, or a backup restored): "
        f"offsets {agreed} up to {offset} of {topic!r}, which this query has read, are lost (or, "
        "where the query read from another copy of the server's data, nobody can say that they are "
        f"not), and what the server has from {agreed} on may be other messages"
    )


def no_longer_kept(topic: str, start: int, stop: int, *, low: int, end: int) -> str:
    """In words: which offsets of which topic are gone."""
    return (
        f"offsets {start} up to {stop} of {topic!r} are no longer kept: the server holds {low} "
        f"up to {end}"
    )
