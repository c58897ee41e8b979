"""Rewriting old segments without the messages that every subscription has settled."""
