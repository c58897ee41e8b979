"""One simulated world: its machines, its clock, its faults, its history."""
