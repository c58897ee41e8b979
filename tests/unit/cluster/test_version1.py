"""Beside servers of version 1 as they were before versions were negotiated: `tests/version1`.

What they wrote is kept there, byte for byte, and is read. What they could read is the strict
structs here: until every replica reads more, everything that is written fits them.
"""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from oncemq.coordination.transactions import drain, found, join, raise_version, register
from oncemq.coordination.values import (
    Announcement,
    ClusterConfig,
    NotUnderstood,
    OpenedDirectory,
    ServerState,
    ShardReplicas,
    announced,
    decoded,
    encoded,
)
from oncemq.protocol.names import ServerId, ShardId
from oncemq.protocol.replicas.messages import Append, Place
from oncemq.protocol.replicas.versions import FIRST
from oncemq.storage.log.frame_runs import ChainLink, check
from oncemq.storage.segments.framing import frame_key
from oncemq.wire.codec import HEAD, Malformed
from oncemq.wire.replica_codec import decode_replica, encode_replica
from oncemq.wire.replica_seal import is_sealed, sealed

WRITTEN = Path(__file__).parents[2] / "version1"
VALUES = json.loads((WRITTEN / "values.json").read_text())
MESSAGES = json.loads((WRITTEN / "messages.json").read_text())
A = ServerId("a")


class OldDirectory(msgspec.Struct, forbid_unknown_fields=True):
    incarnation: str
    openings: int
    claim: str


class OldShard(msgspec.Struct, forbid_unknown_fields=True):
    nonce: str
    identity: str
    tag: int
    generation: int
    leader: str | None
    leader_epoch: int
    in_sync: dict[str, OldDirectory]
    joining: dict[str, OldDirectory]
    proposed: str | None
    min_in_sync: int


class OldServer(msgspec.Struct, forbid_unknown_fields=True):
    nonce: str
    address: str
    draining: bool


def shards() -> list[ShardReplicas]:
    return [decoded(each.encode(), ShardReplicas, key="shard/1") for each in VALUES["shard"]]


# ------------------------------------------------------------------ values


def test_what_they_wrote_is_read_and_written_as_it_was() -> None:
    for text, shard in zip(VALUES["shard"], shards(), strict=True):
        assert shard.version == FIRST
        assert encoded(shard) == text.encode()
    for name in ("server", "draining"):
        state = decoded(VALUES[name].encode(), ServerState, key=name)
        assert encoded(state) == VALUES[name].encode()


def test_the_settings_that_they_founded_a_cluster_with_are_read() -> None:
    """Nobody writes them again; and without a secret in them nothing is sealed."""
    config = decoded(VALUES["cfg"].encode(), ClusterConfig, key="cfg")
    assert config == ClusterConfig(nonce="n0", founder=A, secret="")


@pytest.mark.parametrize("name", MESSAGES)
def test_what_they_said_has_no_seal_and_needs_none_in_their_cluster(name: str) -> None:
    frames = [bytes.fromhex(each) for each in MESSAGES[name]]
    assert is_sealed(frames, b"")
    assert [bytes(each) for each in sealed(frames, b"")] == frames
    assert not is_sealed(frames, b"secret")
    assert not is_sealed(frames, None)  # before the settings are known
    assert not is_sealed(sealed(frames, b"secret"), b"")


def test_a_claim_alone_is_of_a_server_of_the_first_version() -> None:
    assert announced(VALUES["alive"].encode()) == Announcement(VALUES["alive"])
    assert announced(b"1234567890123456") == Announcement("1234567890123456")  # it is JSON, too
    assert announced(b"\xff") == Announcement("\ufffd")


def test_what_a_later_version_announces_besides_is_passed_over() -> None:
    assert announced(b'{"claim":"c","reads":3,"sings":true}') == Announcement("c", 3)


