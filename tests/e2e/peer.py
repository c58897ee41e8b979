"""A bare DEALER that says what no client of ours would, and hears what the server answers."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import zmq

from oncemq.protocol.replies import RefusedReply, Reply
from oncemq.protocol.requests import Put, Request
from oncemq.wire import batch, codec

PRODUCER = b"p" * 16
ANSWER_MS = 10_000
ANYONE = "_anonymous-peer"


class Peer:
    """One raw connection."""

    def __init__(self, socket: "zmq.Socket[bytes]") -> None:
        self._socket = socket
        self._token = 1000

    def say(self, *frames: bytes) -> Reply:
        """Send these frames; the one answer, whatever token it names."""
        self.send(*frames)
        return self.hear()[1]

    def send(self, *frames: bytes) -> None:
        self._socket.send_multipart(frames)

    def ask(self, request: Request, body: bytes | None = None) -> Reply:
        """Send a request as a client would; its answer."""
        self._token += 1
        self.send(*map(bytes, codec.encode_request(self._token, request, body)))
        token, reply = self.hear()
        assert token == self._token, "the answer names another request"
        return reply

    def refusal(self, request: Request, body: bytes | None = None) -> RefusedReply:
        """The refusal that this request must get."""
        reply = self.ask(request, body)
        assert isinstance(reply, RefusedReply), reply
        return reply

    def hear(self) -> tuple[int, Reply]:
        """The next answer."""
        assert self._socket.poll(ANSWER_MS), "the server does not answer"
        token, reply, _ = codec.decode_reply(self._socket.recv_multipart())
        return token, reply

    def silent(self, milliseconds: int = 0) -> bool:
        """Whether no further answer has come."""
        return not self._socket.poll(milliseconds)


@contextmanager
def peer(address: str) -> Iterator[Peer]:
    """A raw connection to a server."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    socket = context.socket(zmq.DEALER)
    socket.setsockopt(zmq.LINGER, 0)
    socket.connect(address)
    try:
        yield Peer(socket)
    finally:
        context.destroy(linger=0)


def put_of(*payloads: bytes, **changes: Any) -> tuple[Put, bytes]:
    """A put that is right in every field, but for the changes; and its body."""
    body = changes.pop("body", None)
    columns, encoded = batch.encode([batch.Item(payload) for payload in payloads])
    body = encoded if body is None else body
    fields: dict[str, Any] = {
        "client": ANYONE,
        "client_epoch": 0,
        "topic": "orders",
        "topic_id": 0,
        "producer": PRODUCER,
        "lasting": False,
        "first_sequence": 1,
        "count": len(payloads),
        "columns": columns,
        **changes,
    }
    if "checksum" not in fields:
        names = (fields["topic"], fields["producer"], fields["first_sequence"], fields["count"])
        fields["checksum"] = batch.checksum(body, batch.seed(*names))
    return Put(**fields), body
