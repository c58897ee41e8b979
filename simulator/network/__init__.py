"""The simulated network and live feed."""
