"""Rare things a campaign of simulations must have seen: a test that never gets there tests nothing.

Marks are counted from outside: what clients were told, what recovery reported, what lies on the
disks. Law: a campaign large enough in which a mark of `SOMETIMES` stays 0 has failed.
"""

ENOUGH = 150  # histories: each mark below comes many times in so many

SOMETIMES: dict[str, str] = {
    "put new": "a put was stored",
    "put duplicate": "a repeated put was recognized",
    "put nobody wants": "a put without subscribers was let go",
    "put unwanted": "a required put without subscribers was refused",
    "put storage_full": "a put met a full disk",
    "payload_conflict": "a used number with other bytes was refused",
    "transaction committed": "inputs and outputs took effect together",
    "transaction given up": "a transaction ended without a commit",
    "staged and committed": "a stage was published under an owner's number",
    "staged already": "a number that was used published nothing again",
    "keyed duplicate": "a put under a used idempotency key was recognized",
    "put back": "a consume failed, and its messages came again",
    "sink published": "a driver published a batch of staged rows",
    "sink repeated": "a batch that was run again was known to be published",
    "sink attempt too many": "a second attempt of a task was given up",
    "sink owner_bound": "a checkpoint that was made anew was refused",
    "sink number_misfit": "a checkpoint that was copied, or an old one, was refused",
    "sink contents_differ": "a checkpoint that lost its newest files was refused",
    "sink bond_taken": "a checkpoint that was copied before its second batch was refused",
    "pattern subscribed": "a client subscribed by pattern",
    "pattern left": "a client ended a pattern",
    "topic of a pattern": "a message came of a topic that was made after the pattern",
    "topic deleted": "a topic was deleted under its subscribers",
    "topic made anew": "a message came of a topic that has the name of a deleted one",
    "not_subscribed": "a get without a subscription was refused",
    "unreachable": "a call gave up waiting",
    "fenced": "a call of an older process was refused",
    "client fenced": "a process learned that a newer one has its id",
    "state restored": "a state directory was replaced by an old copy",
    "lease renewed": "a client renewed the lease of its subscriptions",
    "refused by a follower": "a server that does not lead refused a request",
    "lease over": "a client did not renew in time",
    "staged unwanted": "a required commit to a topic without subscribers was refused",
    "backup made": "a backup was made beside a running server",
    "backup restored": "the server went on from a backup",
    "damage taken out": "the server went on without what was damaged",
    "client history_lost": "a client was told that the server lost what it knows",
    "loss accepted": "a person accepted that for a client, and it went on",
    "client trapped": "a client died in the middle of a disk call",
    "outbox rewritten": "an outbox was written anew",
    "slots shared": "two processes of one client had a slot each",
    "server trapped": "the server died in the middle of a disk call",
    "server recovered": "the server came back",
    "server cut NOTHING": "a power cut kept nothing that waited",
    "server cut PREFIX": "a power cut kept the first writes",
    "server cut REORDERED": "a power cut kept any of the sectors",
    "server cut SIZE_LOST": "a power cut lost the sizes",
    "server cut TORN": "a power cut tore a write",
    "server cut ZEROED": "a power cut kept sizes without bytes",
    "torn tail": "recovery cut a torn tail off",
    "leftovers": "recovery tidied up after a crash",
    "sync failed": "a sync failed, and the server stopped",
    "checkpoint made": "a checkpoint was published",
    "checkpoint used": "recovery began with a checkpoint",
    "segments rolled": "the log went on in another segment",
    "segments compacted": "segments were rewritten",
    "segments freed": "settled segments were let go",
    "gap repaired": "a listener missed something of the feed, and pulled it",
    "overlap dropped": "a listener was pushed what it had already",
    "joined late": "a listener joined a topic that had something for it",
    "listener nudged": "a listener was told again what it had not settled",
    "connections reset": "a connection broke with messages under way",
}

# These come in one history of a hundred or two, too seldom for a campaign to be blamed; each is
# looked for in worlds that have more of what leads there.
RARE: dict[str, str] = {
    "client stale_state": "an old copy of a state directory was refused",
    "backup restored twice": "the server went on from the same backup once more",
}


# The same for worlds of three servers.
IN_CLUSTERS: dict[str, str] = {
    "leader changed": "another server led",
    "tail cut": "a follower's log had records that the leader's lacks",
    "log refilled": "a follower's log was filled with the leader's files",
    "in-sync set shrank": "a member left the in-sync set",
    "in-sync set grew": "a member came into the in-sync set",
    "change unanswered": "etcd did what a server asked, and the answer was lost",
    "stale leader frozen": "another one led while the one before it stood still",
    "stale leader cut off": "another one led while the one before it was cut off, and led on",
    "too few in sync": "a leader had fewer followers than it must have, and stored nothing",
    "put after another epoch's permit": "a put came that was sent under an earlier leader's permit",
    "etcd away": "etcd had no leader for a while",
    "server drained": "a server was to lead nothing",
    "server's disk lost": "a server came back with an empty disk",
    "server's disk set back": "a server came back with an older copy of its disk",
    "put duplicate": "a repeated put was recognized",
    "transaction committed": "inputs and outputs took effect together",
    "staged and committed": "a stage was published under an owner's number",
    "keyed duplicate": "a put under a used idempotency key was recognized",
    "topic of a pattern": "a message came of a topic that was made after the pattern",
    "joined late": "a listener joined a topic that had something for it",
    "put storage_full": "a put met a full disk, or too few replicas",
    "torn tail": "recovery cut a torn tail off",
    "sync failed": "a sync failed, and the server stopped",
    "checkpoint used": "recovery began with a checkpoint",
}


# As RARE, in worlds of three servers.
RARE_IN_CLUSTERS: dict[str, str] = {
    "expansion unanswered": "a member came into sync, and the leader did not hear of it",
}


def missing(marks: dict[str, int], wanted: dict[str, str] = SOMETIMES) -> list[str]:
    """Those that never came."""
    return [name for name in wanted if not marks.get(name)]


def add(total: dict[str, int], marks: dict[str, int]) -> None:
    """Count the marks of one more history."""
    for name, count in marks.items():
        total[name] = total.get(name, 0) + count
