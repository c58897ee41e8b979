"""What is to happen in a simulated world, drawn from a seed before it runs."""
