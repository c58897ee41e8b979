"""`once demo`: publishers and a subscriber that are killed at random, and the audit at the end."""
