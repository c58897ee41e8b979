"""Messages as Arrow columns, and Arrow columns as batches of messages."""
