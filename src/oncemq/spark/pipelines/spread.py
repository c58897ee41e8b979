# pyright: basic
# pyspark and pyarrow carry few types.
"""Work for Spark's tasks that is not rows: each gets an item and answers with a value.

What a task could not do comes back as the error it was, not as a page of Java: a task that
fails because of what it was given fails each time. What happens to the task itself (its
executor dies) is Spark's to repeat.
"""

import base64
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

from oncemq import errors
from oncemq.errors import OnceMQError, StorageFull, StorageRefused
from oncemq.spark.pipelines.failures import failed

Item = TypeVar("Item")
Answer = TypeVar("Answer")

NO_ROOM = 28  # ENOSPC


class Said(msgspec.Struct):
    """What a task answered, or why it could not."""

    item: int
    answer: Any = None
    error: str = ""
    code: str = ""
    detail: str = ""


def spread(
    spark: SparkSession,
    items: Sequence[Item],
    work: Callable[[Item], Answer],
    kind: type[Answer],
) -> list[Answer]:
    """Do `work` on each item, a task each; the answers, in the order of the items."""
    if not items:
        return []

    # A plain function of a column: what takes Arrow batches asks for pandas, which we do not need.
    task = udf(lambda number: _do(number, items[number], work), "string", useArrow=False)
    count = len(items)
    try:
        rows = spark.range(0, count, 1, count).select(task("id").alias("said")).collect()
    except (PySparkException, Py4JError) as error:
        raise failed(error) from error
    found = sorted((_decoded(row.said) for row in rows), key=lambda said: said.item)
    for said in found:
        if said.error:
            raise _error(said)
    assert [said.item for said in found] == list(range(count)), "each task answers once"
    return [msgspec.convert(said.answer, kind) for said in found]


def _do(number: int, item: Any, work: Callable[[Any], Any]) -> str:
    try:
        said = Said(number, msgspec.to_builtins(work(item)))
    except OnceMQError as error:
        said = Said(number, None, type(error).__name__, error.code, error.detail)
    except OSError as error:
        name = StorageFull if error.errno == NO_ROOM else StorageRefused
        where = f"{error.filename}: " if error.filename else ""
        said = Said(number, None, name.__name__, name.code, f"{where}{error.strerror or error}")
    return base64.b64encode(msgspec.msgpack.encode(said)).decode()


def _decoded(text: str) -> Said:
    return msgspec.msgpack.decode(base64.b64decode(text), type=Said)


def _error(said: Said) -> OnceMQError:
    kind = getattr(errors, said.error, OnceMQError)
    return kind(said.detail, code=said.code)
