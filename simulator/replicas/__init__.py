"""A shard's replicas without their bytes: the shipped rules of `oncemq.replication`.

Logs are lists of numbers, the coordinator is one value, and what can go wrong is one step that
chance takes: messages that are lost, doubled, late and out of order, links cut in one
direction, processes killed between two actions, power cuts that take what was not synced, servers
that stand still for long, leases that end early, answers of the coordinator that get lost and asks
that happen late, disks that are full, emptied or set back. `witness` looks at everything that any
replica does, and says what it must not be. After the faults all is mended, and the replicas have to
become equal and to store again.
"""
