"""Puts on their way to the server: gathered into batches, numbered, recorded, sent."""
