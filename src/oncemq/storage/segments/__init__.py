"""Segment files: frames, their indexes, the names of files and the order of segments."""
