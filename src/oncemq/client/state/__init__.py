"""The client's state directory: journal (SQLite), outbox (a log), and their repair."""
