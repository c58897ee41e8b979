"""Benchmarks: this machine's limits and OnceMQ beside them, in one run. `make bench`."""
