"""Files: the log that is the truth, its indexes, its checkpoints, their recovery and repair."""
