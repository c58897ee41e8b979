"""`put --lines`: many messages, a bounded number of batches on the way at a time.

Law: the count that is reported is the count that was answered. When no server answers, a client
with an id goes on recording until the input ends, so that nothing of it is lost; without one the
put stops, and says which lines are in doubt.
"""

import sys
from collections import deque
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from oncemq.cli.messages.put_failures import not_stored, unreachable
from oncemq.cli.terminal import output
from oncemq.cli.terminal.lines import Lines, LineSource, batches
from oncemq.cli.terminal.progress import Progress
from oncemq.cli.terminal.session import CommandSession
from oncemq.errors import OnceMQError, Unreachable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oncemq import Client, Receipt
    from oncemq.client.pending import Pending
    from oncemq.client.values import Receipts

BATCHES_MAX = 16  # on the way at a time, 1 MiB each


@dataclass(slots=True)
class BulkTally:
    """What became of the messages."""

    topic: str
    put: int = 0
    stored: int = 0
    unstored: int = 0
    duplicates: int = 0
    at_risk_ms: int = 0

    def add(self, receipts: "Sequence[Receipt]") -> None:
        """Count the answers to one batch, which are all alike but for the offset."""
        first, count = receipts[0], len(receipts)
        self.stored += count * first.stored
        self.unstored += count * (not first.stored)
        self.duplicates += count * first.duplicate
        self.at_risk_ms = first.at_risk_ms

    @property
    def unanswered(self) -> int:
        """Messages that no receipt came for."""
        return self.put - self.stored - self.unstored


class Bulk:
    """The batches of one `put --lines`, from the first to the last receipt."""

    def __init__(self, client: "Client", topic: str, *, timeout: float, recorded: bool) -> None:
        self._client = client
        self._timeout = timeout
        self._recorded = recorded  # whether an outbox remembers what is not answered
        self._pending: deque[tuple[Lines, Pending[Receipts]]] = deque()
        self.tally = BulkTally(topic)
        self.offline: Unreachable | None = None
        self.stopped: tuple[OnceMQError, Lines] | None = None

    def add(self, lines: Lines) -> None:
        """Put a batch; waits only while too many are on the way."""
        try:
            pending = self._client.put_many(self.tally.topic, lines.payloads, wait=False)
        except OnceMQError as error:
            self.stopped = (error, lines)
            return
        self.tally.put += len(lines.payloads)
        if self.offline is None:
            self._pending.append((lines, pending))
            if len(self._pending) > BATCHES_MAX:
                self._settle()

    def finish(self) -> None:
        """Wait for the receipts that are out."""
        while self._pending:
            self._settle()

    def _settle(self) -> None:
        lines, pending = self._pending.popleft()
        try:
            self.tally.add(pending.result(self._timeout))
        except Unreachable as error:
            self._pending.clear()  # each of them would wait as long again, for the same
            if self._recorded:
                self.offline = error
            else:
                self.stopped = self.stopped or (error, lines)
        except OnceMQError as error:
            self.stopped = self.stopped or (error, lines)


def put_lines(session: CommandSession, topic: str, source: LineSource) -> None:
    """Put one message a line and answer with the count."""
    recorded = session.config.id is not None
    size = source.size
    with session.publisher() as client, Progress("put", sys.stderr) as progress:
        bulk = Bulk(client, topic, timeout=session.config.timeout, recorded=recorded)
        for lines in batches(source):
            bulk.add(lines)
            progress.update(bulk.tally.put, lines.position / size if size else None)
            if bulk.stopped:
                break
        bulk.finish()
        tally = bulk.tally
        if bulk.stopped:
            raise _how_far(tally, *bulk.stopped)
        if bulk.offline:  # raised in here, so that closing does not wait for the server again
            raise unreachable(session, bulk.offline, tally.unanswered)
    _answer(session, tally)


def _answer(session: CommandSession, tally: BulkTally) -> None:
    if not tally.put:
        session.answer(asdict(tally), "nothing to put")
        return
    stored = f"{output.counted(tally.stored, 'message')} stored in '{tally.topic}'"
    twice = f"; {output.counted(tally.duplicates, 'duplicate')} absorbed" * bool(tally.duplicates)
    session.answer(asdict(tally), stored + twice)
    if tally.unstored:
        raise not_stored(tally.topic, f"{output.counted(tally.unstored, 'message')} not stored")
    if tally.at_risk_ms and not session.json:
        session.note(f"once: synced within {tally.at_risk_ms} ms; a power cut could take the last")


def _how_far(tally: BulkTally, error: OnceMQError, lines: Lines) -> OnceMQError:
    """The same error, with the line it stopped at and what is stored."""
    first = lines.first
    stored = f"{output.counted(tally.stored, 'message')} stored"
    if isinstance(error, Unreachable):
        error.add_note(f"{stored}; from line {first:,} on, that is not known; --id leaves no doubt")
        return error
    sizes = [len(payload) for payload in lines.payloads]
    at = first + sizes.index(max(sizes)) if error.code == "too_large" else first
    told = type(error)(f"line {at:,}: {error.detail}", code=error.code)
    told.add_note(f"{stored}; to go on, begin with line {first:,}")
    return told
