"""A shard's state as the values of a checkpoint: taken a few at a time while work goes on.

Law: facts may be applied between two values. The records since the capture began are replayed
over what was restored, and change nothing that the values contain already.
"""

from collections.abc import Callable, Iterator

import msgspec

from oncemq.broker.state.clients import ClientState
from oncemq.broker.state.deleted_topics import DeletedState
from oncemq.broker.state.keys import KeysState
from oncemq.broker.state.leases import LeaseState
from oncemq.broker.state.owners import OwnerState
from oncemq.broker.state.producers import Producer
from oncemq.broker.state.shard import Shard
from oncemq.broker.state.stages import StageState
from oncemq.broker.state.topic import (
    ProducersState,
    TopicState,
    capture_topic,
    restore_producers,
    restore_topic,
)
from oncemq.protocol.names import Epoch, Generation, Micros, ProducerId, Serial, TopicId
from oncemq.protocol.patterns import PatternState
from oncemq.protocol.replicas.leader_epochs import EpochStart


class ShardState(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """What belongs to no topic and no client."""

    identities: int
    last_timestamp: Micros
    deleted: Serial = Serial(0)
    generation: Generation = Generation(1)
    counts: tuple[tuple[int, int], ...] = ()  # of identities, by tag
    steps: tuple[tuple[int, int], ...] = ()  # of the clock
    forgotten: Epoch = Epoch(0)
    generations: tuple[Generation, ...] = ()  # that led to the newest
    ended: tuple[Micros, ...] = ()  # the log's newest moment when each of them began
    leader_epochs: tuple[EpochStart, ...] = ()


State = (
    TopicState
    | ProducersState
    | ClientState
    | ShardState
    | KeysState
    | StageState
    | OwnerState
    | PatternState
    | LeaseState
    | DeletedState
)

_encode = msgspec.msgpack.Encoder().encode
_decode: Callable[[bytes], State] = msgspec.msgpack.Decoder(State).decode


def capture(shard: Shard) -> Iterator[bytes]:
    """Everything, as blobs. Facts may be applied between two of them."""
    for client in list(shard.clients.entries):
        if client in shard.clients.entries:
            yield _encode(shard.clients.capture(client))
    for topic_id in list(shard.topics):
        topic = shard.topics.get(topic_id)
        if topic is not None:
            for state in capture_topic(topic):
                yield _encode(state)
    for client in list(shard.patterns.by_client):
        for state in shard.patterns.capture(client):
            yield _encode(state)
    for stage_id in list(shard.stages.by_id):
        if stage_id in shard.stages.by_id:
            yield _encode(shard.stages.capture(stage_id))
    for stage_id in list(shard.stages.leaving):
        if stage_id in shard.stages.leaving:
            yield _encode(shard.stages.capture(stage_id))
    for owner in list(shard.owners.entries):
        if owner in shard.owners.entries:
            yield _encode(shard.owners.capture(owner))
    for state in shard.deleted_topics.capture():
        yield _encode(state)
    for state in shard.leases.capture():
        yield _encode(state)
    for state in shard.keys.capture():
        yield _encode(state)
    yield _encode(
        ShardState(
            shard.identities.given,
            shard.last_timestamp,
            shard.deleted,
            shard.generation,
            shard.identities.capture(),
            shard.ages.capture(),
            shard.clients.forgotten,
            shard.generations.capture(),
            shard.generations.capture_ended(),
            shard.leader_epochs.starts,
        )
    )


def restore(shard: Shard, blob: bytes) -> None:
    """Take over one captured value; the records since the capture began are replayed after."""
    state = _decode(blob)
    match state:
        case TopicState():
            topic = restore_topic(state)
            shard.seen_identity(topic.id)
            shard.add(topic)
            _guests(shard, topic.id, topic.producers)
        case ProducersState():
            more = restore_producers(state)
            shard.topics[state.topic_id].producers.update(more)
            _guests(shard, state.topic_id, more)
        case ClientState():
            shard.clients.restore(state)
        case PatternState():
            shard.seen_identity(state.subscription_id)
            shard.patterns.add(state.client, state.pattern, state.subscription_id)
        case StageState():
            shard.seen_identity(state.stage_id)
            shard.stages.restore(state)
        case OwnerState():
            shard.owners.restore(state)
        case LeaseState():
            shard.leases.restore(state)
        case DeletedState():
            shard.deleted_topics.restore(state)
        case KeysState():
            shard.keys.restore(state)
        case ShardState():
            shard.identities.restore(state.counts, state.identities)
            shard.last_timestamp = max(shard.last_timestamp, state.last_timestamp)
            shard.deleted = max(shard.deleted, state.deleted)
            shard.generations.restore(state.generations, state.generation, state.ended)
            shard.clients.grant_above(state.generation)
            shard.ages.restore(state.steps)
            for start in state.leader_epochs:
                shard.leader_epochs.began(start)
            shard.clients.forgotten = max(shard.clients.forgotten, state.forgotten)


def _guests(shard: Shard, topic_id: TopicId, producers: dict[ProducerId, Producer]) -> None:
    for producer, entry in producers.items():
        if entry.anonymous:
            shard.guests[topic_id, producer] = entry.seen
