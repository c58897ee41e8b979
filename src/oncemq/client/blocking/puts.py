# Generated from client/aio/puts.py by tools/unasync.py; do not edit.
"""The publisher's verbs of the blocking client.

Law: a put that is waited for is on the server's disk when it returns; one that is not leaves by
itself, whatever its client does meanwhile.
"""

from collections.abc import Sequence
from functools import partial
from typing import Literal, overload

from oncemq.client.blocking.transactions import Transacting
from oncemq.client.bodies import encode_many, largest
from oncemq.client.checks import check_payloads, item_of, size_of
from oncemq.client.pending import ONE, Pending
from oncemq.client.puts.open_batch import ALONE_MESSAGES
from oncemq.client.puts.put_buffer import FLOW_BYTES
from oncemq.client.ticket import Ticket
from oncemq.client.values import Headers, Receipt, Receipts
from oncemq.client.verbs.keyed_puts import check_key, put_keyed
from oncemq.errors import InvalidRequest, OutboxFull
from oncemq.wire import batch

ALL_OR_NONE = "a put to several topics waits for its receipts, and takes no idempotency key"


class Publishing(Transacting):
    """What `Client` puts with."""

    @overload
    def put(
        self, topic: str, payload: bytes, *, key: bytes | None = ..., headers: Headers | None = ...,
        durable: bool = ..., wait: Literal[True] = ..., idempotency_key: str | None = ...,
        required: bool = ...,
    ) -> Receipt: ...  # fmt: skip
    @overload
    def put(
        self, topic: str, payload: bytes, *, key: bytes | None = ..., headers: Headers | None = ...,
        durable: bool = ..., wait: Literal[False], required: bool = ...,
    ) -> Pending[Receipt]: ...  # fmt: skip
    @overload
    def put(
        self, topic: str, payload: bytes, *, key: bytes | None = ..., headers: Headers | None = ...,
        durable: bool = ..., wait: bool, required: bool = ...,
    ) -> Receipt | Pending[Receipt]: ...  # fmt: skip
    @overload
    def put(
        self, topic: list[str] | tuple[str, ...], payload: bytes, *, key: bytes | None = ...,
        headers: Headers | None = ..., required: bool = ...,
    ) -> list[Receipt]: ...  # fmt: skip
    def put(
        self,
        topic: str | list[str] | tuple[str, ...],
        payload: bytes,
        *,
        key: bytes | None = None,
        headers: Headers | None = None,
        durable: bool = True,
        wait: bool = True,
        idempotency_key: str | None = None,
        required: bool = False,
    ) -> Receipt | Pending[Receipt] | list[Receipt]:
        """Put a message; its receipt, once the server has it on disk.

        `wait=False` gives the receipt to come, at once, and gathers single puts into batches;
        `durable=False` skips the outbox: a crash of this process may then lose the put.
        `idempotency_key` makes it the same put whoever repeats it, for as long as the server
        remembers keys (7 days); it skips the outbox, too. A list of topics (up to 255): all of
        them get the message, or none does; a receipt for each, and no outbox.

        A topic that nobody subscribes to and that keeps nothing discards the message: the receipt
        has `stored=False`, and the log says so once for each topic. With `required=True` that
        raises `Unwanted` instead, and nothing is changed.
        """
        is_plain = key is None and not headers and idempotency_key is None
        if not wait and is_plain and type(topic) is str:
            turns = self._turns
            pending = turns.append(topic, payload, durable, required, turns)
            if pending is not None:
                return pending
        if wait and is_plain and type(payload) is bytes and isinstance(topic, str):
            size, columns, body = len(payload), 0, batch.encode_payloads((payload,))
            return self._put_one(topic, size, columns, body, durable, required)
        item = item_of(payload, key, headers)
        if not isinstance(topic, str):
            if idempotency_key is not None or not wait:
                raise InvalidRequest(ALL_OR_NONE)
            return self._put_to_all(topic, item, required=required)
        columns, body = batch.encode([item])
        if idempotency_key is not None:
            keyed = self._put_keyed(
                topic, idempotency_key, 1, columns, body, wait=wait, required=required
            )
            return keyed[0]
        if wait:
            return self._put_one(topic, size_of(item), columns, body, durable, required)
        side = item if key is not None or headers else None
        ticket, place = self._gather(
            topic, (item.payload,), side, size_of(item), lasting=durable, required=required
        )
        return Pending(ticket, place, ONE, self._turns)

    def _put_one(
        self, topic: str, size: int, columns: int, body: bytes, durable: bool, required: bool
    ) -> Receipt:
        with self._turns.lock:
            self._room_for(topic, size)
            ticket = self._engine.outflow.put(
                topic, count=1, columns=columns, body=body, lasting=durable, required=required
            )
            ticket.looked_at = True
            # Under the lock as it is: it is taken, and signals are put off, once for a put.
            self._turns.wait_here(partial(getattr, ticket, "done"), None, "the receipt")
        return ticket.result()[0]

    @overload
    def put_many(
        self, topic: str, payloads: Sequence[bytes], *, keys: Sequence[bytes | None] | None = ...,
        headers: Sequence[Headers | None] | None = ..., durable: bool = ...,
        wait: Literal[True] = ..., idempotency_key: str | None = ..., required: bool = ...,
    ) -> Receipts: ...  # fmt: skip
    @overload
    def put_many(
        self, topic: str, payloads: Sequence[bytes], *, keys: Sequence[bytes | None] | None = ...,
        headers: Sequence[Headers | None] | None = ..., durable: bool = ..., wait: Literal[False],
        required: bool = ...,
    ) -> Pending[Receipts]: ...  # fmt: skip
    @overload
    def put_many(
        self, topic: str, payloads: Sequence[bytes], *, keys: Sequence[bytes | None] | None = ...,
        headers: Sequence[Headers | None] | None = ..., durable: bool = ..., wait: bool,
        required: bool = ...,
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
        idempotency_key: str | None = None,
        required: bool = False,
    ) -> Receipts | Pending[Receipts]:
        """Put a batch: stored whole or not at all, in one record (with others, when small).

        `required` as in `put`: what nobody would get raises `Unwanted`, and is not discarded.
        """
        check_payloads(payloads)
        if not payloads:
            return Receipts(Receipt(topic, None, stored=False, duplicate=False), 0)
        if idempotency_key is not None:
            columns, body = encode_many(payloads, keys, headers)
            return self._put_keyed(
                topic, idempotency_key, len(payloads), columns, body, wait=wait, required=required
            )
        outflow = self._engine.outflow
        plain = keys is None and headers is None
        if plain and not wait and len(payloads) < ALONE_MESSAGES:
            size = sum(map(len, payloads))
            if size > self._engine.settings.limits.message_bytes:
                size = max(map(len, payloads))
            ticket, place = self._gather(
                topic, payloads, None, size, lasting=durable, required=required
            )
            return Pending(ticket, place, len(payloads), self._turns)
        columns, body = encode_many(payloads, keys, headers)
        with self._turns.lock:
            over = self._engine.settings.limits.message_bytes
            size = largest(payloads, keys, headers, over=over, body=body)
            self._room_for(topic, size, len(body))
            ticket = outflow.put(
                topic,
                count=len(payloads),
                columns=columns,
                body=body,
                lasting=durable,
                required=required,
            )
            if not wait:
                self._turns.see_out(now=True)
                return Pending(ticket, 0, len(payloads), self._turns)
        ticket.looked_at = True
        return self._turns.answer(ticket, None)

    def flush(self, timeout: float | None = None) -> None:
        """Wait until every put has its answer; raises what a put that nobody looked at met."""
        outflow = self._engine.outflow
        self._turns.wait_until(lambda: outflow.idle, timeout, "the puts made so far")
        unseen = outflow.take_failure()
        error = self._engine.failure or unseen
        if error is not None:
            raise error

    # Inside

    def _put_keyed(
        self, topic: str, key: str, count: int, columns: int, body: bytes, *, wait: bool,
        required: bool,
    ) -> Receipts:  # fmt: skip
        check_key(key, wait=wait)
        with self._turns.lock:
            self._engine.outflow.check(topic, 0, len(body))
        verb = put_keyed(
            self._engine, topic, key, count=count, columns=columns, body=body, required=required
        )
        return self._turns.run(verb)

    def _gather(
        self,
        topic: str,
        payloads: Sequence[bytes],
        item: batch.Item | None,
        largest: int,
        *,
        lasting: bool,
        required: bool,
    ) -> tuple[Ticket[Receipts], int]:
        with self._turns.lock:
            self._room_for(topic, largest)
            gathered = self._engine.outflow.gather(
                topic, payloads, item, lasting=lasting, required=required
            )
            ticket, place, full = gathered
            self._turns.see_out(now=full)
        return ticket, place

    def _room_for(self, topic: str, largest: int, size: int | None = None) -> None:
        outflow = self._engine.outflow
        try:
            waiting = outflow.check(topic, largest, size)
        except OutboxFull:
            room = self._engine.settings.outbox_bytes_max // 2
            if not self._engine.connected:
                raise
            self._turns.wait_here(lambda: outflow.unsent_bytes < room, None, "room in the outbox")
            waiting = outflow.unsent_bytes
        if waiting > FLOW_BYTES and self._engine.connected:
            self._turns.wait_here(
                lambda: outflow.unsent_bytes < FLOW_BYTES // 2 or not self._engine.connected,
                None,
                "earlier puts",
            )
        failure = self._engine.context.failure
        if failure is not None:  # it ended while this waited: nothing would send the put
            raise failure.with_traceback(None)
