"""A server that does not lead, on a real socket: it refuses everything but Status."""

import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager

from oncemq.protocol.replies import RefusedReply, StatusReport
from oncemq.protocol.requests import StatusRequest
from oncemq.protocol.step import Body
from oncemq.transport.router import RouterSocket
from oncemq.transport.wakeup import Wakeup
from oncemq.wire import codec

FRAME_BYTES_MAX = 1 << 20


class Follower:
    """Served by a thread of its own until `stop`; `says` None: it answers nothing at all."""

    def __init__(self, says: RefusedReply | None, address: str) -> None:
        self.says = says
        self.asked = 0
        self._door = RouterSocket(address, frame_bytes_max=FRAME_BYTES_MAX)
        self.address = self._door.address
        self._bell = Wakeup()
        self._door.watch(self._bell)
        self._stopping = False
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping = True
        self._bell.ring()
        self._thread.join()

    def _serve(self) -> None:
        while not self._stopping:
            self._door.wait(100)
            while (received := self._door.receive()) is not None:
                self.asked += 1
                if self.says is not None:
                    self._door.send(received[0], self._answer(self.says, received[1]))
        self._door.close()
        self._bell.close()

    def _answer(self, says: RefusedReply, frames: Sequence[Body]) -> Sequence[Body]:
        token, request, _ = codec.decode_request(frames)
        if isinstance(request, StatusRequest):
            return codec.encode_reply(token, StatusReport({"leads": False}))
        return codec.encode_reply(token, says)


@contextmanager
def follower(says: RefusedReply | None, address: str = "tcp://127.0.0.1:*") -> Generator[Follower]:
    """One that runs inside the block."""
    running = Follower(says, address)
    try:
        yield running
    finally:
        running.stop()
