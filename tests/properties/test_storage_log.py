"""The log against a dictionary: whatever is done in whatever order, both say the same."""

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from oncemq.protocol.names import ClientId, Epoch, Micros, Offset, ProducerId, Sequence, TopicId
from oncemq.protocol.records import CursorMoved, MessagesStored, Run
from oncemq.storage.compaction.plan import LiveShare
from oncemq.storage.disk import LocalDisk, LocalFile
from oncemq.storage.log.log import Log, LogOptions
from oncemq.storage.log.recovery import OpenedLog, open_log
from oncemq.wire import batch

OPTIONS = LogOptions(segment_bytes=1200, allocate_bytes=600, reserve_bytes=100)
TOPICS = st.sampled_from([TopicId(7), TopicId(8), TopicId(1 << 62)])
PRODUCER = ProducerId(b"p" * 16)


class UnsyncedFile(LocalFile):
    def sync(self) -> None: ...


class UnsyncedDisk(LocalDisk):
    """Nothing here cuts the power, so nothing needs to reach the device."""

    def open(self, path: str, create: bool = False) -> LocalFile:
        file = super().open(path, create)
        file.__class__ = UnsyncedFile
        return file

    def sync_directory(self, path: str) -> None: ...


class LogMachine(RuleBasedStateMachine):
    """Law: finished messages at or above a topic's low are there, unchanged, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        self.clock = 1000
        self.sequence = 0
        self.messages: dict[int, list[bytes]] = {}
        self.times: dict[int, list[int]] = {}
        self.finished: dict[int, int] = {}  # how many messages of each topic
        self.low: dict[int, int] = {}
        self.blob = b""
        self.opened = self.open()

    @property
    def log(self) -> Log:
        return self.opened.log

    def open(self) -> OpenedLog:
        return open_log(
            UnsyncedDisk(),
            str(self.directory / "data"),
            OPTIONS,
            random_bytes=lambda size: b"\7" * size,
        )

    @rule(topic=TOPICS, payloads=st.lists(st.binary(max_size=300), min_size=1, max_size=5))
    def put(self, topic: TopicId, payloads: list[bytes]) -> None:
        stored = self.messages.setdefault(topic, [])
        count = len(payloads)
        body = batch.encode_payloads(payloads)
        seed = batch.seed(f"t{topic}", PRODUCER, self.sequence + 1, count)
        checksum = batch.checksum(body, seed)
        self.clock += 1
        run = Run(count, PRODUCER, Epoch(1), Sequence(self.sequence + 1), Micros(self.clock))
        record = MessagesStored(topic, Offset(len(stored)), count, 0, checksum, (run,))
        self.sequence += count
        stored.extend(payloads)
        self.times.setdefault(topic, []).extend([self.clock] * count)
        assert self.log.has_room(len(body), now_ms=0)
        self.log.append(record, body, seed=seed, checksum=checksum)

    @rule(cursor=st.integers(0, 2**40))
    def state_a_fact(self, cursor: int) -> None:
        self.log.append(CursorMoved(TopicId(7), ClientId("c"), Offset(cursor)))

    @rule()
    def commit(self) -> None:
        group = self.log.take_group()
        if group is not None:
            self.log.write(group)
            assert self.log.finished(group) == self.log.last_serial == self.log.durable_serial
        self.finished = {topic: len(stored) for topic, stored in self.messages.items()}

    @rule()
    def checkpoint(self) -> None:
        self.commit()
        self.blob = b"state at %d" % self.log.last_serial
        writer = self.log.begin_checkpoint()
        writer.add(self.blob)
        job = writer.finish()
        job.run()
        self.log.complete(job)
        job.clean()

    @rule(topic=TOPICS, share=st.floats(0, 1))
    def settle(self, topic: int, share: float) -> None:
        self.low[topic] = max(self.low.get(topic, 0), int(share * self.finished.get(topic, 0)))

    @rule()
    def compact(self) -> None:
        job = self.log.plan(lambda topic: LiveShare(f"t{topic}", self.low.get(topic, 0)))
        if job is not None:
            job.run()
            self.log.complete(job)
            job.clean()

    @rule()
    def reopen(self) -> None:
        """What was not committed is gone: it was never promised."""
        last = self.log.durable_serial
        self.log.close()
        self.opened = self.open()
        assert self.log.last_serial == last
        assert self.opened.states == ([self.blob] if self.blob else [])
        serials = [serial for serial, _ in self.opened.replay]
        assert serials == list(range(last - len(serials) + 1, last + 1))
        for topic, count in self.finished.items():
            del self.messages[topic][count:]
            del self.times[topic][count:]
        for topic in self.messages.keys() - self.finished.keys():
            del self.messages[topic]
            del self.times[topic]

    @precondition(lambda self: bool(self.finished))
    @rule(data=st.data(), limit=st.integers(1, 50))
    def read_some(self, data: st.DataObject, limit: int) -> None:
        topic = data.draw(st.sampled_from(sorted(self.finished)))
        low, end = self.low.get(topic, 0), self.finished[topic]
        offset = data.draw(st.integers(low, end))
        found = self.log.read_many(TopicId(topic), offset, count_max=limit, bytes_max=1 << 20)
        payloads: list[bytes] = []
        for stored in found:
            payloads += batch.payloads_of(stored.body, stored.record.count, stored.record.columns)
        skipped = offset - found[0].record.first_offset if found else 0
        wanted = self.messages[topic][offset:end]
        assert payloads[skipped:][:limit] == wanted[:limit]
        if offset < end:
            time = self.times[topic][offset]
            first = self.times[topic].index(time)
            at = self.log.offset_at(TopicId(topic), time)
            assert at == first or (first < low and at is not None and at <= offset)

    @invariant()
    def everything_finished_is_there(self) -> None:
        for topic, end in self.finished.items():
            offset = self.low.get(topic, 0)
            while offset < end:
                place = self.log.find(TopicId(topic), offset)
                assert place is not None
                stored = self.log.read(place, verify=True)
                record = stored.record
                assert record.first_offset <= offset < record.first_offset + record.count
                payloads = batch.payloads_of(stored.body, record.count, record.columns)
                start = record.first_offset
                assert payloads == self.messages[topic][start : start + record.count]
                offset = start + record.count

    def teardown(self) -> None:
        self.log.close()
        shutil.rmtree(self.directory)


TestLog = LogMachine.TestCase
TestLog.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
