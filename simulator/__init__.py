"""The simulator: the real server and clients on a fake disk, network and clock, from a seed.

For the project, not for users: it is not in the wheel. `oncemq.testing` has what users need.
"""
