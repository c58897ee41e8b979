"""How long an answer is awaited on a connection to another server, before a new one is made.

What TCP could not deliver it sends again after pauses that double. So a wire that carried nothing
for eight seconds may carry nothing for eight more once it is mended, and whoever was to lead by
then hears nobody. A new connection is made at once.

Laws: only what was sent on the connection that is there counts, and of the time only what this
server saw pass: who stood still finds the answers that came meanwhile. Who answers nothing on the
next connection either (it is busy, or its network is slow) has twice as long there.
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
