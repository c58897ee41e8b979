# Generated from client/aio/columns.py by tools/unasync.py; do not edit.
"""The verbs of the blocking client for readers that keep their own cursor; see `verbs.columns`."""

from collections.abc import Generator, Sequence

from oncemq.client.blocking.base import BaseClient
from oncemq.client.verbs.columns import ColumnBatch, RangeRead, leasing, settling, watching
from oncemq.protocol.replies import Ends, TopicEnd
from oncemq.protocol.requests import Settled


class Columnar(BaseClient):
    """What `Client` reads ranges with."""

    def read_columns(self, topic: str, start: int, stop: int) -> Generator[ColumnBatch]:
        """Stored messages from `start` up to `stop` as the batches they are stored in.

        The first and the last are cut to the range. Settles nothing; ends early where the topic
        does; raises RangeLost at a hole. Made for much at once: a batch is one `bytes`, and the
        next ones come while these are worked on.
        """
        wanted = RangeRead(self._engine, topic, start=start, stop=stop)
        if wanted.is_over:
            return
        try:
            self._ask(wanted)
            while not wanted.is_over:
                ticket = wanted.ticket
                self._turns.wait_until(lambda t=ticket: t.done, None, wanted.place)
                found = wanted.came()
                if not wanted.is_over:
                    self._ask(wanted)
                yield from found
        finally:
            self._turns.change(wanted.drop)

    def ends(self, topics: Sequence[tuple[str, int]], *, wait: float = 0.0) -> list[TopicEnd]:
        """Where these topics begin and end; one that is not there is left out.

        With `wait`, as soon as one of them does not end at the offset given with it.
        """
        watched = self.watch(topics, wait=wait)
        return list(watched.topics)

    def watch(
        self, topics: Sequence[tuple[str, int]], *, wait: float = 0.0, generation: int = 0
    ) -> Ends:
        """As `ends`, with the generation of the server's log, and (`generation`) since when the
        offsets of a reader that knows that one mean other messages."""
        verb = watching(self._engine, topics, wait, generation)
        return self._turns.run(verb, timeout=self._timeout + wait)

    def lease(self, seconds: float, about: str = "") -> bool:
        """End this client's subscriptions when it does not ask so again in time; 0: keep them.

        True when the server wrote it down; a renewal is written now and then only.
        """
        return self._turns.run(leasing(self._engine, seconds, about))

    def settle_below(self, settled: Sequence[Settled]) -> bool:
        """Everything below these cursors took effect elsewhere; False when that was known."""
        return self._turns.run(settling(self._engine, settled))

    def _ask(self, wanted: RangeRead) -> None:
        with self._turns.lock:
            wanted.ask()
            self._turns.pump()
