"""Commands that run programs beside a server: apps, dead letters, the relay."""
