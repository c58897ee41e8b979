"""A client's end of a connection: made, kept busy and made again, by whoever asks it something.

How it works. There is no thread. `connect` begins a first attempt; from then on every call (`news`,
`receive`, a send) also does what is due: the next attempt, a part of the handshake, what is owed to
a socket that was full. Who has nothing to ask waits until `descriptors` are readable, at most until
`next_deadline`, and asks again. They are readable for as long as there is something to do.

    away       no connection: `dialing` waits, or looks up a name
    trying     connecting, or in ZMTP's handshake: for so long, then the next address is tried
    open       messages go to and fro, until something breaks

What the server says is bounded: by ZMTP's limits (`WireLimits`), by the time of an attempt, by how
much is read before others get their turn, and by what it may make us owe it (answers to pings that
it does not read). What is over a limit ends the connection, is said in the log, once for each
reason until a server answers, and is followed by a wait that grows, as after every failure.

Laws: nothing here blocks. A message is sent whole or not at all: where a connection breaks in the
middle of one, the server drops the part. What was received before a connection broke is given out
before that is news. What is cut short by an exception of somebody else's (a signal's handler) costs
the connection, since nobody knows what of it was done.
"""

import errno
import logging
import socket
import time
import weakref
from collections import deque
from collections.abc import Sequence

from oncemq.protocol.names import Micros
from oncemq.transport.connecting.addresses import server_address
from oncemq.transport.connecting.dialing import Dialing
from oncemq.transport.connecting.owed_bytes import BUFFERS_AT_ONCE, OWED_BYTES_MAX, OwedBytes
from oncemq.transport.connecting.watched_sockets import (
    READ,
    WRITE,
    WatchedSockets,
    no_descriptors_in_words,
)
from oncemq.zmtp.connection import Heard, Message, Opened, SubjectChange, ZmtpConnection
from oncemq.zmtp.limits import WireError, WireLimits
from oncemq.zmtp.messages import Frame

ATTEMPT_MICROS = 2_000_000  # to connect to one address; and again for the handshake
RECEIVE_BYTES = 64 << 10  # asked for at once; for four times as much the system takes 25 µs more
TURN_BYTES = 16 << 20  # read until `receive` says that there is nothing for now
SAID_MAX = 100

logger = logging.getLogger("oncemq.client")


