"""The sockets at a client's end, closed in the right order by whoever is last to know them.

A ZeroMQ context that is collected before its sockets waits for them for ever, and the garbage
collector keeps no order. So the sockets belong to an object that refers to nothing of the client:
its owner hangs `close` on a finalizer, which runs whether or not anybody closed the client.

Law: `close` waits for nobody, and does nothing in a process that was forked from the one which
opened the sockets: ZeroMQ's threads are not there.
"""

import os
from collections.abc import Callable

import zmq

from oncemq.transport.contexts import Context, new_context, no_descriptors_in_words
from oncemq.transport.monitor import Monitor


class OpenSockets:
    """The context of one client's end, and the sockets that are open in it."""

    def __init__(self) -> None:
        self._context: Context | None = None
        self._open: dict[zmq.Socket[bytes], Monitor] = {}
        self._process = os.getpid()

    def open(
        self, make: "Callable[[Context], zmq.Socket[bytes]]"
    ) -> "tuple[zmq.Socket[bytes], Monitor]":
        """A socket that is not connected yet, and the news of it."""
        if self._context is None:  # two threads, for those only who connect
            self._context = new_context()
        with no_descriptors_in_words():
            socket = make(self._context)
            try:
                monitor = self._open[socket] = Monitor(socket)
            except BaseException:
                socket.close(linger=0)  # else the context waits for it, for ever
                raise
        return socket, monitor

    def drop(self, socket: "zmq.Socket[bytes]") -> None:
        """This one is not used any more."""
        self._open.pop(socket).close()
        socket.close(linger=0)

    def close(self) -> None:
        """None of them is."""
        if os.getpid() != self._process:
            return
        for socket in list(self._open):
            self.drop(socket)
        if self._context is not None:
            self._context.term()
