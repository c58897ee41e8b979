"""PURE: how to use etcd so that nothing happens twice, is missed, or is taken for granted."""
