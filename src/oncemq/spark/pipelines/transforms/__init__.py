"""Topics made of topics by SQL or by a function."""
