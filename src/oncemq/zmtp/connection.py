"""One end of one connection: what the peer's bytes mean, and what is to be said on our own.

Laws: however the bytes are cut into pieces, the same events come out; what is over a limit is
refused when its head is read; after a `WireError` nothing more is heard, and said at most why. Of a
peer that is open and between two messages, nothing is kept but a few fields. One call of
`next_event` understands one message or one command, so that who holds the socket decides how much
of a turn a peer gets. What is kept pins at most four times its size of what was received.
"""

from collections.abc import Sequence
from enum import Enum, auto
from typing import NamedTuple

from oncemq.zmtp import commands
from oncemq.zmtp.greeting import GREETING_BYTES, check_beginning, greeting, minor_version
from oncemq.zmtp.limits import WireError, WireLimits
from oncemq.zmtp.mechanism import NullMechanism, PeerFacts
from oncemq.zmtp.messages import Frame

COPIED_BYTES_MAX = 4_096  # a frame up to here is copied out of what was received
PINNED_SHARE = 4  # a larger one too, unless it is a quarter of what it would pin, or more
LANDING_BYTES = 64 << 10  # a frame that lacks more than so much is received where it will lie
GROWTH_BYTES = 64 << 10  # memory for a frame is taken so far ahead of what came of it, or doubled

MORE, LONG, COMMAND = 1, 2, 4

_ZEROS = bytes(1 << 20)  # a frame's memory grows by this, not by as much as it grows once more


class Opened(NamedTuple):
    """The handshake is over."""

    peer: PeerFacts
    minor: int


class SubjectChange(NamedTuple):
    """A subscriber wants the subject, or no longer."""

    joined: bool
    subject: bytes


class Heard(NamedTuple):
    """A command that asks nothing of who holds the socket: answered already, or passed over.

    It is told because it was work: a peer may send thousands of them in one piece.
    """

    name: bytes


Message = list[Frame]
Event = Message | Opened | SubjectChange | Heard


class Phase(Enum):
    """How far a connection is."""

    GREETING = auto()
    HANDSHAKE = auto()
    OPEN = auto()
    ENDED = auto()


_OPEN = Phase.OPEN  # looked at for each message


