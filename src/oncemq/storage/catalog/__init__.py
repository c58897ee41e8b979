"""Where each topic's batches lie in the segments, and when they were stored."""
