"""Which version of what servers write: one number for all that others have to be able to read.

It counts the kinds of records and frames in a shard's log, the files that travel to a replica, the
messages between replicas and the values that servers agree on. A server reads every version up to
`NEWEST`. It writes what the shard's value says (`ShardReplicas.version`), which is raised only when
every replica reads it, and never lowered.

To write something that an older server cannot read: raise `NEWEST` by one, name a new kind of
record in `KINDS`, ask (`Recorder.too_new` for records) before the first is written, and keep what
the version before wrote as a transcript beside `tests/version1`.

Law: nothing of a version is written, sent or stored for others before all replicas read it.
"""

FIRST = 1  # of the first clusters
NEWEST = 1  # that this OnceMQ reads
KINDS: dict[int, int] = {}  # of records that came later: the version that each came with
