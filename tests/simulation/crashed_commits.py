"""Stages and commits on a server that crashes, and a ledger of what was asked and answered.

Each deal n takes message n of `in` and publishes two messages to `kept` and one to `read`, under
number n. Law: a deal that was answered is there; one that was not is there whole, or not at all;
none is there twice; nothing of a stage is seen without its commit; the cursor on `in` stands
behind exactly the deals that are there.
"""

from dataclasses import dataclass, field, replace
from typing import Any

from oncemq.protocol.names import ClientId, Epoch, Offset, ProducerId, Sequence
from oncemq.protocol.records import Retention
from oncemq.protocol.replies import CommitDone, RefusedReply, StagedReply
from oncemq.protocol.requests import (
    CommitRequest,
    CreateTopic,
    Hello,
    Input,
    Piece,
    Settle,
    Settled,
    StagePut,
    Subscribe,
)
from oncemq.storage.log.log import LogOptions
from oncemq.testing.faulty_disk import FaultyDisk
from oncemq.wire import batch
from tests.simulation.crashed_server import Ledger, Machine

JOB = ClientId("job")
OWNER = "pipeline"
SHARED = ProducerId(b"shared stage....")


@dataclass(eq=False)
class Deal:
    """One commit, and what its stage holds."""

    number: int
    stage: ProducerId
    start: int
    payloads: list[bytes]
    closing: bool
    asked: bool = False
    done: CommitDone | None = None


@dataclass(eq=False)
class Book:
    """Everything that was asked and everything that was answered."""

    deals: list[Deal] = field(default_factory=list[Deal])
    epoch: int = 0
    subscription: int = 0
    reading: int = 0  # the subscription on `read`
    settled: int = 0  # of `read`, answered
    inputs: int = 0  # messages of `in`, answered
    shared: int = 0  # messages in the shared stage

    def copy(self) -> "Book":
        return replace(self, deals=[replace(deal) for deal in self.deals])


class Dealer(Machine):
    """A server driven by hand, and the one client whose commits are watched."""

    options = LogOptions(
        stages_kept=0,
        segment_bytes=16384,
        allocate_bytes=8192,
        reserve_bytes=256,
        checkpoint_records=30,
        checkpoint_idle_ms=1,
    )

    def __init__(self, disk: FaultyDisk, book: Book, now: int = 10**9) -> None:
        self.book = book
        super().__init__(disk, Ledger(), now)

    def begin(self) -> None:
        book = self.book
        book.epoch = self.now_and(Hello(JOB, Epoch(0), 5)).client_epoch
        book.subscription = self._subscribe("in")
        book.reading = self._subscribe("read")
        self.now_and(CreateTopic("kept", Retention(forever=True)))

    def _subscribe(self, topic: str) -> int:
        return self.now_and(Subscribe(JOB, Epoch(self.book.epoch), topic)).subscription_id

    def feed(self, count: int) -> None:
        """More inputs."""
        for _ in range(count):
            self.put("in", b"p", 1, 3000)
            self.commit()
            self.book.inputs += 1

    def deal(self, size: int = 60, *, shared: bool = False) -> None:
        """The next deal: staged, committed, made durable, answered."""
        book, number = self.book, len(self.book.deals)
        payloads = [b"%d.%d %s" % (number, n, b"x" * size) for n in range(2)]
        stage = SHARED if shared else ProducerId(b"stage %d" % number + b"." * 9)[:16].ljust(16)
        start = book.shared if shared else 0
        deal = Deal(number, ProducerId(stage), start, payloads, closing=not shared)
        if shared:
            book.shared += 2
        book.deals.append(deal)
        self.carry_out(deal)

    def carry_out(self, deal: Deal) -> None:
        """Ask for it, maybe once more."""
        deal.asked = True
        body = batch.encode_payloads(deal.payloads)
        first = deal.start + 1
        checksum = batch.checksum(body, batch.seed("", deal.stage, first, 2))
        epoch = Epoch(self.book.epoch)
        put = StagePut(JOB, epoch, deal.stage, Sequence(first), 2, 0, checksum)
        self.ask(put, self._staged, body)
        pieces = (
            Piece("kept", deal.stage, Offset(deal.start), 2),
            Piece("read", deal.stage, Offset(deal.start + 1), 1),
        )
        place = deal.number
        taken = Input("in", self.book.subscription, Offset(place), Offset(place + 1))  # type: ignore[arg-type]
        commit = CommitRequest(JOB, epoch, OWNER, place + 1, True, pieces, (taken,), deal.closing)

        def done(reply: Any) -> None:
            assert isinstance(reply, CommitDone), reply
            deal.done = reply

        self.ask(commit, done)
        self.commit()

    @staticmethod
    def _staged(reply: Any) -> None:
        closed = isinstance(reply, RefusedReply) and reply.code in ("stage_unknown", "sequence_gap")
        assert isinstance(reply, StagedReply) or closed, reply

    def settle_read(self, cursor: int) -> None:
        moved = (Settled("read", self.book.reading, Offset(cursor)),)  # type: ignore[arg-type]
        self.now_and(Settle(JOB, Epoch(self.book.epoch), moved))
        self.book.settled = cursor

    def orphan(self, size: int) -> None:
        """A stage that is never committed."""
        name = ProducerId(b"orphan %d" % self.token + b"." * 16)[:16]
        body = batch.encode_payloads([b"orphan" + b"x" * size])
        checksum = batch.checksum(body, batch.seed("", name, 1, 1))
        put = StagePut(JOB, Epoch(self.book.epoch), ProducerId(name), Sequence(1), 1, 0, checksum)
        self.ask(put, self._staged, body)

    # after a crash

    def check(self) -> dict[str, list[bytes]]:
        """Hold what is there against the book."""
        found = {each.name: each for each in self.found().values()}
        if "kept" not in found:
            assert not self.book.deals
            return {}
        kept = [found["kept"].messages[n] for n in sorted(found["kept"].messages)]
        there = [int(payload.partition(b".")[0]) for payload in kept[::2]]
        expected = [payload for n in there for payload in self.book.deals[n].payloads]
        assert kept == expected, "torn, repeated or reordered"
        assert there == list(range(len(there))), there
        answered = [deal.number for deal in self.book.deals if deal.done is not None]
        assert len(there) >= len(answered), "an answered commit is lost"
        assert found["in"].cursors[JOB][1] == len(there), "cursor and outputs differ"
        low = found["read"].cursors[JOB][1]
        assert low >= self.book.settled
        read = [found["read"].messages[n] for n in sorted(found["read"].messages)]
        assert read == [self.book.deals[n].payloads[1] for n in there[low:]]
        return {"kept": kept, "read": read}

    def go_on(self) -> None:
        """What a client does after a crash: everything that is open once more, and the next."""
        for deal in [each for each in self.book.deals if each.done is None]:
            self.carry_out(deal)
        if self.book.deals:  # one that was answered, too
            self.carry_out(self.book.deals[-1])
            assert self.book.deals[-1].done is not None
            assert self.book.deals[-1].done.already
        self.check()
