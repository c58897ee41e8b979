"""The rules of exactly-once, pure: no clock, socket, file, thread or randomness."""
