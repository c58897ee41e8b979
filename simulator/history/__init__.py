"""What the applications of a simulation saw, and what of it the checker is told."""
