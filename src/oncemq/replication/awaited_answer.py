"""How long an answer is awaited on a connection to another server, before a new one is made.

What TCP could not deliver it sends again after pauses that double. So a wire that carried nothing
for eight seconds may carry nothing for eight more once it is mended, and whoever was to lead by
then hears nobody. A new connection is made at once.

Laws: only what was sent on the connection that is there counts, and of the time only what this
server saw pass: who stood still finds the answers that came meanwhile. While a message arrives, a
part after the other, there can be no answer yet, so the time begins when it is whole, or when
nothing more of it arrives: 64 MB take 5 s on a wire of 100 Mbit/s. Who answers nothing on the next
connection either (it is busy, or far away) has twice as long there.
"""

from oncemq.protocol.names import Micros

FIRST_PATIENCE = Micros(1_000_000)  # half of what a member may be silent
LONGEST_PATIENCE = Micros(16_000_000)
LOOK_MAX = Micros(200_000)  # time passes in such pieces at most: more is a server that stood still


class AwaitedAnswer:
    """Of one server's connections to one other."""

    def __init__(self) -> None:
        self._waited: Micros | None = None  # None: nothing was sent since it said something
        self._patience = FIRST_PATIENCE

    def sent(self) -> None:
        """A message left, which is to be answered."""
        if self._waited is None:
            self._waited = Micros(0)

    def answered(self) -> None:
        """The other server said something."""
        self._waited, self._patience = None, FIRST_PATIENCE

    def arrives(self) -> None:
        """More of what was sent has arrived, and not all."""
        if self._waited is not None:
            self._waited = Micros(0)

    def is_gone(self) -> None:
        """There is no connection, or a new one: nothing was sent on it."""
        self._waited = None

    def is_in_vain(self, passed: Micros) -> bool:
        """So much time passed; whether a new connection is to be made now."""
        if self._waited is None:
            return False
        self._waited = Micros(self._waited + min(passed, LOOK_MAX))
        if self._waited < self._patience:
            return False
        self._waited = None
        self._patience = min(Micros(2 * self._patience), LONGEST_PATIENCE)
        return True


class Arrival:
    """What was sent on a connection, until the other end's system has it.

    Only one message at a time is looked at, until it is whole: systems take small ones for who has
    stopped, and those are no sign of life.
    """

    def __init__(self) -> None:
        self._left = 0  # to the end of the message that is looked at
        self._later = 0  # sent behind it

    def sent(self, size: int, unarrived: int) -> None:
        """A message of so many bytes left; so many of all have not arrived."""
        if self._left:
            self._later += size
        else:
            self._left, self._later = unarrived, 0

    def is_gone(self) -> None:
        """There is no connection, or a new one."""
        self._left = 0

    def goes_on(self, unarrived: int) -> bool:
        """Whether more of the message has arrived since the last look, and not all of it."""
        before, self._left = self._left, min(self._left, max(0, unarrived - self._later))
        return 0 < self._left < before
