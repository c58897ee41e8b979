"""`once backup` and `once restore`: consistent copies of a running server's log."""
