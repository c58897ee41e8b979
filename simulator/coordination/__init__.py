"""Etcd as servers meet it: its store, and a coordinator that asks it over a bad network."""
