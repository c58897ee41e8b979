"""Stages and commits against a model: any order of puts, commits, cursors, checkpoints, compactions
and crashes leaves in every topic exactly what was put or published, in order."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncemq.protocol.names import ClientId, Epoch, Offset, ProducerId, Sequence
from oncemq.protocol.records import Retention
from oncemq.protocol.replies import CommitDone, Done, RefusedReply, StagedReply, Subscribed
from oncemq.protocol.requests import (
    CommitRequest,
    CreateTopic,
    DeleteTopic,
    DropStage,
    Piece,
    Settle,
    Settled,
    StagePut,
    Subscribe,
)
from oncemq.server import driver
from oncemq.storage.log.log import LogOptions
from oncemq.testing.faulty_disk import FaultyDisk
from oncemq.testing.unsynced_changes import PowerCut
from oncemq.wire import batch
from tests.simulation.crashed_server import Ledger, Machine

ME = ClientId("_anonymous-1")
TOPICS = st.sampled_from(["kept", "read"])
STAGES = st.sampled_from([b"s", b"t"])

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), TOPICS, st.integers(1, 3), st.sampled_from([10, 900])),
        st.tuples(st.just("put"), st.just("read"), st.just(1), st.just(5000)),
        st.tuples(st.just("stage"), STAGES, st.integers(1, 4), st.sampled_from([10, 700])),
        st.tuples(st.just("stage"), STAGES, st.integers(1, 4), st.sampled_from([10, 700])),
        st.tuples(
            st.just("publish"),
            st.lists(st.tuples(TOPICS, STAGES), min_size=1, max_size=3),
            st.booleans(),
        ),
        st.tuples(st.just("again")),
        st.tuples(st.just("drop"), STAGES),
        st.tuples(st.just("settle"), st.integers(0, 9)),
        st.tuples(st.just("settle"), st.just(99)),
        st.tuples(st.just("forget_topic")),
        st.tuples(st.just("keep_house"), st.sampled_from([1, 3, 12, 30])),
        st.tuples(st.just("cut")),
    ),
    min_size=8,
    max_size=50,
)


class Model(Machine):
    """A server, and what its topics must hold."""

    options = LogOptions(
        segment_bytes=12_000,
        allocate_bytes=12_000,
        reserve_bytes=256,
        checkpoint_records=12,
        checkpoint_idle_ms=1,
    )

    def __init__(self) -> None:
        super().__init__(FaultyDisk(Random(1)), Ledger())
        self.topics: dict[str, list[bytes]] = {"kept": [], "read": []}
        self.low = 0  # of `read`
        self.staged: dict[bytes, list[bytes]] = {}
        self.published: dict[bytes, int] = {}
        self.names: dict[bytes, int] = {}
        self.payloads = self.number = 0
        self.last: tuple[CommitRequest, object] | None = None
        self.now_and(CreateTopic("kept", Retention(forever=True)))
        self.subscribe_read()

    def subscribe_read(self) -> None:
        made = self.now_and(Subscribe(ME, Epoch(0), "read"))
        assert isinstance(made, Subscribed)
        self.subscription = made.subscription_id

    def some(self, count: int, size: int) -> list[bytes]:
        first = self.payloads + 1
        self.payloads += count
        return [b"%d " % number + b"x" * size for number in range(first, first + count)]

    def name(self, stage: bytes) -> ProducerId:
        return ProducerId((stage + b"%d" % self.names.get(stage, 0)).ljust(16, b"."))

    def begin_another(self, stage: bytes) -> None:
        self.names[stage] = self.names.get(stage, 0) + 1
        self.staged.pop(stage, None)
        self.published.pop(stage, None)

    # steps

    def do_put(self, topic: str, count: int, size: int) -> None:
        known = self.ledger.topic(topic)
        before = len(known.sent)
        self.put(topic, b"p", count, size)
        self.commit()
        self.topics[topic] += known.sent[before].payloads

    def do_stage(self, stage: bytes, count: int, size: int) -> None:
        payloads = self.some(count, size)
        held = self.staged.setdefault(stage, [])
        name, first = self.name(stage), len(held) + 1
        body = batch.encode_payloads(payloads)
        checksum = batch.checksum(body, batch.seed("", name, first, count))
        put = StagePut(ME, Epoch(0), name, Sequence(first), count, 0, checksum)
        assert self.now_and(put, body) == StagedReply(
            Offset(len(held) + count), False, 0, 86_400_000
        )
        held += payloads

    def do_publish(self, pieces: list[tuple[str, bytes]], closing: bool) -> None:
        named: list[Piece] = []
        new: list[tuple[str, bytes]] = []
        for topic, stage in dict.fromkeys(pieces):
            start = self.published.get(stage, 0)
            size = len(self.staged.get(stage, ())) - start
            if size:
                named.append(Piece(topic, self.name(stage), Offset(start), size))
                new += [(topic, payload) for payload in self.staged[stage][start:]]
        self.number += 1
        commit = CommitRequest(ME, Epoch(0), "job", self.number, True, tuple(named), (), closing)
        done = self.now_and(commit)
        assert isinstance(done, CommitDone), done
        self.last = commit, done
        for topic, payload in new:
            self.topics[topic].append(payload)
        for _, stage in pieces:
            self.published[stage] = len(self.staged.get(stage, ()))
            if closing and any(piece.stage == self.name(stage) for piece in named):
                self.begin_another(stage)

    def do_again(self) -> None:
        """A commit that was answered, once more."""
        if self.last is not None:
            done = self.now_and(self.last[0])
            assert isinstance(done, CommitDone)
            assert done.already

    def do_drop(self, stage: bytes) -> None:
        done = self.now_and(DropStage(ME, Epoch(0), self.name(stage)))
        assert done == Done(changed=stage in self.staged)
        self.begin_another(stage)

    def do_settle(self, count: int) -> None:
        self.low = min(self.low + count, len(self.topics["read"]))
        moved = Settled("read", self.subscription, Offset(self.low))
        assert not isinstance(self.now_and(Settle(ME, Epoch(0), (moved,))), RefusedReply)

    def do_forget_topic(self) -> None:
        """Deleted and made again: everything in it is gone, and so are its stages' parts."""
        self.now_and(DeleteTopic("read"))
        self.deletions["read"] += 1
        self.ledger.topics = [each for each in self.ledger.topics if each.name != "read"]
        self.subscribe_read()
        self.topics["read"], self.low = [], 0

    def do_cut(self) -> None:
        self.disk.crash(PowerCut.NOTHING)
        self.open()

    def do_keep_house(self, turns: int) -> None:
        self.housekeep(turns)

    def compare(self) -> None:
        found = {each.name: each.messages for each in self.found().values()}
        for topic, low in (("kept", 0), ("read", self.low)):
            expected = dict(enumerate(self.topics[topic]))
            assert found[topic] == {n: p for n, p in expected.items() if n >= low}, topic


@given(STEPS)
@settings(max_examples=120, deadline=None)
def test_topics_hold_exactly_what_was_put_and_published(steps: list[tuple]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver, "GATHER_BYTES", 4096)  # upkeep finds room in small segments
        model = Model()
        for name, *args in steps:
            getattr(model, f"do_{name}")(*args)
        model.compare()
        model.do_cut()
        model.compare()
        model.housekeep(30)
        model.compare()
