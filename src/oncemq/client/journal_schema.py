"""The tables of a client's state database, and what is written to them as one statement."""

FORMAT = 3
ENDED_KEPT = 1_000  # subscriptions that ended; older ones are not known any more

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
# In every format: subscriptions that ended, with the cursor that they had. Older versions do not
# look at them.
ENDED = """
CREATE TABLE IF NOT EXISTS ended (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    topic TEXT NOT NULL, subscription_id INTEGER NOT NULL, cursor INTEGER NOT NULL,
    checksum INTEGER
)
"""
END = """
INSERT INTO ended (topic, subscription_id, cursor, checksum)
SELECT topic, subscription_id, cursor, checksum FROM cursors
WHERE topic = ? AND (SELECT epoch FROM client) = ?
"""
# Format 3: checksums. What an older version wrote is taken for right, once.
CHECKSUMS = {
    "client": "row_checksum(CAST(id AS BLOB), epoch)",
    "cursors": "row_checksum(CAST(topic AS BLOB), subscription_id, cursor)",
    "log": "row_checksum(log_id, generation)",
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
