"""The log: appending, syncing, room on the disk, checkpoints, and recovery at the start."""