def test_they_read_everything_until_all_are_upgraded() -> None:
    config = ClusterConfig(nonce="n")
    disks = [OpenedDirectory(f"{number:032x}", 1, f"claim{number}") for number in range(3)]
    how: Any = {"identity": "log", "config": config, "nonce": "n"}
    shard: Any = found(A, disks[0], tag=1, generation=1, leader_epoch=0, reads=FIRST, **how)
    written = [shard]
    for name, disk in zip("bc", disks[1:], strict=True):
        shard = join(shard, ServerId(name), disk, promised_epoch=0, reads=2, **how)
        written.append(shard)
    shard = replace(shard, leader=A)
    reads = {each.claim: 2 for each in disks[1:]}
    assert raise_version(shard, A, leader_epoch=0, reads=reads, nonce="m") is shard
    for each in written:
        assert msgspec.json.decode(encoded(each), type=OldShard).in_sync
    state = register(None, address="tcp://a:1", nonce="n")
    assert msgspec.json.decode(encoded(state), type=OldServer).address == "tcp://a:1"
    assert msgspec.json.decode(encoded(drain(state, draining=True, nonce="n")), type=OldServer)
    raised = raise_version(shard, A, leader_epoch=0, reads={**reads, disks[0].claim: 3}, nonce="m")
    assert raised == replace(shard, nonce="m", version=2)
    with pytest.raises(msgspec.ValidationError, match="unknown field `version`"):
        msgspec.json.decode(encoded(raised), type=OldShard)  # type: ignore[arg-type]


def test_a_field_of_a_later_version_is_refused_in_words_and_never_dropped() -> None:
    later = VALUES["shard"][0].replace("}}", '},"version":2,"mirrors":["d"]}', 1)
    with pytest.raises(NotUnderstood, match=r"written by a newer server.*Run the version"):
        decoded(later.encode(), ShardReplicas, key="shard/1")


# ------------------------------------------------------------------ what replicas say


@pytest.mark.parametrize("name", MESSAGES)
def test_what_they_said_is_understood_and_said_as_it_was(name: str) -> None:
    frames = [bytes.fromhex(each) for each in MESSAGES[name]]
    message, body = decode_replica(frames)
    assert type(message).__name__ == name.removesuffix("Heartbeat")
    assert [bytes(each) for each in encode_replica(message, body)] == frames


def test_the_frames_that_they_sent_are_taken_in() -> None:
    message, body = decode_replica([bytes.fromhex(each) for each in MESSAGES["Append"]])
    assert isinstance(message, Append)
    previous = message.previous
    link = ChainLink(previous.serial, previous.leader_epoch, previous.chain)
    received = check(body, frame_key(bytes(range(16))), link)
    assert len(received.frames) == message.count
    assert received.starts[0].leader_epoch == 2


def test_a_message_without_the_fields_that_came_later_has_their_defaults() -> None:
    fields = [ShardId(1), 2, Place(), 0, 0]  # an Append without a round
    head = HEAD.pack(b"OQ\x01", Append.opcode, 0) + msgspec.msgpack.encode(fields)
    message, _ = decode_replica([head, b""])
    assert message == Append(ShardId(1), 2, Place(), 0, 0, 0)  # type: ignore[arg-type]


def test_fields_of_a_later_version_are_passed_over() -> None:
    fields = [ShardId(1), 2, Place(), 0, 0, 4, "new", {"and": "more"}]
    head = HEAD.pack(b"OQ\x01", Append.opcode, 0) + msgspec.msgpack.encode(fields)
    message, _ = decode_replica([head, b""])
    assert message == Append(ShardId(1), 2, Place(), 0, 0, 4)  # type: ignore[arg-type]


def test_a_message_that_came_later_is_refused_in_words() -> None:
    head = HEAD.pack(b"OQ\x01", 199, 0) + msgspec.msgpack.encode([1, 2])
    with pytest.raises(Malformed) as refused:
        decode_replica([head])
    assert "run the same version on all servers" in refused.value.refusal.detail
