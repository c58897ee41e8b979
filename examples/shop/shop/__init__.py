"""A coffee shop: an example of OnceMQ."""
