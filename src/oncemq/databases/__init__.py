"""The user's own databases: what takes effect with a message, and goes out with a write."""
