"""The tables of a client's state database, and what is written to them as one statement."""

import zlib

from oncemq.client.state.endings import UNTAKEN_CHECKSUM

FORMAT = 3
GRANTS_KEPT = 1_000  # starts, of all branches of the log's history; older ones are not known
STARTS_KEPT = 50  # of these, on the branch that the state is on
CLAIMS_KEPT = 50  # the oldest without an answer, when the state leaves a branch
UNHEARD_KEPT = 5  # likewise, when a later start is let in

CLIENT = """
CREATE TABLE IF NOT EXISTS client (
    one INTEGER PRIMARY KEY CHECK (one = 1), id TEXT NOT NULL, epoch INTEGER NOT NULL
)
"""
CLAIMS = """
CREATE TABLE IF NOT EXISTS claims (number INTEGER PRIMARY KEY, nonce INTEGER NOT NULL)
"""
CURSORS = """
CREATE TABLE IF NOT EXISTS cursors (
    topic TEXT PRIMARY KEY, subscription_id INTEGER NOT NULL, cursor INTEGER NOT NULL
) WITHOUT ROWID
"""
# Format 2: which log the state is about.
LOG = """
CREATE TABLE IF NOT EXISTS log (
    one INTEGER PRIMARY KEY CHECK (one = 1), log_id BLOB NOT NULL, generation INTEGER NOT NULL
)
"""
TABLES = (CLIENT, CLAIMS, CURSORS, LOG)
# In every format, as the tables of `endings` are: starts that were let in, so that a state that has
# left a branch of the log's history is told from an old copy when it comes there again. Epoch and
# moment are 0 then.
GRANTS = """
CREATE TABLE IF NOT EXISTS grants (
    number INTEGER PRIMARY KEY,
    nonce INTEGER NOT NULL, epoch INTEGER NOT NULL, moment INTEGER NOT NULL, checksum INTEGER
)
"""
GRANT = """
INSERT INTO grants (nonce, epoch, moment, checksum)
SELECT nonce, epoch, moment, row_checksum(nonce, epoch, moment)
FROM (SELECT ? AS nonce, ? AS epoch, ? AS moment)
"""
# A start is let in. Those before it that nobody heard of: another branch may have let them in.
HEARD = (
    f"""
INSERT INTO grants (nonce, epoch, moment, checksum)
SELECT nonce, 0, 0, row_checksum(nonce, 0, 0) FROM claims
WHERE number < (SELECT number FROM claims WHERE nonce = ?) ORDER BY number LIMIT {UNHEARD_KEPT}
""",
    "DELETE FROM claims WHERE number <= (SELECT number FROM claims WHERE nonce = ?)",
    "DELETE FROM grants WHERE nonce = ?",  # of the first try
)
LEAVE = (
    f"""
INSERT INTO grants (nonce, epoch, moment, checksum)
SELECT nonce, 0, 0, 0 FROM claims ORDER BY number LIMIT {CLAIMS_KEPT}
""",
    "UPDATE grants SET epoch = 0, moment = 0, checksum = row_checksum(nonce, 0, 0)",
    "DELETE FROM claims",
)
FORGET_GRANTS = (
    f"""
DELETE FROM grants WHERE epoch > 0 AND number <= (
    SELECT number FROM grants WHERE epoch > 0 ORDER BY number DESC LIMIT 1 OFFSET {STARTS_KEPT}
)
""",
    f"""
DELETE FROM grants WHERE number <= (
    SELECT number FROM grants ORDER BY number DESC LIMIT 1 OFFSET {GRANTS_KEPT}
)
""",
)
LAST_NONCE = """
SELECT nonce FROM grants
WHERE epoch > 0 AND epoch = (SELECT epoch FROM client) ORDER BY number DESC LIMIT 1
"""
# Format 3: checksums. What an older version wrote is taken for right, once.
CHECKSUMS = {
    "client": "row_checksum(CAST(id AS BLOB), epoch)",
    "cursors": "row_checksum(CAST(topic AS BLOB), subscription_id, cursor)",
    "log": "row_checksum(log_id, generation)",
}
# Of tables that have had theirs from the beginning.
VERIFIED = CHECKSUMS | {
    "ended": CHECKSUMS["cursors"],
    "untaken": UNTAKEN_CHECKSUM,
    "grants": "row_checksum(nonce, epoch, moment)",
}
# SQLite keeps what it is given: a damaged page may hold text where there was a number.
STRANGE = """
SELECT 1 FROM client WHERE typeof(epoch) <> 'integer' OR typeof(id) <> 'text'
UNION ALL SELECT 1 FROM claims WHERE typeof(nonce) <> 'integer'
"""
SETTLE = """
INSERT INTO cursors (topic, subscription_id, cursor, checksum)
SELECT name, id, place, row_checksum(CAST(name AS BLOB), id, place)
FROM (SELECT ? AS name, ? AS id, ? AS place) WHERE (SELECT epoch FROM client) = ?
ON CONFLICT (topic) DO UPDATE
SET subscription_id = excluded.subscription_id, cursor = excluded.cursor,
    checksum = excluded.checksum
"""


def row_checksum(*values: object) -> int:
    """Of a row's values, each of whatever type a damaged file gives it."""
    texts = (each if isinstance(each, bytes) else str(each).encode() for each in values)
    return zlib.crc32(b"\0".join(texts))
