"""One running server: the driver that makes decisions durable, and the loop around it."""
