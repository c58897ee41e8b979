"""Work on connections that are awaited."""
