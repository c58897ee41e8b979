"""Bugs planted on purpose, each of which the simulator must catch."""
