"""Who is not of the cluster and speaks as one of its servers: nothing of it is believed."""

import pytest

from oncemq.protocol.names import LeaderEpoch, Serial, ShardId
from oncemq.protocol.replicas.messages import (
    AnswerNumber,
    Append,
    Appended,
    Cut,
    LeaderMessage,
    Life,
    Place,
    RefillBegin,
    Stale,
)
from oncemq.wire.replica_codec import encode_replica
from oncemq.wire.replica_seal import is_sealed, sealed
from tests.harness.trio import SERVERS, Trio

SHARD = ShardId(1)
HUGE = LeaderEpoch(1 << 60)
NOWHERE = Place(Serial(3), LeaderEpoch(1), 7)
LEADER, MEMBER, _ = SERVERS


@pytest.fixture
def trio() -> Trio:
    trio = Trio()
    trio.subscribe("kept")
    trio.until(trio.are_in_sync)
    return trio


def test_a_seal_holds_for_the_message_it_was_made_for_and_for_no_other() -> None:
    frames = sealed(encode_replica(Append(SHARD, HUGE, NOWHERE, 0, Serial(0)), b"frames"), b"key")
    assert is_sealed(frames, b"key")
    assert frames[1] == b"frames"
    assert not is_sealed(frames, b"another")
    head = bytes(frames[0])
    for at in range(len(head)):
        changed = head[:at] + bytes([head[at] ^ 1]) + head[at + 1 :]
        assert not is_sealed([changed, frames[1]], b"key"), at


@pytest.mark.parametrize("secret", [None, b"of another cluster"], ids=["bare", "another cluster's"])
@pytest.mark.parametrize(
    "message",
    [
        Append(SHARD, HUGE, NOWHERE, 0, Serial(0)),
        Cut(SHARD, HUGE, NOWHERE, Serial(0)),
        RefillBegin(SHARD, HUGE, NOWHERE, Place(Serial(99), HUGE, 1), ()),
    ],
    ids=["append", "cut", "refill"],
)
def test_a_stranger_that_says_it_leads_changes_nothing(
    trio: Trio, message: LeaderMessage, secret: bytes | None
) -> None:
    frames = encode_replica(message)
    frames = frames if secret is None else sealed(frames, secret)
    promised = trio.facts(MEMBER)["cluster_promised"]
    for name in SERVERS:
        trio.running[name].inbox.append((b"stranger", frames))
    trio.put("kept")
    assert trio.facts(MEMBER)["cluster_promised"] == promised
    assert [trio.facts(name)["stranger_refused"] for name in SERVERS] == [1, 1, 1]
    assert trio.are_in_sync()


def test_a_stranger_that_answers_as_a_member_ends_no_leader(trio: Trio) -> None:
    leader = trio.until_led()
    epoch = trio.facts(leader)["cluster_leader_epoch"]
    answered = AnswerNumber(Life(b"", 1), 1)
    for message in (
        Stale(SHARD, LeaderEpoch(1), HUGE),
        Appended(SHARD, LeaderEpoch(1), Serial(9), Serial(9), False, answered),
    ):
        trio.running[leader].links.heard.append((MEMBER, encode_replica(message)))
    trio.put("kept")
    assert trio.facts(leader)["cluster_leader_epoch"] == epoch
    assert trio.facts(leader)["stranger_refused"] == 2
