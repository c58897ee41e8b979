"""What outlives a process of a simulation: disks, journals, databases."""
