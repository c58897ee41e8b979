"""The relay: what users wrote into the outbox of their own database, published exactly once."""
