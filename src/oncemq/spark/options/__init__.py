"""The options of source and sink: what a user may write, checked."""
