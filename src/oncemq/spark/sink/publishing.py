"""The driver's side of a write: all stages of a batch published at once, once, or given up.

Laws: what is published is exactly the stages that Spark's commit names, in the order of their
partitions; a batch that is run again adds nothing; a batch that is not the next one of its
sink, or of another checkpoint, or after one that the server lost, is refused in words, and never
doubles or loses rows in silence.
"""

import logging
import secrets
from collections.abc import Sequence

from oncemq.errors import ConfigError, HistoryLost, OnceMQError, Refused, Unwanted
from oncemq.spark.options.writer import SinkOptions
from oncemq.spark.runtime.connections import client
from oncemq.spark.sink.note import SinkNote
from oncemq.spark.sink.staging import StagedRows
from oncemq.wire.contents import contents_of_topics

log = logging.getLogger(__name__)


MISFITS = ("owner_bound", "number_misfit", "bond_taken", "contents_differ")


class CheckpointMisfit(OnceMQError):
    """The checkpoint is not the one this sink has been published from, or an older copy."""

    code = "checkpoint_misfit"


def publish_stream(
    options: SinkOptions, messages: Sequence[StagedRows | None], batch_id: int
) -> None:
    """Publish a micro-batch of a streaming query."""
    staged = _in_order(messages)
    query_id = _query_of(staged, batch_id)
    _publish(options, staged, options.owner, batch_id + 1, bond=query_id, follows=True)


def publish_batch(options: SinkOptions, messages: Sequence[StagedRows | None]) -> None:
    """Publish a batch write: once for its txnVersion, or for the micro-batch it runs in."""
    staged = _in_order(messages)
    first = staged[0] if staged else None
    if options.version is not None:
        _publish(options, staged, options.owner, options.version + 1)
    elif first is not None and first.query_id:
        if not options.owner:
            raise ConfigError(
                "a write within foreachBatch is run again after a crash: give it the option sink, "
                "a name of its own, so that it is published once (or txnAppId and txnVersion)"
            )
        query_id = _query_of(staged, first.batch_id)
        _publish(options, staged, options.owner, first.batch_id + 1, bond=query_id)
    elif options.owner:
        raise ConfigError("sink is for streams and foreachBatch; use txnAppId and txnVersion here")
    else:
        _publish(options, staged, f"_spark-{secrets.token_hex(16)}", 1, lasting=False)


def give_up(options: SinkOptions, messages: Sequence[StagedRows | None]) -> None:
    """A batch failed: its stages are not wanted. What is published stays published."""
    mq = client(options.server, options.timeout)
    for each in messages:
        for _, token in each.tokens if each is not None else ():
            try:
                mq.drop_stage(token)
            except OnceMQError as error:
                log.warning("stage %s is left to expire: %s", token.name.hex(), error)
                return


def _in_order(messages: Sequence[StagedRows | None]) -> list[StagedRows]:
    return sorted((each for each in messages if each is not None), key=lambda each: each.partition)


def _query_of(staged: list[StagedRows], batch_id: int) -> str:
    """Whose batch this is. Spark hands it to tasks alone, and not by a documented name."""
    found = {(each.query_id, each.batch_id) for each in staged}
    told = next(iter(found)) if len(found) == 1 else ("", -1)
    if not told[0] or told[1] != batch_id:
        raise CheckpointMisfit(
            f"Spark did not tell the tasks of batch {batch_id} which query and batch they are of "
            f"(they heard {sorted(found)}): nothing was published, because a repeat could not be "
            "told from a new batch. This version of oncemq is made for PySpark 4.3"
        )
    return told[0]


def _publish(
    options: SinkOptions,
    staged: list[StagedRows],
    owner: str,
    number: int,
    *,
    bond: str = "",
    follows: bool = False,
    lasting: bool = True,
) -> None:
    mq = client(options.server, options.timeout)
    targets = [(topic, token) for each in staged for topic, token in each.tokens if token.count]
    note = SinkNote(options.checkpoint if bond else "", bond, owner)
    try:
        done = mq.commit(
            owner,
            number,
            targets,
            bond=bond,
            follows=follows,
            lasting=lasting,
            required=not options.drop_unwanted,
            contents=_contents(options, staged),
            after=note.read(),
        )
    except Unwanted as unwanted:
        raise ConfigError(
            f"rows of this batch would vanish: {unwanted.detail}; for a write of Spark that is the "
            "option unwanted set to drop. Nothing was published"
        ) from None
    except HistoryLost as lost:
        raise _lost(number - 1, note, lost) from None
    except Refused as refused:
        if refused.code not in MISFITS:
            raise
        raise _misfit(owner, number - 1, bond, refused) from None
    note.write(done.mark)
    if done.already:
        log.info("batch published before owner=%s number=%d", owner, number)
        give_up(options, staged)


def _contents(options: SinkOptions, staged: list[StagedRows]) -> int:
    """What all rows of the batch are, however they were spread over its tasks."""
    if not options.compares_rows:
        return 0
    return contents_of_topics(each for task in staged for each in task.sums)


WAY_OUT = (
    "Go on with the checkpoint that published last, and the name it had (the option sink); or, to "
    "publish everything anew and knowingly, begin with a new checkpoint and another name"
)


def _lost(batch_id: int, note: SinkNote, lost: HistoryLost) -> CheckpointMisfit:
    return CheckpointMisfit(
        f"batch {batch_id} does not go on from what this checkpoint was published by last: "
        f"{lost.detail}. Rows of earlier batches are not there. Serve the copy of the server's "
        "data that has them, or put back the checkpoint that goes with this one; or, if it is "
        f"accepted that they are missing, remove the file {note.path}, and start the query again"
    )


def _misfit(owner: str, batch_id: int, bond: str, refused: Refused) -> CheckpointMisfit:
    way_out = WAY_OUT
    match refused.code:
        case "owner_bound":
            why = (
                f"query {bond} is not the one that {owner!r} has been published from: its "
                "checkpoint was deleted and made anew, or another query has the same sink"
            )
        case "bond_taken":
            why = (
                f"query {bond} is published under another name than {owner!r}: its checkpoint was "
                "copied or moved, or its sink was renamed"
            )
        case "contents_differ":
            why = (
                f"batch {batch_id} of {owner!r} was published with other rows than it has now: "
                "the checkpoint is an older copy, its newest files were lost, or two queries share "
                "it; or the query gives other rows each time it is run (uuid(), a clock, "
                "collect_list after a shuffle)"
            )
            way_out = f"{WAY_OUT}; for rows that are never the same, set the option repeats to any"
        case _:
            why = (
                f"batch {batch_id} does not follow what {owner!r} has published: the checkpoint "
                "was copied, moved, or is an older copy of itself"
            )
    return CheckpointMisfit(f"{why}. Nothing was published. {way_out}. ({refused.detail})")
