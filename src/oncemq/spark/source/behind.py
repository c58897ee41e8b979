"""How far a streaming query is behind its topics. Spark has no metrics of Python sources to ask."""

import json
from collections.abc import Mapping
from typing import Any, cast

from oncemq.errors import ConfigError
from oncemq.spark.source.progress import ReadProgress, progress_of


def lag(progress: Mapping[str, Any] | None) -> dict[str, int]:
    """Messages that wait in each topic, of a `query.lastProgress` or what a listener is given.

    Where the topics ended when the query last looked, less how far it has read; {} when it has
    said nothing yet. Sources that are not oncemq's are passed over.
    """
    found: dict[str, int] = {}
    for source in progress["sources"] if progress is not None else ():
        latest, done = _progress(source["latestOffset"]), _progress(source["endOffset"])
        if latest is None:
            continue
        before = {} if done is None else done.topics
        for name, place in latest.topics.items():
            behind = place.offset - (before[name].offset if name in before else place.since)
            found[name] = found.get(name, 0) + max(0, behind)
    return found


def _progress(text: object) -> ReadProgress | None:
    """An offset as Spark's progress has it: JSON in a text."""
    try:
        parsed: Any = json.loads(text) if isinstance(text, str) else text
        return progress_of(cast("dict[str, Any]", parsed)) if isinstance(parsed, dict) else None
    except (ValueError, ConfigError):
        return None
