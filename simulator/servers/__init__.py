"""The servers of a simulated world over all their lives, and what befalls them."""
