"""Spark itself: its Java, its worker processes, a cluster on this machine, a zip of us for it."""
