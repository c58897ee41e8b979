"""Spark itself: its session, its Java, its worker processes, a cluster on this machine."""
