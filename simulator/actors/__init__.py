"""The simulated clients, servers and databases."""
