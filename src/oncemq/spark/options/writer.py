"""The options of a write, and under which name the server remembers what was published.

Law: a stream publishes under a name that outlives its checkpoint (the option `sink`, else the
place of the checkpoint), so that a checkpoint that was deleted or copied is noticed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256

from oncemq.errors import ConfigError
from oncemq.protocol.names import NAME_BYTES_MAX, is_system, name_fault
from oncemq.spark.options.given import GivenOptions
from oncemq.spark.options.reader import EVERY, TIMEOUT_SECONDS

BOTH = "server timeout topic sink unwanted repeats".split()
STREAM = "checkpointLocation queryName outputMode".split()  # Spark's own, handed on to a sink
BATCH = "txnAppId txnVersion checkpointLocation".split()


@dataclass(frozen=True)
class SinkOptions:
    """What a user asked of a write."""

    server: str
    timeout: float
    topic: str
    owner: str  # under which name batches are remembered; "" for a write of its own
    version: int | None  # of txnAppId: the number that names this write
    drop_unwanted: bool
    same_rows: bool  # whether a batch that is run again must have the rows it had
    checkpoint: str = ""  # where the query's is; within foreachBatch, if the user says it

    @property
    def compares_rows(self) -> bool:
        """Whether it is worth knowing what the rows are: not for a write that has no number."""
        return self.same_rows and bool(self.owner)


def sink_options(given: Mapping[str, str], *, streaming: bool) -> SinkOptions:
    """The options of a write, checked."""
    where = "a streaming write" if streaming else "a batch write"
    known = [*BOTH, *(STREAM if streaming else BATCH)]
    found = GivenOptions(given, known, where, elsewhere=[*EVERY, *STREAM, *BATCH])
    topic = found.text("topic", "")
    if topic and (fault := name_fault(topic)):
        raise ConfigError(f"topic: {fault}")
    owner, version = _stream_owner(found) if streaming else _batch_owner(found)
    return SinkOptions(
        server=found.server,
        timeout=found.number("timeout", TIMEOUT_SECONDS),
        topic=topic,
        owner=owner,
        version=version,
        drop_unwanted=found.one_of("unwanted", ("refuse", "drop")) == "drop",
        same_rows=found.one_of("repeats", ("same", "any")) == "same",
        checkpoint=found.text("checkpointLocation", ""),
    )


def _stream_owner(found: GivenOptions) -> tuple[str, None]:
    name = found.text("sink", "") or found.text("checkpointLocation", "").rstrip("/")
    name = name or found.text("queryName", "")
    if not name:
        raise ConfigError(
            "a streaming write needs a name under which the server remembers its batches: give "
            "the option sink, or checkpointLocation as an option of this query"
        )
    return _owner("spark", name), None


def _batch_owner(found: GivenOptions) -> tuple[str, int | None]:
    app, sink = found.text("txnAppId", ""), found.text("sink", "")
    if bool(app) != ("txnVersion" in found):
        raise ConfigError("txnAppId and txnVersion go together: who writes, and which write it is")
    if app and sink:
        raise ConfigError("give txnAppId with txnVersion, or sink within foreachBatch, not both")
    if "checkpointLocation" in found and not sink:
        raise ConfigError(
            "checkpointLocation is not for a batch write, but for one within foreachBatch, which "
            "has the option sink too"
        )
    if not app:
        return (_owner("spark", sink) if sink else ""), None
    text = found.text("txnVersion", "")
    if not text.isdecimal() or len(text) > 18:
        raise ConfigError(f"txnVersion is a whole number from 0 on, not {text!r}")
    return _owner("spark-app", app), int(text)


def _owner(kind: str, name: str) -> str:
    """The name as the server has it; a long one keeps its end, and a mark of the whole."""
    if fault := name_fault(name[-100:], what=kind):
        raise ConfigError(fault)
    owner = f"{kind}:{name}"
    assert not is_system(owner)
    if len(owner.encode()) > NAME_BYTES_MAX:
        mark = sha256(name.encode()).hexdigest()[:16]
        owner = f"{kind}:{mark}…{name[-40:]}"
    return owner
