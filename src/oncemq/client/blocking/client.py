"""The blocking client: the engine under a lock, moved by whichever thread waits.

Law: no verb leaves the engine half-way: an interrupt ends the wait, never the state.
"""

from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from oncemq.client.blocking.columns import Columnar
from oncemq.client.blocking.puts import Publishing
from oncemq.client.blocking.runner import Runner
from oncemq.client.checks import wait_ms_of
from oncemq.client.shell.handouts import Handout, Handouts
from oncemq.client.shell.opening import open_engine
from oncemq.client.state.state import State
from oncemq.client.values import Message
from oncemq.client.verbs import messages as verbs
from oncemq.client.verbs.messages import Where
from oncemq.errors import OnceMQError, Unreachable
from oncemq.protocol.records import Retention
from oncemq.protocol.replies import SubscriptionInfo, TopicInfo, TopicShown
from oncemq.session.inbox_rule import Inbox
from oncemq.session.subscriber import several

AWAY_SECONDS = 2.0  # a close waits no longer for a server that is away, if the outbox has it all


class Client(Publishing, Columnar):
    """A publisher and subscriber. Threads may share it; `with` closes it.

    With an `id` it has state on disk: its puts survive its crashes, its cursors too. Without,
    it is anonymous: it lasts as long as its process. Without a `server`, ONCEMQ_SERVER names it, or
    it is the one at tcp://127.0.0.1:5556.
    """

    def __init__(
        self,
        server: str | Sequence[str] = "",
        *,
        id: str | None = None,
        state: str | Path | State | None = None,
        timeout: float = 30.0,
        outbox_bytes_max: int = 256 << 20,
    ) -> None:
        self._engine = open_engine(
            server, id, state, timeout=timeout, outbox_bytes_max=outbox_bytes_max
        )
        self._timeout = timeout
        self._turns = Runner(self._engine, timeout)
        self._inbox = Inbox(self._engine.losses.over)
        self._handouts = Handouts(self._engine.subscriber.has)
        if not self._engine.outflow.idle:
            self._turns.see_out()

    @property
    def id(self) -> str:
        """The client's id; a made-up one when it is anonymous."""
        return self._engine.client

    @property
    def unsent(self) -> int:
        """Messages put that have no receipt yet."""
        return self._engine.outflow.unsent

    @property
    def counters(self) -> dict[str, int]:
        """Requests sent (retries included), and duplicates the server recognized."""
        engine = self._engine
        return {"sends": engine.exchanges.sends, "duplicates": engine.outflow.duplicates}

    def __repr__(self) -> str:
        closed = " closed" if self._turns.closed else ""
        return f"<Client {self.id!r} of {self._engine.address}{closed}>"

    # Subscribing

    def subscribe(self, topic: str, *, start: Where = "new") -> bool:
        """Subscribe from now on (or from 'earliest', an offset, a time); False: already so.

        When the answer was lost on its way and the client asked again, False may be said of a
        subscription that this very call has made. Either way there is one when it returns.
        """
        return self._turns.run(verbs.subscribe(self._engine, topic, start))

    def unsubscribe(self, topic: str) -> bool:
        """End the subscription; False when there was none."""
        return self._turns.run(verbs.unsubscribe(self._engine, topic))

    def unsubscribe_all(self) -> int:
        """End every subscription of this client; how many there were."""
        return self._turns.run(verbs.unsubscribe_all(self._engine))

    def get(self, topic: str | None = None, *, limit: int = 1, wait: float = 0.0) -> list[Message]:
        """The next messages of a topic, or of any subscribed one, oldest first; [] when none.

        They are settled: recorded on this client's disk before they are returned, and never
        given again.
        """
        feed, handout = topic or "", Handout()
        messages: list[Message] = []
        try:
            with self._turns.getting.block(feed):
                messages = self._hand_out(handout, feed, limit, wait)
            handout.messages = []
            return messages  # from here to the caller Python runs no signal handler
        except BaseException:
            handout.messages = messages or handout.messages
            handout.came_back = True
            raise

    @contextmanager
    def consume(
        self,
        topic: str | None = None,
        *,
        limit: int = 100,
        wait: float = 5.0,
        into: object | None = None,
    ) -> Generator[list[Message]]:
        """Messages that are settled when the block ends well, and come again when it raises.

        `into`: a connection to your own database, on which the block is one transaction: what
        you write there and the cursor are committed together, exactly once.
        """
        feed = topic or ""
        with self._turns.getting.block(feed), self._put_back_unless_settled(feed):
            if into is not None:
                with self._block(into, topic=feed, limit=limit, wait=wait) as messages:
                    yield messages
                return
            handout = Handout()
            if self._left_over(handout, feed, limit):
                try:
                    yield handout.messages
                    handout.messages = []
                finally:
                    handout.came_back = True
                return
            messages = self._take(feed, limit, wait)
            yield messages
            with self._turns.lock:
                verbs.settle(self._engine, messages)

    def listen(self, *topics: str, wait: float = 20.0) -> Generator[Message]:
        """Messages as they come, without end; each is settled when the next is asked for.

        They are pushed by the server, and pulled where that misses something. With one topic,
        that one; with several, each must be subscribed; with none, any.
        """
        engine, listening, lock = self._engine, self._engine.listening, self._turns.lock
        # Where settling writes nothing a signal has nothing to tear, and the shield costs the most.
        settling = lock if engine.state.lasting else lock.plain
        engine.check_own()
        try:
            while not self._turns.closed:
                with self._turns.getting.block(several(topics)):
                    try:
                        yield from self._handouts.one_by_one(several(topics))
                        taking = listening.take(topics, 100, wait_ms_of(wait))
                        taken = self._turns.run(taking, timeout=self._timeout + wait)
                        # Asked before each: an unsubscribe may come between two of them (G6).
                        for message in filter(engine.subscriber.has, taken):
                            yield message
                            with settling:
                                verbs.settle_one(engine, message)
                    except BaseException:
                        # Inside the block: who gets next must find what was not handed out.
                        with lock:
                            listening.put_back(topics)
                        raise
        finally:
            with lock:
                listening.leave(topics)
                self._turns.pump()

    def read(self, topic: str, offset: int, *, limit: int = 100) -> list[Message]:
        """Stored messages from an offset on, without a subscription; settles nothing."""
        return self._turns.run(verbs.read(self._engine, topic, offset, limit))

    # Topics and the server

    def topics(self) -> list[TopicInfo]:
        """Every topic of the server."""
        return self._turns.run(verbs.topics(self._engine))

    def topic(self, name: str) -> TopicShown:
        """One topic, its subscriptions, and why what it holds is kept."""
        return self._turns.run(verbs.topic(self._engine, name))

    def create_topic(self, name: str, retention: Retention | None = None) -> bool:
        """Make a topic; False when it was there."""
        return self._turns.run(verbs.create_topic(self._engine, name, retention or Retention()))

    def configure_topic(self, name: str, retention: Retention) -> bool:
        """Change what a topic keeps; False when it was so already."""
        return self._turns.run(verbs.configure_topic(self._engine, name, retention))

    def delete_topic(self, name: str) -> bool:
        """Delete a topic, its messages, subscriptions and numbers."""
        return self._turns.run(verbs.delete_topic(self._engine, name))

    def subscriptions(
        self, topic: str | None = None, client: str | None = None
    ) -> list[SubscriptionInfo]:
        """Subscriptions with their cursors."""
        return self._turns.run(verbs.subscriptions(self._engine, topic, client))

    def status(self) -> dict[str, str | int | float | bool]:
        """The server's counters and promises."""
        return self._turns.run(verbs.status(self._engine))

    # Ending

    def close(self) -> None:
        """Send what is unsent, tell what is settled, let go; the outbox keeps what cannot leave.

        Raises what a put that nobody looked at met, as `flush` does.
        """
        self._close(self._timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close(self._timeout if kind is None else 0.0)

    # Inside

    def _close(self, timeout: float) -> None:
        if self._turns.closed:
            return
        engine = self._engine
        lost: OnceMQError | None = None
        try:
            if timeout > 0:
                lost = self._last_words(timeout)
        finally:
            self._turns.close()
            with self._turns.lock:
                engine.close()
        if lost is not None:
            raise lost

    def _last_words(self, timeout: float) -> OnceMQError | None:
        outflow = self._engine.outflow
        try:
            if not self._engine.connected and not outflow.unrecorded:
                timeout = min(timeout, AWAY_SECONDS)
            self._turns.wait_until(lambda: outflow.idle, timeout, "the last puts")
            self._turns.run(verbs.leave(self._engine), timeout=min(timeout, 2.0))
        except Unreachable as unreachable:
            return unreachable if outflow.unrecorded else None
        except OnceMQError:
            pass  # it is done for: what became of its puts is all there is to say
        return outflow.take_failure()

    @contextmanager
    def _put_back_unless_settled(self, topic: str) -> Generator[None]:
        """What was taken and did not take effect comes again, whatever ended the block."""
        try:
            yield
        except BaseException:
            with self._turns.lock:
                self._engine.subscriber.put_back(topic)
            raise

    def _hand_out(self, handout: Handout, feed: str, limit: int, wait: float) -> list[Message]:
        """Settle messages to be returned, after those that an interrupted get has left."""
        if self._left_over(handout, feed, limit):
            return handout.messages
        with self._put_back_unless_settled(feed):
            messages = self._take(feed, limit, wait)
            with self._turns.lock:
                verbs.settle(self._engine, messages)
                self._handouts.settled(handout, messages)
        return messages

    def _left_over(self, handout: Handout, feed: str, limit: int) -> bool:
        """Whether an interrupted get has left something; it is in the handout then."""
        with self._turns.lock:
            messages = self._handouts.take(feed, limit)
            self._handouts.again(handout, messages)
        return bool(messages)

    def _take(self, feed: str, limit: int, wait: float) -> list[Message]:
        verb = verbs.take(self._engine, feed, limit, wait_ms_of(wait))
        return self._turns.run(verb, timeout=self._timeout + wait)

    def _block(
        self, into: object, *, topic: str, limit: int, wait: float
    ) -> AbstractContextManager[list[Message]]:
        from oncemq.client.shell.inbox_blocks import block  # loaded by those who use it

        return block(self._turns, self._engine, self._inbox, into, topic, limit, wait=wait)
