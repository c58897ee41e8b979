# Generated from client/aio/client.py by tools/unasync.py; do not edit.
"""The blocking client: its verbs about subscriptions, messages and topics, and all the others."""

from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from functools import partial

from oncemq.client.blocking.columns import Columnar
from oncemq.client.blocking.listener import Owner, listener
from oncemq.client.blocking.puts import Publishing
from oncemq.client.checks import wait_ms_of
from oncemq.client.shell.handouts import Handout
from oncemq.client.values import Message
from oncemq.client.verbs import messages as verbs
from oncemq.client.verbs.messages import Where
from oncemq.protocol.records import Retention
from oncemq.protocol.replies import SubscriptionInfo, TopicInfo, TopicShown
from oncemq.session.prefetched import several


class Client(Publishing, Columnar):
    """A publisher and subscriber that threads may share; `with` closes it.

    With an `id` it has state on disk: its puts survive its crashes, its cursors too. Without,
    it is anonymous: it lasts as long as its process. Without a `server`, ONCEMQ_SERVER names it, or
    it is the one at tcp://127.0.0.1:5556.
    """

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
        with self._turns.getting.block(feed):
            try:
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
            except BaseException:
                self._put_back(feed)
                raise

    def listen(self, *topics: str, wait: float = 20.0) -> Generator[Message]:
        """Messages as they come, without end; each is settled when the next is asked for.

        They are pushed by the server, and pulled where that misses something. With one topic,
        that one; with several, each must be subscribed; with none, any.

        It is over when you leave the loop. Where you keep the iterator, close it
        (`contextlib.closing` does): until then its topics cannot be got from.
        """
        return listener(partial(self._listen, topics, wait))

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

    # Inside

    def _listen(
        self, topics: tuple[str, ...], wait: float, owner: Owner | None
    ) -> Generator[Message]:
        engine, listening, lock = self._engine, self._engine.listening, self._turns.lock
        feed, given_up = several(topics), False
        # Where settling writes nothing a signal has nothing to tear, and the shield costs the most.
        settling = lock if engine.state.lasting else lock.plain

        def give_up() -> None:
            nonlocal given_up
            if not given_up:
                given_up = True
                listening.put_back(topics)
                listening.leave(topics)

        def leave() -> None:
            if not given_up:
                listening.leave(topics)
            self._turns.pump()

        engine.check_open()
        try:
            while not self._turns.closed:
                with self._turns.getting.block(feed, owner, give_up):
                    try:
                        for message in self._handouts.one_by_one(feed):
                            yield message
                        taking = listening.take(topics, 100, wait_ms_of(wait))
                        taken = self._turns.run(taking, timeout=self._timeout + wait)
                        # Asked before each: an unsubscribe may come between two of them (G6).
                        for message in filter(engine.subscriber.cursors.has, taken):
                            yield message
                            with settling:
                                verbs.settle_one(engine, message)
                    except BaseException:
                        # Inside the block: who gets next must find what was not handed out. Not
                        # twice: when somebody else gave it up, others have got from it by now.
                        self._turns.change(give_up)
                        raise
        finally:
            self._turns.change(leave)

    def _hand_out(self, handout: Handout, feed: str, limit: int, wait: float) -> list[Message]:
        """Settle messages to be returned, after those that an interrupted get has left."""
        if self._left_over(handout, feed, limit):
            return handout.messages
        try:
            messages = self._take(feed, limit, wait)
            with self._turns.lock:
                verbs.settle(self._engine, messages)
                self._handouts.settled(handout, messages)
        except BaseException:
            self._put_back(feed)
            raise
        return messages

    def _left_over(self, handout: Handout, feed: str, limit: int) -> bool:
        """Whether an interrupted get has left something; it is in the handout then."""
        with self._turns.lock:
            messages = self._handouts.take(feed, limit)
            self._handouts.again(handout, messages)
        return bool(messages)

    def _put_back(self, feed: str) -> None:
        """What was taken and did not take effect comes again."""
        self._turns.change(partial(self._engine.subscriber.prefetched.put_back, feed))

    def _take(self, feed: str, limit: int, wait: float) -> list[Message]:
        verb = verbs.take(self._engine, feed, limit, wait_ms_of(wait))
        return self._turns.run(verb, timeout=self._timeout + wait)

    def _block(
        self, into: object, *, topic: str, limit: int, wait: float
    ) -> AbstractContextManager[list[Message]]:
        from oncemq.client.blocking.inbox_blocks import block  # loaded by those who use it

        return block(self._turns, self._engine, self._inbox, into, topic, limit, wait=wait)
