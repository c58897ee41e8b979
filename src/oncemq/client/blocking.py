"""The blocking client: the engine under a lock, moved by whichever thread waits.

Law: no verb leaves the engine half-way: an interrupt ends the wait, never the state.
"""

import random
import select
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, overload

from oncemq.client import verbs
from oncemq.client.engine import Engine
from oncemq.client.pending import Pending, all_of, one
from oncemq.client.settings import DEFAULT_SERVER, Settings, servers_from
from oncemq.client.state import State
from oncemq.client.ticket import Ticket
from oncemq.client.values import Headers, Message, Receipt, Receipts
from oncemq.client.verbs import Verb, Where
from oncemq.core.names import Micros
from oncemq.core.records import Retention
from oncemq.core.replies import SubscriptionInfo, TopicInfo, TopicShown
from oncemq.errors import OnceMQError, OutboxFull, Unreachable
from oncemq.wire import batch

T = TypeVar("T")

IDLE_SECONDS = 0.2  # how often a waiting thread looks up even when nothing comes
FLOW_BYTES = 32 << 20  # unsent puts over this make `put(wait=False)` take its time


def monotonic_clock() -> Micros:
    """Microseconds that never go back; for waiting, not for telling the time."""
    return Micros(time.monotonic_ns() // 1000)


class Client:
    """A publisher and subscriber. Threads may share it; `with` closes it.

    With an `id` it has state on disk: its puts survive its crashes, its cursors too. Without,
    it is anonymous: it lasts as long as its process.
    """

    def __init__(
        self,
        server: str | Sequence[str] = DEFAULT_SERVER,
        *,
        id: str | None = None,
        state: str | Path | None = None,
        timeout: float = 30.0,
        outbox_bytes_max: int = 256 << 20,
    ) -> None:
        settings = Settings(servers_from(server), timeout, outbox_bytes_max, random.random)
        self._state = State(id, state)
        try:
            self._engine = Engine(settings, self._state, monotonic_clock)
        except BaseException:
            self._state.close()
            raise
        self._timeout = timeout
        self._turn = threading.Condition(threading.RLock())
        self._waiting = False  # a thread is in select
        self._getting = threading.RLock()
        self._closed = False
        self._sender: threading.Thread | None = None
        if not self._engine.outflow.idle:
            self._start_sender()

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

    # Publishing

    @overload
    def put(
        self, topic: str, payload: bytes, *, key: bytes | None = ..., headers: Headers | None = ...,
        durable: bool = ..., wait: Literal[True] = ...,
    ) -> Receipt: ...  # fmt: skip
    @overload
    def put(
        self, topic: str, payload: bytes, *, key: bytes | None = ..., headers: Headers | None = ...,
        durable: bool = ..., wait: bool,
    ) -> Receipt | Pending[Receipt]: ...  # fmt: skip
    def put(
        self,
        topic: str,
        payload: bytes,
        *,
        key: bytes | None = None,
        headers: Headers | None = None,
        durable: bool = True,
        wait: bool = True,
    ) -> Receipt | Pending[Receipt]:
        """Put a message; its receipt, once the server has it on disk.

        `wait=False` returns at once and gathers single puts into batches by itself;
        `durable=False` skips the outbox: a crash of this process may then lose the put.
        """
        outflow = self._engine.outflow
        item = batch.Item(payload_of(payload), key, headers)
        with self._turn:
            self._room_for(topic, len(item.payload))
            if not wait:
                ticket, place, full = outflow.gather(topic, item, lasting=durable)
                if full:
                    self._pump()
                self._start_sender()
                return Pending(ticket, one(place), self._receipts)
            columns, body = batch.encode([item])
            ticket = outflow.put(topic, count=1, columns=columns, body=body, lasting=durable)
        return self._receipts(ticket, None)[0]

    @overload
    def put_many(
        self, topic: str, payloads: Sequence[bytes], *, keys: Sequence[bytes | None] | None = ...,
        headers: Sequence[Headers | None] | None = ..., durable: bool = ...,
        wait: Literal[True] = ...,
    ) -> Receipts: ...  # fmt: skip
    @overload
    def put_many(
        self, topic: str, payloads: Sequence[bytes], *, keys: Sequence[bytes | None] | None = ...,
        headers: Sequence[Headers | None] | None = ..., durable: bool = ..., wait: bool,
    ) -> Receipts | Pending[Receipts]: ...  # fmt: skip
    def put_many(
        self,
        topic: str,
        payloads: Sequence[bytes],
        *,
        keys: Sequence[bytes | None] | None = None,
        headers: Sequence[Headers | None] | None = None,
        durable: bool = True,
        wait: bool = True,
    ) -> Receipts | Pending[Receipts]:
        """Put a batch: one request, one record, stored whole or not at all."""
        if not payloads:
            return Receipts(Receipt(topic, None, stored=False, duplicate=False), 0)
        columns, body = encode_many(payloads, keys, headers)
        with self._turn:
            self._room_for(topic, max(map(len, payloads)), len(body))
            outflow = self._engine.outflow
            ticket = outflow.put(
                topic, count=len(payloads), columns=columns, body=body, lasting=durable
            )
            if not wait:
                self._pump()
                self._start_sender()
                return Pending(ticket, all_of, self._receipts)
        return self._receipts(ticket, None)

    def flush(self, timeout: float | None = None) -> None:
        """Wait until every put has its answer; raises what a put that nobody looked at met."""
        outflow = self._engine.outflow
        self._wait_until(lambda: outflow.idle, timeout, "the puts made so far")
        error = outflow.take_failure()
        if error is not None:
            raise error

    # Subscribing

    def subscribe(self, topic: str, *, start: Where = "new") -> bool:
        """Subscribe from now on (or from 'earliest', an offset, a time); False: already so."""
        return self._run(verbs.subscribe(self._engine, topic, start))

    def unsubscribe(self, topic: str) -> bool:
        """End the subscription; False when there was none."""
        return self._run(verbs.unsubscribe(self._engine, topic))

    def unsubscribe_all(self) -> int:
        """End every subscription of this client; how many there were."""
        return self._run(verbs.unsubscribe_all(self._engine))

    def get(
        self, topic: str | None = None, *, limit: int = 1, wait: float = 0.0
    ) -> list[Message]:
        """The next messages of a topic, or of any subscribed one, oldest first; [] when none.

        They are settled: recorded on this client's disk before they are returned, and never
        given again.
        """
        with self._getting:
            messages = self._take(topic, limit, wait)
            with self._turn:
                verbs.settle(self._engine, messages)
            return messages

    @contextmanager
    def consume(
        self, topic: str | None = None, *, limit: int = 100, wait: float = 5.0
    ) -> Iterator[list[Message]]:
        """Messages that are settled when the block ends well, and come again when it raises."""
        with self._getting:
            messages = self._take(topic, limit, wait)
            try:
                yield messages
            except BaseException:
                with self._turn:
                    self._engine.subscriber.put_back(topic or "")
                raise
            with self._turn:
                verbs.settle(self._engine, messages)

    def listen(self, *topics: str, wait: float = 20.0) -> Iterator[Message]:
        """Messages as they come, without end; each is settled when the next is asked for.

        With one topic, that one; with several, each must be subscribed; with none, any.
        """
        topic = topics[0] if len(topics) == 1 else None
        wanted = set(topics) if len(topics) > 1 else None
        while not self._closed:
            with self._getting:
                messages = self._take(topic, 100, wait)
                try:
                    for message in messages:
                        if wanted is None or message.topic in wanted:
                            yield message
                        with self._turn:
                            verbs.settle(self._engine, [message])
                except GeneratorExit:
                    with self._turn:
                        self._engine.subscriber.put_back(topic or "")
                    raise

    def read(self, topic: str, offset: int, *, limit: int = 100) -> list[Message]:
        """Stored messages from an offset on, without a subscription; settles nothing."""
        return self._run(verbs.read(self._engine, topic, offset, limit))

    # Topics and the server

    def topics(self) -> list[TopicInfo]:
        """Every topic of the server."""
        return self._run(verbs.topics(self._engine))

    def topic(self, name: str) -> TopicShown:
        """One topic, its subscriptions, and why what it holds is kept."""
        return self._run(verbs.topic(self._engine, name))

    def create_topic(self, name: str, retention: Retention | None = None) -> bool:
        """Make a topic; False when it was there."""
        return self._run(verbs.create_topic(self._engine, name, retention or Retention()))

    def configure_topic(self, name: str, retention: Retention) -> bool:
        """Change what a topic keeps; False when it was so already."""
        return self._run(verbs.configure_topic(self._engine, name, retention))

    def delete_topic(self, name: str) -> bool:
        """Delete a topic, its messages, subscriptions and numbers."""
        return self._run(verbs.delete_topic(self._engine, name))

    def subscriptions(
        self, topic: str | None = None, client: str | None = None
    ) -> list[SubscriptionInfo]:
        """Subscriptions with their cursors."""
        return self._run(verbs.subscriptions(self._engine, topic, client))

    def status(self) -> dict[str, str | int | float | bool]:
        """The server's counters and promises."""
        return self._run(verbs.status(self._engine))

    # Ending

    def close(self) -> None:
        """Send what is unsent, tell what is settled, let go. Lasting puts may stay in the outbox."""
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
        if self._closed:
            return
        engine = self._engine
        lost: OnceMQError | None = None
        try:
            if engine.failure is None and timeout > 0:
                lost = self._last_words(timeout)
        finally:
            with self._turn:
                self._closed = True
                self._turn.notify_all()
            if self._sender is not None:
                self._sender.join()
            with self._turn:
                engine.close()
        if lost is not None:
            raise lost

    def _last_words(self, timeout: float) -> OnceMQError | None:
        outflow = self._engine.outflow
        try:
            self._wait_until(lambda: outflow.idle, timeout, "the last puts")
            self._run(verbs.leave(self._engine), timeout=min(timeout, 2.0))
        except Unreachable as unreachable:
            return unreachable if outflow.unrecorded else None
        except OnceMQError:
            return None
        return None

    def _room_for(self, topic: str, largest: int, size: int | None = None) -> None:
        outflow = self._engine.outflow
        try:
            outflow.check(topic, largest, size)
        except OutboxFull:
            room = self._engine.settings.outbox_bytes_max // 2
            if not self._engine.connected:
                raise
            self._wait_until(lambda: outflow.unsent_bytes < room, None, "room in the outbox")
        if outflow.unsent_bytes > FLOW_BYTES and self._engine.connected:
            self._wait_until(
                lambda: outflow.unsent_bytes < FLOW_BYTES // 2 or not self._engine.connected,
                None,
                "earlier puts",
            )

    def _take(self, topic: str | None, limit: int, wait: float) -> list[Message]:
        verb = verbs.take(self._engine, topic or "", limit, int(wait * 1000))
        return self._run(verb, timeout=self._timeout + wait)

    def _receipts(self, ticket: Ticket[Receipts], timeout: float | None) -> Receipts:
        ticket.looked_at = True
        if not ticket.done:
            self._wait_until(lambda: ticket.done, timeout, "the receipt")
        return ticket.result()

    def _run(self, verb: Verb[T], *, timeout: float | None = None) -> T:
        try:
            with self._turn:
                ticket = next(verb)
            while True:
                waited: Ticket[Any] = ticket
                self._wait_until(lambda t=waited: t.done, timeout, "an answer")
                with self._turn:
                    ticket = verb.send(None)
        except StopIteration as end:
            return end.value
        finally:
            with self._turn:
                verb.close()

    def _wait_until(
        self, ready: Callable[[], bool], timeout: float | None, what: str
    ) -> None:
        """Move the engine until `ready`, together with other threads that wait."""
        limit = self._timeout if timeout is None else timeout
        deadline = time.monotonic() + limit
        with self._turn:
            while True:
                self._pump()
                if ready():
                    return
                if self._engine.failure is not None:
                    raise self._engine.failure
                if self._closed:
                    raise Unreachable("the client is closed")
                left = deadline - time.monotonic()
                if left <= 0:
                    raise Unreachable(self._why_not(limit, what))
                self._wait_for_news(left)

    def _wait_for_news(self, left: float) -> None:
        """One thread waits on the socket, the others for it to tell them."""
        pause = min(left, IDLE_SECONDS, self._until_deadline())
        if self._waiting:
            self._turn.wait(pause)
            return
        self._waiting = True
        descriptors = self._engine.descriptors
        self._turn.release()
        try:
            select.select(descriptors, (), (), pause)
        finally:
            self._turn.acquire()
            self._waiting = False
            self._turn.notify_all()

    def _until_deadline(self) -> float:
        deadline = self._engine.next_deadline()
        if deadline is None:
            return IDLE_SECONDS
        return max(0.0, (deadline - monotonic_clock()) / 1_000_000)

    def _pump(self) -> None:
        if not self._closed:
            self._engine.pump()

    def _why_not(self, limit: float, what: str) -> str:
        servers = ", ".join(self._engine.settings.servers)
        kept = ""
        if self._state.lasting and self.unsent:
            kept = f"; {self.unsent} puts are recorded in {self._state.directory} and go out later"
        return f"no answer from {servers} within {limit:g} s while waiting for {what}{kept}"

    def _start_sender(self) -> None:
        """From the first put that nobody waits for, a thread sees to it that it leaves."""
        if self._sender is None:
            self._sender = threading.Thread(
                target=self._send_forever, name="oncemq-sender", daemon=True
            )
            self._sender.start()
        elif self._resting:
            self._turn.notify_all()

    _resting = False

    def _send_forever(self) -> None:
        with self._turn:
            while not self._closed and self._engine.failure is None:
                self._pump()
                if self._engine.outflow.idle:
                    self._resting = True
                    self._turn.wait(1.0)
                    self._resting = False
                else:
                    self._wait_for_news(0.002 if self._engine.outflow.gathering else 0.05)


def encode_many(
    payloads: Sequence[bytes],
    keys: Sequence[bytes | None] | None,
    headers: Sequence[Headers | None] | None,
) -> tuple[int, bytes]:
    """The columns and the body of a batch as users give it."""
    if keys is None and headers is None:
        return 0, batch.encode_payloads(payloads)
    none = [None] * len(payloads)
    return batch.encode(
        [
            batch.Item(payload, key, header)
            for payload, key, header in zip(payloads, keys or none, headers or none, strict=True)
        ]
    )


def payload_of(payload: bytes) -> bytes:
    """The payload as bytes; nothing is encoded behind the user's back."""
    if isinstance(payload, bytes):
        return payload
    if isinstance(payload, (bytearray, memoryview)):
        return bytes(payload)
    raise TypeError(f"a payload is bytes, not {type(payload).__name__}; encode it first")