class ZmtpConnection:
    """A socket's end of a connection; one thread at a time."""

    __slots__ = (
        "_at",
        "_data",
        "_frames",
        "_is_publisher",
        "_landed",
        "_landing",
        "_landing_flags",
        "_landing_size",
        "_limits",
        "_mechanism",
        "_message_bytes",
        "_output",
        "minor",
        "phase",
    )

    def __init__(self, socket_type: bytes, limits: WireLimits) -> None:
        self.phase = Phase.GREETING
        self.minor: int = 0  # of the peer's version
        self._is_publisher = socket_type == b"XPUB"
        self._limits = limits
        self._mechanism: NullMechanism | None = NullMechanism(socket_type)  # until it is open
        self._output = bytearray(greeting(NullMechanism.name, as_server=False))
        self._data: bytes = b""  # received, and not understood yet from `_at` on
        self._at: int = 0
        self._frames: Message = []  # of a message that is not whole yet
        self._message_bytes: int = 0  # that it has, and that its last frame announces
        self._landing: bytearray | None = None  # a frame that is received where it will lie
        self._landing_size: int = 0
        self._landed: int = 0
        self._landing_flags: int = 0

    # What is to be sent

    def take_output(self) -> Sequence[bytes]:
        """What this end owes by itself, to be sent before anything else."""
        if not self._output:
            return ()
        output = bytes(self._output)  # one piece: pings in their thousands owe no object each
        self._output.clear()
        return (output,)

    @property
    def has_output(self) -> bool:
        """Whether it owes anything."""
        return bool(self._output)

    # What was received

    @property
    def is_partial(self) -> bool:
        """Whether something is there that is not whole: a message, or the handshake."""
        if self.phase is not Phase.OPEN:
            return self.phase is not Phase.ENDED
        return bool(self._frames) or self._landing is not None or self._at < len(self._data)

    @property
    def is_quiet(self) -> bool:
        """Whether an open connection has given out all that came, and owes nothing."""
        return not (self._data or self._frames or self._output) and self._landing is None

    @property
    def is_in_message(self) -> bool:
        """Whether frames of a message came, and not its last; commands may stand between them."""
        return bool(self._frames)

    @property
    def held_bytes(self) -> int:
        """The memory that it takes for what is not whole, or not asked for yet."""
        landing = len(self._landing) if self._landing is not None else 0
        return len(self._data) + landing + self._message_bytes

    def receive(self, data: bytes) -> None:
        """Take what came; when `next_event` has said that there is nothing more, and no landing."""
        assert self._landing is None, "what comes next belongs where `landing` says"
        if self.phase is Phase.ENDED:
            return
        if self._at < len(self._data):
            data = self._data[self._at :] + data
        self._data, self._at = data, 0

    def landing(self) -> memoryview | None:
        """Where the next bytes are to be received, when a large frame is under way."""
        frame = self._landing
        if frame is None:
            return None
        if self._landed == len(frame):
            lacking = min(self._landing_size - len(frame), len(frame))
            while lacking > 0:
                step = min(lacking, len(_ZEROS))
                frame += _ZEROS[:step]
                lacking -= step
        return memoryview(frame)[self._landed :]

    def landed(self, count: int) -> None:
        """So many bytes were received there. Let go of the view before the next call."""
        self._landed += count

    def next_event(self) -> Event | None:
        """The next thing that the peer said, or None: more has to be received."""
        phase = self.phase
        try:
            if phase is _OPEN:
                if self._landing is not None:
                    return self._landed_message()
                return self._parsed_message() if self._data else None
            return self._shake_hands() if phase is not Phase.ENDED else None
        except WireError:
            self.end()
            raise

    def end(self) -> None:
        """Nothing is heard any more."""
        self.phase = Phase.ENDED
        self._data, self._at = b"", 0
        self._frames, self._landing = [], None
        self._message_bytes = 0

    # Before it is open

    def _shake_hands(self) -> Opened | None:
        if self.phase is Phase.GREETING:
            check_beginning(self._data)
            if len(self._data) < GREETING_BYTES:
                return None
            assert self._mechanism is not None
            self.minor = minor_version(self._data[:GREETING_BYTES], self._mechanism.name)
            self._at = GREETING_BYTES
            self._output += self._mechanism.begin()
            self.phase = Phase.HANDSHAKE
        while (said := self._handshake_command()) is not None:
            mechanism = self._mechanism
            assert mechanism is not None
            try:
                answer = mechanism.on_command(*commands.split(said))
            except WireError as fault:
                self._output += commands.error(str(fault))
                raise
            self._output += answer
            if mechanism.peer is not None:
                self.phase = Phase.OPEN
                self._mechanism = None
                return Opened(mechanism.peer, self.minor)
        return None

    def _handshake_command(self) -> bytes | None:
        data, at = self._data, self._at
        have = len(data) - at
        if have < 2:
            return None
        flags = data[at]
        if flags not in (COMMAND, COMMAND | LONG):
            raise WireError(f"a frame begins with {flags:#04x} before the handshake is over")
        if flags & LONG and have < 9:
            return None
        start = at + (9 if flags & LONG else 2)
        size = int.from_bytes(data[at + 1 : start], "big")
        if size > self._limits.handshake_bytes_max:
            raise WireError(f"a command of {size} bytes in the handshake")
        if start + size > len(data):
            return None
        self._at = start + size
        return data[start : self._at]

    # While it is open

    def _parsed_message(self) -> Message | SubjectChange | Heard | None:
        """Frames up to the end of a message; what is not whole stays where it is."""
        data, at, frames = self._data, self._at, self._frames
        have = len(data)
        while have - at >= 2:
            flags = data[at]
            if flags > 6 or flags & (COMMAND | MORE) == COMMAND | MORE:
                raise WireError(f"a frame begins with {flags:#04x}, which is no ZMTP")
            if not flags & LONG:
                start, size = at + 2, data[at + 1]
            elif have - at >= 9:
                start, size = at + 9, int.from_bytes(data[at + 1 : at + 9], "big")
            else:
                break
            end = start + size
            if flags & COMMAND:
                if size > self._limits.command_bytes_max:
                    raise WireError(f"a command of {size} bytes")
                if end > have:
                    break
                self._at = end
                return self._command(data[start:end])
            if size > 255 or len(frames) >= self._limits.message_frames_max:
                self._check_frame(size)
            if end > have:
                if end - have > LANDING_BYTES:
                    self._begin_landing(flags, start, size)
                break
            self._message_bytes += size
            self._at = at = end
            copied = size <= COPIED_BYTES_MAX or size * PINNED_SHARE < have
            frames.append(data[start:end] if copied else memoryview(data)[start:end])
            if not flags & MORE:
                return self._whole()
        if at:
            self._unpin()
        return None

    def _unpin(self) -> None:
        """Let go of what was understood, where a little that is not whole would keep all of it."""
        whole = len(self._data)
        if (whole - self._at) * PINNED_SHARE < whole:
            self._data, self._at = self._data[self._at :], 0

    def _check_frame(self, size: int) -> None:
        """Refuse a frame that is over a limit; short ones are bounded by how many there may be."""
        limits = self._limits
        if size > limits.frame_bytes_max:
            raise WireError(f"a frame of {size} bytes, over the limit of {limits.frame_bytes_max}")
        if self._message_bytes + size > limits.message_bytes_max:
            raise WireError(f"a message over the limit of {limits.message_bytes_max} bytes")
        if len(self._frames) >= limits.message_frames_max:
            raise WireError(f"a message over the limit of {limits.message_frames_max} frames")

    def _begin_landing(self, flags: int, start: int, size: int) -> None:
        came = len(self._data) - start
        self._landing = frame = bytearray(min(size, max(GROWTH_BYTES, 2 * came)))
        frame[:came] = memoryview(self._data)[start:]
        self._landing_size, self._landed, self._landing_flags = size, came, flags
        self._data, self._at = b"", 0

    def _landed_message(self) -> Message | SubjectChange | Heard | None:
        """The message that a large frame ends, when all of it came; else what follows it."""
        frame = self._landing
        assert frame is not None
        if self._landed < self._landing_size:
            return None
        self._landing = None
        self._frames.append(memoryview(frame))
        self._message_bytes += self._landing_size
        return self._parsed_message() if self._landing_flags & MORE else self._whole()

    def _whole(self) -> Message | SubjectChange:
        message, self._frames = self._frames, []
        self._message_bytes = 0
        if self._at == len(self._data):
            self._data, self._at = b"", 0
        if self._is_publisher and len(message) == 1 and message[0][:1] in (b"\0", b"\1"):
            said = bytes(message[0])  # as ZMTP 3.0 says that a subject is wanted
            return SubjectChange(said[0] == 1, said[1:])
        return message

    def _command(self, body: bytes) -> SubjectChange | Heard:
        name, data = commands.split(body)
        if name == commands.PING:
            self._output += commands.answer_to_ping(data)
        elif name == commands.ERROR:
            raise WireError(f"the peer ended the connection: {commands.error_reason(data)!r}")
        elif self._is_publisher and name in (commands.SUBSCRIBE, commands.CANCEL):
            return SubjectChange(name == commands.SUBSCRIBE, data)
        return Heard(name)  # a PING; a PONG, and what we do not know, are passed over
