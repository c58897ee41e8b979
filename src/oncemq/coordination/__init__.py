"""What the servers of a cluster agree on: who leads a shard, who is in sync, who is there.

The servers agree through an outside store with a linearizable compare-and-swap: etcd. Nothing here
replicates a log; this package only changes small values, one at a time, and tells what became of
them. It has two halves.

**The values and their changes are pure** (`values`, `transactions`). A change is a function of the
old value: it returns the new one, or a `Declined` that says why not. The caller writes the new
value under the condition that the old one is still there; when it is not, the caller reads and
decides anew. So every rule is checked by whoever changes something, against exactly the value that
the change replaces, and no server has to be trusted with more than its own change.

**The coordinator is a port** (`coordinator`): requests go in under tokens, events come out. It
never blocks the caller's loop and reads no clock of the caller's. `local` keeps the values in
memory, for one server and for tests; `etcd` asks a real etcd from threads of its own.

Why safety does not rest on leases: a lease says that a server was there a moment ago, and a server
that was paused does not know that its lease is over. Here a lease only makes a key vanish, which
others take as a hint to try an election. Who may commit is decided by `ShardReplicas` alone: the
leader's epoch, which every follower checks durably, and the in-sync set, which only changes by
compare-and-swap.

Law: nothing in this package decides by time that something is safe.
"""
