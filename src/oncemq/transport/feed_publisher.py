"""The live feed: what is sent once here goes to everyone who listens to its subject, as XPUB.

How it works. What is sent is encoded once and joined with what else waits for its subject. Then it
goes around (`push`): to so many listeners at a time, so that puts are answered in between. While
it does, more may gather for the next round: the more there is to do, the more goes in one send.

Laws: a send waits for nobody. A listener that does not keep up misses whole messages, and pulls
them. What a peer says of its subjects changes nothing for others.
"""

from collections import deque
from collections.abc import Iterator, Sequence

from oncemq.errors import PortInUse
from oncemq.transport.serving.bound_socket import BoundSocket
from oncemq.transport.serving.connections import Connections
from oncemq.transport.serving.peer import Peer
from oncemq.zmtp.connection import SubjectChange
from oncemq.zmtp.limits import WireLimits
from oncemq.zmtp.messages import Frame, encode

Frames = Sequence[bytes | bytearray | memoryview]
Change = tuple[bool, bytes]

SAID_BYTES_MAX = 1_024  # what a listener may say at a time
ROUND_SENDS = 128  # listeners served before others get their turn
GATHERED_BYTES_MAX = 1 << 20  # while more than this waits, it goes on without a pause
SAID_MAX = 8  # things that mean nothing, heard in one go
NOTHING: Change = (False, b"")


class FeedPublisher(BoundSocket):
    """A bound XPUB. Used by one thread, and by no other."""

    def __init__(self, address: str, connections: Connections | None = None) -> None:
        limits = WireLimits(
            frame_bytes_max=SAID_BYTES_MAX,
            message_bytes_max=SAID_BYTES_MAX,
            message_frames_max=2,
            command_bytes_max=SAID_BYTES_MAX,
        )
        try:
            super().__init__(b"XPUB", address, limits, connections or Connections())
        except OSError as error:
            raise PortInUse(
                f"cannot feed listeners on {address}: {error.strerror or error}; is another server "
                "running? Choose another address with --feed, or --feed none"
            ) from None
        self.subjects_count = 0  # of all listeners together
        self.missed = 0  # messages that a listener did not get
        self._listeners: dict[bytes, set[Peer]] = {}
        self._subjects: dict[Peer, set[bytes]] = {}
        # In order: one may be gone and another come while the next thing said is looked for.
        self._changes: deque[Change] = deque()
        self._gathered: dict[bytes, list[Frame]] = {}
        self._gathered_bytes = 0
        self._round: Iterator[Peer] = iter(())
        self._buffers: Sequence[Frame] = ()  # that go around
        self._size = 0

    def change(self) -> Change | None:
        """Someone wants a subject (True), or the last one who did is gone; None: nothing new.

        A subject that is none: so far, nobody said anything that means something.
        """
        for _ in range(SAID_MAX):
            if self._changes:
                return self._changes.popleft()
            if (said := self.next_event()) is None:
                return None
            peer, what = said
            if isinstance(what, SubjectChange):
                if what.joined:
                    self._joined(peer, what.subject)
                else:
                    self._left(peer, what.subject)
        return NOTHING

    @property
    def is_told(self) -> bool:
        """Whether `change` may have something to tell."""
        return bool(self._changes) or self.has_more

    def send(self, frames: Frames) -> None:
        """To everyone who listens to the subject in the first frame, and keeps up; at once."""
        self.gather([frames])
        while self.is_busy:
            self.push()

    def gather(self, messages: Sequence[Frames]) -> None:
        """Take messages to be pushed."""
        for frames in messages:
            subject = bytes(frames[0])
            if subject in self._listeners:
                buffers = encode(frames)
                self._gathered.setdefault(subject, []).extend(buffers)
                self._gathered_bytes += sum(map(len, buffers))

    @property
    def is_busy(self) -> bool:
        """Whether there is something to push."""
        return bool(self._gathered or self._buffers)

    def push(self) -> None:
        """Serve some listeners; all of them while too much waits."""
        send, left = self._send, ROUND_SENDS
        while left > 0 or self._gathered_bytes > GATHERED_BYTES_MAX:
            for peer in self._round:
                send(peer)
                left -= 1
                if left <= 0 and self._gathered_bytes <= GATHERED_BYTES_MAX:
                    return
            self._buffers = ()
            if not self._gathered:
                return
            self._begin_round()

    @property
    def status(self) -> dict[str, int]:
        """What listeners want, and what they missed."""
        most = self.connections.limits.subjects_total_max
        return {
            "feed_subjects": self.subjects_count,
            "feed_subjects_max": most,
            "feed_missed": self.missed,
        }

    def gone(self, peer: Peer) -> None:
        """It is not there any more, and wants nothing."""
        super().gone(peer)
        for subject in self._subjects.pop(peer, ()):
            self._forget(peer, subject)

    def _joined(self, peer: Peer, subject: bytes) -> None:
        limits = self.connections.limits
        subjects = self._subjects.setdefault(peer, set())
        if (
            subject in subjects
            or len(subject) > limits.subject_bytes_max
            or len(subjects) >= limits.subjects_max
            or self.subjects_count >= limits.subjects_total_max
        ):
            return
        subjects.add(subject)
        self.subjects_count += 1
        self._listeners.setdefault(subject, set()).add(peer)
        self._changes.append((True, subject))

    def _left(self, peer: Peer, subject: bytes) -> None:
        subjects = self._subjects.get(peer)
        if subjects and subject in subjects:
            subjects.discard(subject)
            self._forget(peer, subject)

    def _forget(self, peer: Peer, subject: bytes) -> None:
        self.subjects_count -= 1
        listeners = self._listeners[subject]
        listeners.discard(peer)
        if not listeners:
            del self._listeners[subject]
            self._changes.append((False, subject))

    def _begin_round(self) -> None:
        subject = next(iter(self._gathered))
        buffers = self._gathered.pop(subject)
        self._size = sum(map(len, buffers))
        self._gathered_bytes -= self._size
        # One buffer for the system, copied once for all of them.
        self._buffers = [b"".join(buffers)]
        self._round = iter(tuple(self._listeners.get(subject, ())))

    def _send(self, peer: Peer) -> None:
        if not peer.is_open:
            return
        if peer.owed and (
            peer.owed_bytes + self._size > self.connections.limits.feed_owed_max
            or self.connections.owed_bytes + self._size > self.connections.limits.owed_total_max
        ):
            self.missed += 1
            return
        self.connections.send(peer, self._buffers)