class ClientLink:
    """One server at a time. Used by one thread at a time; does nothing before it connects."""

    def __init__(
        self, socket_type: bytes, limits: WireLimits, owed_bytes_max: int = OWED_BYTES_MAX
    ) -> None:
        self.descriptors: tuple[int, ...] = ()  # readable while there is something to do
        self._socket_type = socket_type
        self._limits = limits
        self._owed_bytes_max = owed_bytes_max
        self._watched = WatchedSockets()
        weakref.finalize(self, self._watched.close)
        self._dialing = Dialing(self._watched)
        self._server = ""
        self._said: set[str] = set()  # reasons, in the log
        self._untold: deque[bool] = deque()
        self._begin_nothing()

    def _begin_nothing(self) -> None:
        """No connection, nothing received, nothing owed."""
        self._socket: socket.socket | None = None
        self._zmtp: ZmtpConnection | None = None
        self._owed = OwedBytes(self._owed_bytes_max)
        self._attempt_due: int | None = None
        self._is_connected = False  # as the system has it; the handshake comes after that
        self._is_open = False
        self._is_used = False  # a message came on it
        self._is_cut = False  # nothing can be sent any more; what came may still be there
        self._watches_writing = False
        self._unasked = False  # bytes were received that `next_event` was not asked about
        self._message: Message | None = None  # met by who asked for news
        self._dry = False  # the last read took all there was
        self._turn_bytes = 0

    # What who holds it calls

    def connect(self, address: str) -> None:
        """Talk to this server from now on, and no longer to the one before."""
        self._leave()
        self._dialing.begin(server_address(address))
        self._server = address
        with no_descriptors_in_words():
            self.descriptors = (self._watched.descriptor,)
            self._dial()

    def news(self) -> bool | None:
        """True: connected. False: disconnected. None: nothing happened.

        Pings are answered here, too: one that nobody takes would hide the end behind it. A message
        is kept for `receive`, and nothing behind it is read.
        """
        if not self._untold:
            if not self._is_open:
                self._advance()
            else:
                if self._owed.size:
                    self._flush()
                if self._unasked and self._message is None:
                    self._message = self._next_message()
                if self._is_open and self._message is None:
                    self._read()
        return self._untold.popleft() if self._untold else None

    def receive(self) -> Message | None:
        """The next message's frames; None: there was no more at the last look."""
        if not self._is_open:
            self._advance()
        elif self._owed.size:
            self._flush()
        if self._message is not None:
            message, self._message = self._message, None
            return message
        while self._is_open:
            if self._unasked:
                if (message := self._next_message()) is not None:
                    return message
            elif not self._read():
                break
        return None

    def next_deadline(self) -> Micros | None:
        """When to ask again even if no descriptor is readable, by the monotonic clock."""
        if self._untold or self._unasked or self._message is not None:
            return Micros(0)
        if self._is_open:
            return None
        due = self._attempt_due if self._socket is not None else self._dialing.due
        return None if due is None else Micros(due)

    @property
    def is_in_vain(self) -> bool:
        """Whether each endpoint of the server was tried since `connect`, and none was there."""
        return self._dialing.is_in_vain

    def close(self) -> None:
        """Let go of the connection; what is owed is dropped."""
        self._leave()
        self._watched.close()

    # What its kinds add

    def _opened(self, minor: int) -> None:
        """The handshake is over, with a server that speaks this minor version."""

    # Sending

    def _send(self, buffers: Sequence[Frame]) -> bool:
        """Send on an open connection; what does not fit is owed. False: it is cut off."""
        if self._is_cut or self._socket is None:
            return False
        owed = self._owed
        if owed.size or len(buffers) > BUFFERS_AT_ONCE:
            owed.add(buffers)
            return self._flush() or not self._is_cut
        try:
            if len(buffers) == 1:
                sent = self._socket.send(buffers[0])
                if sent == len(buffers[0]):
                    return True
            else:
                sent = self._socket.sendmsg(buffers)
            owed.add(buffers, sent=sent)
        except BlockingIOError:
            owed.add(buffers)
        except OSError as error:
            return self._cut(error)
        except BaseException:
            self._lose("interrupted")
            raise
        if owed.size:
            self._watch_writing(True)
        return True

    def _flush(self) -> bool:
        """Send what is owed; whether all of it left."""
        owed, connection = self._owed, self._socket
        if connection is None:
            return False
        try:
            while owed.size:
                owed.sent(connection.sendmsg(owed.first()))
        except BlockingIOError:
            self._watch_writing(True)
            return False
        except OSError as error:
            return self._cut(error)
        except BaseException:
            self._lose("interrupted")
            raise
        self._watch_writing(False)
        return True

    def _cut(self, error: OSError) -> bool:
        """The way there is broken; what came before that is still to be read, and then the end."""
        if error.errno == errno.ENOTCONN and not self._is_connected:
            return False  # it is connecting, as macOS says it
        if self._is_open and error.errno in (errno.EPIPE, errno.ECONNRESET):
            self._is_cut = True
            self._owed.clear()
            self._watch_writing(False)
        else:
            self._lose(error.strerror or str(error))
        return False

    def _watch_writing(self, wanted: bool) -> None:
        if wanted is not self._watches_writing and self._socket is not None:
            self._watches_writing = wanted
            self._watched.change(self._socket, READ | WRITE if wanted else READ)

    def _say(self, zmtp: ZmtpConnection) -> None:
        """Send what ZMTP has to say by itself."""
        self._owed.add([b"".join(zmtp.take_output())])
        if self._owed.size > 2 * self._owed_bytes_max:
            self._lose("it asks for answers, and does not read them", warns=True)
        else:
            self._flush()

    # Receiving

    def _read(self) -> bool:
        """Take what the system has; whether something came."""
        zmtp, connection = self._zmtp, self._socket
        if self._dry or self._turn_bytes > TURN_BYTES or zmtp is None or connection is None:
            self._dry, self._turn_bytes = False, 0
            return False
        try:
            place = zmtp.landing()
            if place is None:
                data = connection.recv(RECEIVE_BYTES)
                count, asked = len(data), RECEIVE_BYTES
                if count:
                    zmtp.receive(data)
            else:
                with place:
                    count, asked = connection.recv_into(place), len(place)
                zmtp.landed(count)
        except BlockingIOError:
            return False
        except OSError as error:
            self._lose(error.strerror or str(error))
            return False
        except BaseException:
            self._lose("interrupted")
            raise
        if not count:
            self._lose("the server ended the connection")
            return False
        self._dry = count < asked
        self._turn_bytes += count
        self._unasked = True
        return True

    def _next_message(self) -> Message | None:
        zmtp = self._zmtp
        assert zmtp is not None
        try:
            event = zmtp.next_event()
            while isinstance(event, Heard):  # at most what one receive brought
                event = zmtp.next_event()
        except WireError as fault:
            self._lose(str(fault), warns=True)
            return None
        except BaseException:
            self._lose("interrupted")
            raise
        if event is None:
            self._unasked = False
            if zmtp.has_output:
                self._say(zmtp)
            return None
        assert not isinstance(event, Opened | SubjectChange)  # the first is over, nobody subscribes
        self._unasked = not zmtp.is_quiet
        if not self._is_used:  # a server that answers: the next wait is a short one again
            self._is_used = True
            self._dialing.waits.after_use()
            self._said.clear()
        return event

    # Connecting

    def _advance(self) -> None:
        """Do what is due while there is no open connection."""
        if self._socket is None:
            try:
                self._dial()
            except OSError as error:
                self._note(error.strerror or str(error), warns=True)
        elif self._attempt_due is not None and self._attempt_due <= _now():
            self._lose("it did not answer in time")
        else:
            self._try_on()

    def _dial(self) -> None:
        now = _now()
        try:
            if (connecting := self._dialing.next_socket(now)) is None:
                return
            self._watched.watch(connecting, READ | WRITE)
        except OSError:
            self._dialing.failed(now)
            raise
        self._watches_writing = True
        self._socket = connecting
        self._zmtp = zmtp = ZmtpConnection(self._socket_type, self._limits)
        self._attempt_due = now + ATTEMPT_MICROS
        self._owed.add(zmtp.take_output())

    def _try_on(self) -> None:
        """Connecting is over when the greeting leaves; then comes the handshake."""
        if self._owed.size and not self._flush() and not self._is_connected:
            return
        if not self._is_connected and not self._begin_handshake():
            return
        while self._socket is not None and self._zmtp is not None and self._read():
            try:
                event = self._zmtp.next_event()
            except WireError as fault:
                self._flush()
                self._lose(str(fault), warns=True)
                return
            if self._zmtp.has_output:
                self._say(self._zmtp)
            if isinstance(event, Opened):
                self._open(event.minor)
                return
            self._unasked = False

    def _open(self, minor: int) -> None:
        if self._zmtp is None:
            return  # lost while our part of the handshake was sent
        self._is_open = True
        self._attempt_due = None
        self._dialing.succeeded()
        self._untold.append(True)
        self._unasked = self._zmtp.is_partial  # a message came right behind the handshake
        self._opened(minor)

    def _begin_handshake(self) -> bool:
        connection = self._socket
        if connection is None:
            return False
        try:
            if connection.getsockname() == connection.getpeername() != "":
                # A free port of this machine may be given to the socket that looks for it.
                raise OSError(errno.ECONNREFUSED, "nobody is there but this socket itself")
        except OSError as error:
            self._lose(error.strerror or str(error))
            return False
        self._is_connected = True
        self._attempt_due = _now() + ATTEMPT_MICROS
        return True

    # Ending

    def _lose(self, reason: str, *, warns: bool = False) -> None:
        """This connection is over, or this attempt."""
        if self._is_open:
            self._untold.append(False)
            self._dialing.broke(_now())
        else:
            self._dialing.failed(_now())
        self._note(reason, warns=warns)
        self._drop()

    def _leave(self) -> None:
        """The connection is of no interest any more, and what it brought is not either."""
        self._drop()
        self._dialing.leave()
        self._untold.clear()
        self.descriptors = ()

    def _drop(self) -> None:
        connection = self._socket
        self._begin_nothing()
        if connection is not None:
            self._watched.drop(connection)

    def _note(self, reason: str, *, warns: bool) -> None:
        level = logging.WARNING if warns and reason not in self._said else logging.DEBUG
        if warns:
            if len(self._said) >= SAID_MAX:  # a server may give another reason each time
                self._said.clear()
            self._said.add(reason)
        logger.log(level, "no connection server=%s: %s", self._server, reason)


def _now() -> int:
    return time.monotonic_ns() // 1000
