"""How far a streaming query is, as Spark keeps it in the checkpoint: a JSON object.

    {"version": 1, "subscription": "spark-6f…",
     "topics": {"orders": {"id": 77, "offset": 42, "since": 0}}}

A query that has seen the server's log go back in time also has its "generation" (1 is left out),
and a topic that was read anew since, "began". "left" names topics that were read up to here and
are no longer asked for: when a batch begins here, they need not be held any more.

`offset` is the next one to be read; `id` tells a topic from another of the same name; `since`
is where the query's reading of the topic began. `subscription` is the name under which the
server keeps what the query has not committed: it is in the checkpoint, so it is the query's
for as long as the checkpoint is. Law: equal progress is equal text, which is what Spark
compares.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from oncemq.errors import ConfigError

VERSION = 1


class ReadPlace(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far one topic was read."""

    id: int
    offset: int
    since: int
    began: int = 1  # the generation of the log in which its reading began at `since`


class ReadProgress(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far all topics of a query were read."""

    version: int
    subscription: str | None
    topics: dict[str, ReadPlace]
    generation: int = 1  # of the server's log, that the offsets are of
    left: tuple[str, ...] = ()  # topics that it no longer reads, and that are held until it is done

    def to_spark(self) -> dict[str, Any]:
        """As Spark stores it."""
        topics = {name: self.topics[name] for name in sorted(self.topics)}
        return msgspec.to_builtins(msgspec.structs.replace(self, topics=topics))

    def moved(
        self, topics: dict[str, ReadPlace], generation: int, left: Sequence[str] = ()
    ) -> "ReadProgress":
        """The same query, further on; itself when nothing is new."""
        if not left and (topics, generation) == (self.topics, self.generation):
            return self
        return msgspec.structs.replace(
            self, topics=topics, generation=generation, left=tuple(sorted(left))
        )


def progress_of(stored: Mapping[str, Any]) -> ReadProgress:
    """What `to_spark` gave, from the checkpoint."""
    try:
        progress = msgspec.convert(stored, ReadProgress)
    except msgspec.ValidationError as error:
        raise ConfigError(
            f"the checkpoint has an offset that is not oncemq's: {error}. A checkpoint belongs to "
            "one query: give this one a checkpointLocation of its own"
        ) from None
    if progress.version != VERSION:
        raise ConfigError(
            f"the checkpoint is of version {progress.version} of oncemq's offsets, this is "
            f"{VERSION}: go on with the version of oncemq that wrote it"
        )
    return progress


def first_offset(start: ReadProgress | None, name: str, place: ReadPlace) -> int:
    """Where a batch begins to read a topic that it reads up to `place`.

    A start beyond the end is an empty range: a first batch run again, whose beginning was
    resolved anew.
    """
    before = start.topics.get(name) if start is not None else None
    begin = place.since if before is None or _is_anew(before, place) else before.offset
    return min(begin, place.offset)


def _is_anew(before: ReadPlace, place: ReadPlace) -> bool:
    """Whether it is another topic, or one that is read anew since the log went back in time."""
    return (before.id, before.began) != (place.id, place.began)


def share(backlogs: Mapping[str, int], rows_max: int | None) -> dict[str, int]:
    """How many rows of each topic to take, in proportion to what waits there.

    A topic with a backlog advances by one row at least, so that none starves; with more topics
    than rows asked for, that is a little over the limit, as with Spark's Kafka source.
    """
    total = sum(backlogs.values())
    if rows_max is None or total <= rows_max:
        return dict(backlogs)
    shares = {name: rows * rows_max // total for name, rows in backlogs.items()}
    return {name: max(1, shares[name]) if rows else 0 for name, rows in backlogs.items()}
