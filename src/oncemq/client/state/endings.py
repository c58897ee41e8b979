"""Subscriptions that ended, as a client's state database keeps them.

They are kept because a server that goes back in time has them again.

Laws: one that had a cursor is kept with it, also where its end is only seen by the cursor of the
next one; one of which nothing was taken, and a pattern, by its identity alone. What was being
worked on when its subscription ended is taken when that is done. The last ones of each kind are
kept. Identities are never given twice, so that a subscription that was made anew is
never taken for the one that ended. Each row has a checksum.
"""

from collections.abc import Callable, Iterable
from typing import Any

from oncemq.protocol.names import NO_SUBSCRIPTION, Epoch, Offset, SubscriptionId
from oncemq.protocol.replies import NO_OFFSET
from oncemq.protocol.structs import Settled

ENDED_KEPT = 1_000  # subscriptions that ended with a cursor; older ones are not known any more
UNTAKEN_KEPT = 1_000  # likewise, without: nothing of them was taken, or they are patterns

# Both in every format: versions from before them do not look at them.
ENDED = """
CREATE TABLE IF NOT EXISTS ended (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    topic TEXT NOT NULL, subscription_id INTEGER NOT NULL, cursor INTEGER NOT NULL,
    checksum INTEGER
)
"""
# Not in `ended`: an older version would go on from a cursor that is none.
UNTAKEN = """
CREATE TABLE IF NOT EXISTS untaken (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL, subscription_id INTEGER NOT NULL, checksum INTEGER
)
"""
# The cursor of another subscription takes the place of one whose end nobody noted: the process was
# killed before it had the answer. As a trigger it is of the statement that settles.
REPLACED = f"""
CREATE TRIGGER IF NOT EXISTS replaced BEFORE UPDATE ON cursors
WHEN OLD.subscription_id <> NEW.subscription_id
BEGIN
    INSERT INTO ended (topic, subscription_id, cursor, checksum)
    VALUES (OLD.topic, OLD.subscription_id, OLD.cursor, OLD.checksum);
    DELETE FROM ended WHERE number <= (SELECT MAX(number) FROM ended) - {ENDED_KEPT};
END
"""
UNTAKEN_CHECKSUM = "row_checksum(CAST(name AS BLOB), subscription_id)"
END = """
INSERT INTO ended (topic, subscription_id, cursor, checksum)
SELECT topic, subscription_id, cursor, checksum FROM cursors
WHERE topic = ? AND (SELECT epoch FROM client) = ?
"""
END_UNTAKEN = f"""
INSERT INTO untaken (name, subscription_id, checksum)
SELECT name, subscription_id, {UNTAKEN_CHECKSUM}
FROM (SELECT ? AS name, ? AS subscription_id)
WHERE (SELECT epoch FROM client) = ?
    AND subscription_id NOT IN (SELECT subscription_id FROM cursors)
    AND subscription_id NOT IN (SELECT subscription_id FROM ended)
    AND subscription_id NOT IN (SELECT subscription_id FROM untaken)
"""
# What was worked on while its subscription ended: its cursor moves where it is, or is noted here.
MOVE_CURSOR = """
UPDATE cursors SET cursor = ?, checksum = row_checksum(CAST(topic AS BLOB), subscription_id, ?)
WHERE subscription_id = ? AND cursor < ?
"""
END_BEHIND = """
INSERT INTO ended (topic, subscription_id, cursor, checksum)
SELECT name, id, place, row_checksum(CAST(name AS BLOB), id, place)
FROM (SELECT ? AS name, ? AS id, ? AS place)
WHERE id NOT IN (SELECT subscription_id FROM cursors)
    AND id NOT IN (SELECT subscription_id FROM ended)
"""
LESS_TAKEN = "DELETE FROM ended WHERE subscription_id = ? AND cursor < ?"
FORGET_CURSOR = "DELETE FROM cursors WHERE topic = ? AND (SELECT epoch FROM client) = ?"
FORGET = "DELETE FROM {0} WHERE number <= (SELECT MAX(number) FROM {0}) - ?"

Ended = Iterable[tuple[str, SubscriptionId]]  # by name; NO_SUBSCRIPTION: not known which


class Endings:
    """The tables `ended` and `untaken` of one database."""

    def __init__(self, rows: Callable[..., list[Any]], verify: Callable[[str], None]) -> None:
        self._rows = rows
        self._verify = verify

    def open(self) -> None:
        """Make the tables, where they are not there yet; `cursors` is."""
        self._rows(ENDED)
        self._rows(UNTAKEN)
        self._rows(REPLACED)

    def note(self, client_epoch: Epoch, ended: Ended) -> None:
        """These ended: their cursors go. Of a client that is not current, nothing is noted."""
        for name, subscription_id in ended:
            if subscription_id != NO_SUBSCRIPTION:
                self._rows(END_UNTAKEN, name, subscription_id, client_epoch)
            self._rows(END, name, client_epoch)
            self._rows(FORGET_CURSOR, name, client_epoch)
        self._rows(FORGET.format("ended"), ENDED_KEPT)
        self._rows(FORGET.format("untaken"), UNTAKEN_KEPT)

    def taken(self, moved: Iterable[tuple[str, SubscriptionId, Offset]]) -> None:
        """More was taken of these: it was worked on while they ended."""
        for topic, subscription_id, cursor in moved:
            self._rows(MOVE_CURSOR, cursor, cursor, subscription_id, cursor)
            self._rows(LESS_TAKEN, subscription_id, cursor)
            self._rows(END_BEHIND, topic, subscription_id, cursor)
            self._rows("DELETE FROM untaken WHERE subscription_id = ?", subscription_id)
        self._rows(FORGET.format("ended"), ENDED_KEPT)

    def known(self) -> tuple[Settled, ...]:
        """The last ones that ended; NO_OFFSET where nothing was taken, and of patterns."""
        self._verify("ended")
        self._verify("untaken")
        rows = self._rows("SELECT topic, subscription_id, cursor FROM ended ORDER BY number")
        rows += [
            (*row, NO_OFFSET)
            for row in self._rows("SELECT name, subscription_id FROM untaken ORDER BY number")
        ]
        return tuple(Settled(name, SubscriptionId(id), Offset(at)) for name, id, at in rows)

    def is_again(self, subscription_id: SubscriptionId) -> None:
        """The server has it, and a person accepted that: it has not ended."""
        for table in ("ended", "untaken"):
            self._rows(f"DELETE FROM {table} WHERE subscription_id = ?", subscription_id)
