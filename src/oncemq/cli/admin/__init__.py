"""Commands for operators: serve, status, topics, audit, backup, repair."""
