"""The state of a shard, as a fold of its log gives it: topics, subscriptions, producers, keys."""
