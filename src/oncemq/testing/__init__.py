"""For tests, yours and ours: the real server in the same process."""

from oncemq.testing.embedded import server

__all__ = ["server"]
