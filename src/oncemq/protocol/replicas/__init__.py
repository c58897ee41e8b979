"""What the replicas of a shard have in common."""
