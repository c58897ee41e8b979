"""The connection of an inbox's block, and whether a transaction of ours is open on it."""

from oncemq.databases.connections import Connection
from oncemq.databases.statements import Bound, Step


class TrackedConnection:
    """A connection; `is_open` when a transaction was begun on it here (or may have been)."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.is_open = False

    def before(self, step: Step) -> None:
        """This is about to be performed."""
        self.is_open = self.is_open or step is Bound.BEGIN

    def after(self, step: Step) -> None:
        """This was performed, and nothing was raised."""
        self.is_open = self.is_open and step not in (Bound.COMMIT, Bound.ROLLBACK)
